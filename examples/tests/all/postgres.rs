//! The consumer of a queue in Postgres is killed again and again; no job is lost or done twice.

use tenure_testbed::eventually;
use tenure_testbed::postgres::{self, Session};

use crate::common::Instance;

const KILLS: i64 = 5;
const JOBS: i64 = 400;

#[needs(postgres)]
#[test]
fn needs_postgres_a_queue_is_drained_over_kills_and_no_job_is_lost_or_doubled() {
    let url = postgres::server();
    let name = format!("example_queue_{}", std::process::id());
    let server = Session::open(&url);
    server.run(&format!("CREATE DATABASE {name}"));
    let (place, _) = url.rsplit_once('/').unwrap();
    let url = format!("{place}/{name}");
    let start = || {
        let mut instance = Instance::start_at(env!("CARGO_BIN_EXE_postgres_queue"), &url);
        instance.line("ready");
        instance
    };
    let mut instances: Vec<Instance> = (0..3).map(|_| start()).collect();
    let database = Session::open(&url);
    for _ in 0..KILLS {
        // In the middle of these it is killed.
        let jobs = "INSERT INTO example_jobs (work) SELECT 'work' FROM generate_series(1, ";
        database.run(&format!("{jobs}{JOBS})"));
        let leader = eventually("a leader that works", || {
            instances
                .iter_mut()
                .position(|one| one.told().iter().any(|line| line.contains("done: ")))
        });
        instances.remove(leader).kill_9();
        instances.iter_mut().for_each(|one| drop(one.told()));
        instances.push(start());
    }
    eventually("an empty queue", || {
        (database.number("SELECT count(*) FROM example_jobs") == 0).then_some(())
    });
    assert_eq!(database.number("SELECT count(*) FROM example_done"), KILLS * JOBS);
    assert_eq!(database.number("SELECT count(DISTINCT job) FROM example_done"), KILLS * JOBS);
    let terms = database.number("SELECT count(DISTINCT term) FROM example_done");
    assert!(terms > 1, "one leader did it all");
    drop(instances);
    drop(database);
    server.run(&format!("DROP DATABASE {name} WITH (FORCE)"));
}
