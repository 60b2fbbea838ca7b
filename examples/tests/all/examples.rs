//! Every example is run, as several real processes on one file, and does what its story says.

use std::path::PathBuf;

use tenure_testbed::http;

use crate::common::{Instance, any_line};

struct Place {
    directory: tempfile::TempDir,
    store: PathBuf,
}

impl Place {
    fn new() -> Place {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("tenure.db");
        Place { directory, store }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// The status and the body of a plain GET.
fn get(address: &str, path: &str) -> (u16, String) {
    let answer = http::get(address.parse().unwrap(), path).unwrap();
    (answer.status, answer.body)
}

fn term(text: &str) -> u64 {
    let digits = text.rsplit("term ").next().unwrap();
    digits.parse().unwrap_or_else(|_| panic!("{text:?} names no term"))
}

#[test]
fn election_only_hands_over_on_a_signal_and_on_a_kill() {
    let place = Place::new();
    let start = || {
        let mut instance = Instance::start(env!("CARGO_BIN_EXE_election_only"), &[&place.store]);
        instance.line("");
        instance
    };
    let mut first = start();
    assert_eq!(term(&first.line("leading, ")), 1);
    let mut second = start();
    assert_eq!(second.told(), Vec::<String>::new(), "one leads, the other does not");
    first.terminate();
    let (rest, code) = first.end();
    assert_eq!(rest, ["stopped"]);
    assert_eq!(code, 0);
    assert_eq!(term(&second.line("leading, ")), 2);
    let mut third = start();
    second.kill_9();
    assert_eq!(term(&third.line("leading, ")), 3);
}

#[test]
fn cron_job_ticks_on_one_instance_and_goes_on_elsewhere() {
    let place = Place::new();
    let start = || {
        let mut instance = Instance::start(env!("CARGO_BIN_EXE_cron_job"), &[&place.store]);
        instance.line("ready");
        instance
    };
    let mut first = start();
    let mut second = start();
    assert_eq!(term(&first.line("tick, ")), 1);
    assert_eq!(term(&first.line("tick, ")), 1);
    assert_eq!(second.told(), Vec::<String>::new());
    first.kill_9();
    assert_eq!(term(&second.line("tick, ")), 2);
    second.terminate();
    let (rest, code) = second.end();
    assert_eq!(rest.last().map(String::as_str), Some("stopped"));
    assert_eq!(code, 0);
}

#[test]
fn queue_consumer_does_every_job_once_over_a_change_of_hands() {
    let place = Place::new();
    let queue = place.file("queue.db");
    let start = || Instance::start(env!("CARGO_BIN_EXE_queue_consumer"), &[&place.store, &queue]);
    let mut first = start();
    let mut done: Vec<String> = (0..3).map(|_| first.line("done: ")).collect();
    let mut second = start();
    // The jobs of the second are done by the first, which leads.
    done.extend((0..3).map(|_| first.line("done: ")));
    assert!(done.iter().all(|line| term(line) == 1), "{done:?}");
    second.line("ready");
    first.kill_9();
    let mut third = start();
    // Of the jobs of the third. On a busy machine it may be the one that leads.
    let more: Vec<String> =
        (0..3).map(|_| any_line(&mut [&mut second, &mut third], "done: ")).collect();
    assert!(more.iter().all(|line| term(line) == 2), "{more:?}");
    second.terminate();
    assert_eq!(second.end().1, 0);
    third.terminate();
    assert_eq!(third.end().1, 0);

    let queue = rusqlite::Connection::open(&queue).unwrap();
    let count = |sql: &str| queue.query_row(sql, [], |row| row.get::<_, u32>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM jobs"), 9);
    assert_eq!(count("SELECT count(*) FROM jobs WHERE term IS NULL"), 0);
    done.extend(more);
    done.sort();
    done.dedup();
    assert_eq!(done.len(), 9, "each job once: {done:?}");
}

#[test]
fn run_if_leader_is_carried_out_by_the_leader_alone() {
    let place = Place::new();
    let start = || {
        let mut instance = Instance::start(env!("CARGO_BIN_EXE_run_if_leader"), &[&place.store]);
        instance.line("ready");
        instance
    };
    let mut first = start();
    let mut second = start();
    first.write("clean up");
    assert_eq!(first.line("carried out "), "\"clean up\"");
    second.write("clean up");
    assert!(second.line("left ").starts_with("\"clean up\" to "));
    let (rest, code) = first.end();
    assert_eq!(rest, ["stopped"]);
    assert_eq!(code, 0);
    // The second learns of it in its own time.
    let carried_out = (0..1000).any(|_| {
        second.write("again");
        second.next().unwrap() == "carried out \"again\""
    });
    assert!(carried_out);
}

#[test]
fn migration_is_run_by_exactly_one_of_many_and_all_wait_for_it() {
    let place = Place::new();
    let app = place.file("app.db");
    let program = env!("CARGO_BIN_EXE_migration");
    let instances: Vec<Instance> =
        (0..5).map(|_| Instance::start(program, &[&place.store, &app])).collect();
    let mut migrated = 0;
    for instance in instances {
        let (lines, code) = instance.end();
        assert_eq!(code, 0, "{lines:?}");
        match &lines[..] {
            [first, last] if first == "migrated by this instance" && last == "serving" => {
                migrated += 1;
            }
            [first, last] => assert_eq!([first, last], ["migrated already", "serving"]),
            _ => panic!("{lines:?}"),
        }
    }
    assert_eq!(migrated, 1);
}

#[test]
fn axum_service_says_503_then_resigns_then_exits_with_0() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_axum_service");
    let mut first = Instance::start(program, &[&place.store]);
    let address = first.line("listening on ");
    assert_eq!(term(&first.line("background task begins, ")), 1);
    let mut second = Instance::start(program, &[&place.store]);
    let other = second.line("listening on ");
    assert_eq!(get(&address, "/ready").0, 200);
    assert_eq!(get(&address, "/leader"), (200, "leading, term 1\n".to_owned()));
    assert_eq!(get(&other, "/leader"), (503, "following\n".to_owned()));

    first.terminate();
    first.line("not ready");
    // It goes on answering until the load balancer has seen it.
    assert_eq!(get(&address, "/ready").0, 503);
    assert_eq!(term(&second.line("background task begins, ")), 2);
    let (rest, code) = first.end();
    assert_eq!(rest, ["background task ends, term 1", "resigned", "bye"]);
    assert_eq!(code, 0);
    assert_eq!(get(&other, "/leader"), (200, "leading, term 2\n".to_owned()));
}

#[test]
fn tell_the_leader_hears_notices_and_keeps_posts_over_a_kill() {
    let place = Place::new();
    let start = || {
        let mut instance = Instance::start(env!("CARGO_BIN_EXE_tell_the_leader"), &[&place.store]);
        instance.line("ready");
        instance
    };
    let mut leader = Instance::start(env!("CARGO_BIN_EXE_tell_the_leader"), &[&place.store]);
    // Told by a task of its own, so before or after "ready". It listens from then on.
    assert_eq!(term(&leader.line("leading, ")), 1);
    let mut follower = start();
    follower.write("it's \"now\"");
    assert_eq!(leader.line("heard: "), "\"it's \\\"now\\\"\"");
    follower.write("!order 7");
    assert_eq!(leader.line("handled: "), "\"order 7\", attempt 1");
    follower.line("posted: new");
    follower.write("!order 7");
    assert_eq!(follower.line("posted: "), "known");
    leader.kill_9();
    follower.write("!order 8");
    // The first may come again: nobody knows whether it was acknowledged in time.
    while follower.line("handled: ") != "\"order 8\", attempt 1" {}
    follower.terminate();
    let (rest, code) = follower.end();
    assert_eq!(rest.last().map(String::as_str), Some("stopped"));
    assert_eq!(code, 0);
}
