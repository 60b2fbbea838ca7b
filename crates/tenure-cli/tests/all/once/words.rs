//! What `tenure once`, `run --no-wait` and `run --wait` tell, and their exit codes.

use std::fs;

use rustix::process::Signal;

use crate::common::eventually;
use crate::support::{Place, finish};

#[test]
fn a_key_is_done_by_one_of_many_and_all_exit_with_0() {
    let place = Place::new();
    let ran = place.path("ran");
    let script = format!("echo $TENURE_KEY $TENURE_ATTEMPT $TENURE_ELECTION >> {ran}; sleep 0.2");
    let args = ["once", "schema", "--key", "v1", "--ttl", "3s", "--", "sh", "-c", &script];
    let mut all: Vec<_> = (0..3).map(|_| place.spawn(&args)).collect();
    for one in &mut all {
        assert_eq!(one.code(), 0);
    }
    assert_eq!(fs::read_to_string(&ran).unwrap(), "v1 1 schema\n");
    // A restart does not run it again; another key is another.
    let done = place.run(&args);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.err.contains("v1 is done already"), "{done:?}");
    let args = ["once", "schema", "--key", "v2", "--ttl", "3s", "--", "sh", "-c", &script];
    assert_eq!(place.run(&args).code, 0);
    assert_eq!(fs::read_to_string(&ran).unwrap(), "v1 1 schema\nv2 1 schema\n");
}

#[test]
fn a_command_that_fails_is_tried_again_and_its_last_code_is_everybody_s() {
    let place = Place::new();
    let once = |tries: &str, script: &str| {
        let args = ["once", "schema", "-k", "v1", "--ttl", "3s", "--tries", tries, "--"];
        place.run(&[&args[..], &["sh", "-c", script]].concat())
    };
    let done = once("2", "exit $((TENURE_ATTEMPT + 6))");
    assert_eq!(done.code, 8, "{done:?}");
    assert!(done.err.contains("v1 failed with code 7, try 1 of 2"), "{done:?}");
    let done = once("2", "exit 0");
    assert_eq!(done.code, 8, "{done:?}");
    assert!(done.err.contains("give more with --tries"), "{done:?}");
    assert_eq!(once("3", "exit 0").code, 0);
    let done = place.run(&["once", "schema", "--key", "v2", "--ttl", "3s", "--", "/no/such"]);
    assert_eq!(done.code, 127, "{done:?}");
}

#[test]
fn who_is_told_to_end_leaves_the_work_to_another() {
    let place = Place::new();
    let (began, args) = (place.path("began"), ["once", "schema", "--key", "v1", "--ttl", "3s"]);
    let hangs = format!("echo $$ > {began}; sleep 60");
    let mut one = place.spawn(&[&args[..], &["--", "sh", "-c", &hangs]].concat());
    eventually("its start", || fs::metadata(&began).ok());
    let mut two =
        place.spawn(&[&args[..], &["--", "sh", "-c", "exit $((TENURE_ATTEMPT - 2))"]].concat());
    one.signal(Signal::TERM);
    assert_eq!(one.code(), 128 + 15);
    assert_eq!(two.code(), 0, "it is the second try");
}

#[test]
fn kill_9_of_the_instance_leaves_the_work_to_another() {
    let place = Place::new();
    let (began, args) = (place.path("began"), ["once", "schema", "--key", "v1", "--ttl", "3s"]);
    // A lock that ends with the last process that has it.
    let alone = format!("exec 9> {}; flock -n 9 || exit 9;", place.path("lock"));
    let hangs = format!("{alone} echo > {began}; sleep 60");
    let mut one = place.spawn(&[&args[..], &["--", "sh", "-c", &hangs]].concat());
    eventually("its start", || fs::metadata(&began).ok());
    one.signal(Signal::KILL);
    assert_eq!(one.code(), 128 + 9);
    let second = format!("{alone} exit $((TENURE_ATTEMPT - 2))");
    let done = place.run(&[&args[..], &["--", "sh", "-c", &second]].concat());
    assert_eq!(done.code, 0, "the second try, and the first is gone: {done:?}");
}

#[test]
fn who_does_not_wait_is_told_where_it_stands() {
    let place = Place::new();
    let done = place.run(&["once", "job", "--key", "done", "--ttl", "3s", "--", "true"]);
    assert_eq!(done.code, 0, "{done:?}");
    let began = place.path("began");
    let script = format!("touch {began}; sleep 60");
    let mut leader = place.spawn(&["run", "job", "--ttl", "3s", "--", "sh", "-c", &script]);
    eventually("a leader", || fs::metadata(&began).ok());
    for wait in [&["--no-wait"][..], &["--wait", "200ms"]] {
        let run = [&["run", "job", "--ttl", "3s"], wait, &["--", "touch", "never"]].concat();
        let done = place.run(&run);
        assert_eq!(done.code, 75, "{done:?}");
        assert!(done.err.contains("another instance leads job"), "{done:?}");
        let once = [&["once", "job", "-k", "new", "--ttl", "3s"], wait, &["--", "true"]].concat();
        let done = place.run(&once);
        assert_eq!(done.code, 75, "{done:?}");
        let once = [&["once", "job", "-k", "done", "--ttl", "3s"], wait, &["--", "true"]].concat();
        let done = place.run(&once);
        assert_eq!(done.code, 0, "{done:?}");
    }
    leader.signal(Signal::TERM);
    leader.code();
    let done = place.run(&["run", "job", "--no-wait", "--ttl", "3s", "--", "true"]);
    assert_eq!(done.code, 0, "nobody leads any more: {done:?}");
    let done = place.run(&["once", "job", "-k", "new", "--no-wait", "--ttl", "3s", "--", "true"]);
    assert_eq!(done.code, 0, "nobody leads any more: {done:?}");
}

#[test]
fn a_store_that_does_not_answer_is_no_other_leader() {
    let place = Place::new();
    for args in [&["run", "x", "--no-wait"][..], &["once", "x", "--key", "v", "--no-wait"]] {
        let mut command = place.command(&[args, &["--", "true"]].concat());
        command.env("TENURE_STORE", "redis://127.0.0.1:9/0");
        let done = crate::support::finish(&mut command);
        assert_eq!(done.code, 69, "{done:?}");
    }
}

/// It says so at each of its campaigns, which is every few seconds.
#[needs(redis)]
#[test]
fn needs_redis_who_waits_for_a_server_to_settle_says_so_once() {
    let (place, server) = (Place::new(), crate::servers::redis());
    let args = ["once", "schema", "--key", "v1", "--ttl", "3s", "--", "true"];
    let mut command = place.command(&args);
    let done = finish(command.env("TENURE_STORE", format!("{}?settle=9s", server.url())));
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.err.matches("nobody can be elected").count(), 1, "{done:?}");
}
