//! What goes in and out of the command: lines, JSON, and readers that go away.

use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use crate::common::{LIMIT, Watched};
use crate::support::{Done, Place, Process, finish};

#[test]
fn a_full_disk_under_stdout_is_a_failure() {
    let place = Place::new();
    place.run(&["run", "job", "--", "true"]);
    for args in [&["status", "--json"][..], &["status"], &["doctor", "--json"], &["--help"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut child =
            place.command(args).stdout(full).stderr(Stdio::piped()).spawn().expect("it starts");
        let err = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
        let code = child.wait().unwrap().code();
        assert_eq!(code, Some(125), "{args:?}: {err}");
        assert!(err.contains("stdout can't be written to"), "{args:?}: {err}");
    }
}

#[test]
fn a_watch_ends_when_its_reader_has_gone_away() {
    let place = Place::new();
    let mut leader = place.spawn(&["campaign", "job"]);
    leader.line("leading");
    let mut watch =
        place.command(&["watch", "job", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    let mut reader = BufReader::new(watch.stdout.take().unwrap());
    reader.read_line(&mut first).unwrap();
    assert!(first.contains("\"event\":"), "{first}");
    // Nothing happens in the election from here on.
    drop(reader);
    let ended = Watched::new(watch.id()).ends_within(LIMIT);
    watch.kill().unwrap();
    let status = watch.wait().unwrap();
    assert!(ended, "it goes on without a reader");
    assert_eq!(status.code(), Some(141), "as a program that SIGPIPE has ended");
}

#[test]
fn a_line_that_is_posted_does_not_wait_for_499_others() {
    let place = Place::new();
    let mut command = place.command(&["post", "shop", "orders", "--lines", "--json"]);
    let mut post = Process::new(command.stdin(Stdio::piped()));
    post.write("{\"number\":1}");
    assert_eq!(post.event("posted")["id"], 1);
    post.write("{\"number\":2}");
    post.write("");
    post.write("{\"number\":3}");
    assert_eq!(post.event("posted")["id"], 2);
    assert_eq!(post.event("posted")["id"], 3);
    post.write("nonsense");
    post.line("line 5: ");
    assert_eq!(post.code(), 2);
}

/// The fields that each line of `--json` begins with, in this order.
const ENVELOPE: [&str; 6] = ["at", "boot_ns", "event", "election", "candidate", "term"];

#[test]
fn every_command_writes_the_same_envelope() {
    let place = Place::new();
    place.run(&["run", "job", "--", "true"]);
    place.run(&["post", "job", "orders"]);
    let cron = ["cron", "next", "@daily", "--count", "1"];
    for args in [
        &["status", "job"][..],
        &["doctor", "--samples", "3"],
        &["--store", "sqlite:/nowhere/x.db", "doctor"],
        &["notify", "job", "refresh"],
        &["post", "job", "orders"],
        &["resign", "job"],
        &["once", "job", "--key", "k", "--", "true"],
        &["migrate", "--terms-above", "7", "job"],
        &cron,
    ] {
        let mut command = place.command(args);
        let done = finish(command.env("TENURE_JSON", "1"));
        assert!(!done.out.is_empty(), "{args:?}: {done:?}");
        for line in done.out.lines() {
            assert_envelope(line, &done);
        }
    }
    let mut listener = place.spawn(&["listen", "job", "orders"]);
    assert_envelope(
        &listener.line("\"event\":\"message\""),
        &Done { code: 0, out: String::new(), err: String::new() },
    );
}

#[track_caller]
fn assert_envelope(line: &str, done: &Done) {
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {done:?}"));
    let at = |field: &&str| line.find(&format!("\"{field}\":"));
    let places: Vec<Option<usize>> = ENVELOPE.iter().map(at).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{line}");
    assert!(ENVELOPE.iter().all(|field| object.contains_key(*field)), "{line}");
}

#[test]
fn a_letter_is_found_by_its_number_however_many_come_before_it() {
    let place = Place::new();
    let lines: String = (0..1005).map(|number| format!("{number}\n")).collect();
    fs::write(place.path("lines"), lines).unwrap();
    let mut post = place.command(&["post", "shop", "orders", "--lines"]);
    assert_eq!(finish(post.stdin(File::open(place.path("lines")).unwrap())).code, 0);
    let file = rusqlite::Connection::open(place.path("tenure.db")).unwrap();
    let buried = file.execute("UPDATE message SET state = 2, ended_unix_ms = 1", ()).unwrap();
    assert_eq!(buried, 1005);
    let done = place.run(&["dead-letters", "shop", "1004", "--json"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.out.contains("\"id\":1004,"), "{done:?}");
    let done = place.run(&["dead-letters", "shop", "1004", "4711", "--discard"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.err.contains("no dead letter 4711"), "{done:?}");
}

#[test]
fn the_mistake_that_is_named_is_the_one_that_was_made() {
    let place = Place::new();
    for (args, says) in [
        (&["status", "run", "--bogus"][..], "unexpected argument '--bogus'"),
        (&["run", "job", "--bogus", "x"], "unexpected argument '--bogus'"),
        (&["watch", "run", "once", "--store"], "--store"),
        (&["run", "job", "echo", "hello"], "a -- is missing"),
        (&["-q", "--color", "never", "run", "job", "echo"], "a -- is missing"),
        (&["once", "job", "--key", "k", "echo"], "a -- is missing"),
        (&["run", "job", "--ttl", "3s"], "a -- is missing"),
    ] {
        let done = place.run(args);
        assert_eq!(done.code, 2, "{args:?}: {done:?}");
        assert!(done.err.contains(says), "{args:?}: {done:?}");
    }
}

#[test]
fn a_file_of_jobs_that_others_may_write_is_refused() {
    let place = Place::new();
    let path = place.path("jobs.toml");
    fs::write(&path, "[[job]]\nname = \"a\"\nschedule = \"@daily\"\ncommand = \"true\"\n").unwrap();
    let next = || place.run(&["cron", "next", "--file", &path]);
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    assert_eq!(next().code, 0, "{:?}", next());
    fs::set_permissions(&path, Permissions::from_mode(0o646)).unwrap();
    let done = next();
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.err.contains("everybody may write to") && done.err.contains("chmod"), "{done:?}");
}

#[test]
fn letters_that_turn_the_line_around_are_shown_as_such() {
    let place = Place::new();
    let name = "pay\u{202e}roll";
    place.run(&["run", name, "--", "true"]);
    let done = place.run(&["status"]);
    assert!(done.out.contains("pay\\u{202e}roll"), "{done:?}");
    assert!(!done.out.contains('\u{202e}'), "{done:?}");
    let done = place.run(&["resign", name]);
    assert!(done.err.contains("pay\\u{202e}roll"), "{done:?}");
}
