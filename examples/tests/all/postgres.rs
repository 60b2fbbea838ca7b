//! The consumer of a queue in Postgres is killed again and again; no job is lost or done twice.

use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

use crate::common::{self, Instance};

const KILLS: i64 = 5;
const JOBS: i64 = 400;

struct Database {
    runtime: Runtime,
    client: Client,
}

impl Database {
    fn open(url: &str) -> Database {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let (client, connection) = runtime.block_on(tokio_postgres::connect(url, NoTls)).unwrap();
        runtime.spawn(connection);
        Database { runtime, client }
    }

    fn run(&self, sql: &str) {
        self.runtime.block_on(self.client.batch_execute(sql)).unwrap();
    }

    fn number(&self, sql: &str) -> i64 {
        self.runtime.block_on(self.client.query_one(sql, &[])).unwrap().get(0)
    }
}

#[needs(postgres)]
#[test]
fn needs_postgres_a_queue_is_drained_over_kills_and_no_job_is_lost_or_doubled() {
    let Ok(url) = std::env::var("TENURE_TEST_POSTGRES") else {
        println!("skipped: TENURE_TEST_POSTGRES is not set; `cargo xtask test` sets it");
        return;
    };
    let name = format!("example_queue_{}", std::process::id());
    let server = Database::open(&url);
    server.run(&format!("CREATE DATABASE {name}"));
    let (place, _) = url.rsplit_once('/').unwrap();
    let url = format!("{place}/{name}");
    let start = || {
        let instance = Instance::start_at(env!("CARGO_BIN_EXE_postgres_queue"), &url);
        instance.line("ready");
        instance
    };
    let mut instances: Vec<Instance> = (0..3).map(|_| start()).collect();
    let database = Database::open(&url);
    for _ in 0..KILLS {
        // In the middle of these it is killed.
        let jobs = "INSERT INTO example_jobs (work) SELECT 'work' FROM generate_series(1, ";
        database.run(&format!("{jobs}{JOBS})"));
        let leader = common::until(|| {
            instances.iter().position(|one| one.told().iter().any(|line| line.contains("done: ")))
        });
        instances.remove(leader).kill_9();
        instances.iter().for_each(|one| drop(one.told()));
        instances.push(start());
    }
    common::until(|| (database.number("SELECT count(*) FROM example_jobs") == 0).then_some(()));
    assert_eq!(database.number("SELECT count(*) FROM example_done"), KILLS * JOBS);
    assert_eq!(database.number("SELECT count(DISTINCT job) FROM example_done"), KILLS * JOBS);
    let terms = database.number("SELECT count(DISTINCT term) FROM example_done");
    assert!(terms > 1, "one leader did it all");
    drop(instances);
    drop(database);
    server.run(&format!("DROP DATABASE {name} WITH (FORCE)"));
}
