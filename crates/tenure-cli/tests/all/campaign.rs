//! I8 with `tenure campaign`: whoever acts on its `elected` says `done TERM` on stdin, or has the
//! drain; and stdin is never waited for.

use std::fs::File;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::common::now;
use crate::support::{Place, Process};

/// The drain of a ttl of 60 s: longer than anything that is waited for here.
const DRAIN: Duration = Duration::from_secs(10);

/// A candidate whose stdin is a pipe.
fn spawn(place: &Place, id: &str, more: &[&str]) -> Process {
    let args = [&["campaign", "job", "--id", id], more].concat();
    Process::new(place.command(&args).stdin(Stdio::piped()))
}

fn pair(place: &Place, more: &[&str]) -> (Process, Process) {
    let mut first = spawn(place, "a", more);
    first.event("elected");
    let mut second = spawn(place, "b", more);
    second.event("leader_changed");
    (first, second)
}

#[test]
fn a_line_on_stdin_hands_over_and_nothing_else_does_before_the_drain() {
    let place = Place::new();
    let (mut first, mut second) = pair(&place, &["--ttl", "60s", "--json"]);
    let began = now();
    first.signal(Signal::TERM);
    let draining = first.event("draining");
    assert_eq!((&draining["term"], &draining["left_ms"]), (&1.into(), &10_000.into()));
    for nonsense in ["", "done", "done x", "finished 1", "done 1 please"] {
        first.write(nonsense);
    }
    for line in 2..=5 {
        first.line(&format!("line {line} of the input means nothing here"));
    }
    first.write("done 2");
    first.line("term 2 is not held here");
    assert_eq!(place.status("job")["label"], "a", "the lease is still held");
    second.take_in();
    assert!(!second.seen().iter().any(|line| line.contains("elected")), "{:?}", second.seen());
    first.write("done 1");
    assert_eq!(second.event("elected")["term"], 2);
    assert!(now() - began < DRAIN, "the drain was not waited for");
    assert_eq!(first.code(), 0);
}

#[test]
fn the_end_of_the_input_is_not_done() {
    let place = Place::new();
    let (mut first, mut second) = pair(&place, &["--ttl", "3s", "--json"]);
    first.end_input();
    let began = now();
    first.signal(Signal::TERM);
    let elected = second.event("elected");
    let kept = elected["boot_ns"].as_u64().unwrap() - began.as_nanos();
    assert!(kept >= 500_000_000, "the drain was waited for: {kept} ns");
    assert_eq!(first.code(), 0, "an open read does not keep it from ending");
}

#[test]
fn people_are_told_for_how_long_the_lease_is_kept() {
    let place = Place::new();
    let mut first = spawn(&place, "a", &["--ttl", "60s"]);
    first.line("leading as term 1");
    let mut second = spawn(&place, "b", &["--ttl", "60s"]);
    second.line("following: a leads as term 1");
    let mut resign = place.spawn(&["resign", "job"]);
    first.line("until a line `done 1` on stdin, at most for 10s");
    first.write("done 1");
    second.line("leading as term 2");
    assert_eq!(resign.code(), 0);
    second.signal(Signal::TERM);
    second.line("until a line `done 2` on stdin");
    second.write("done 2");
    assert_eq!(second.code(), 0);
}

#[test]
fn done_before_the_end_and_at_once_hand_over_at_once() {
    for at_once in [true, false] {
        let place = Place::new();
        let more = ["--ttl", "60s", "--json", "--at-once"];
        let (mut first, mut second) = pair(&place, &more[..if at_once { 4 } else { 3 }]);
        if !at_once {
            first.write("done 1");
            // Lines are taken in order: when this one was, so was the one before.
            first.write("nonsense");
            first.line("line 2 of the input means nothing here");
        }
        let began = now();
        first.signal(Signal::TERM);
        second.event("elected");
        assert!(now() - began < DRAIN, "at once: {at_once}");
        assert_eq!(first.code(), 0);
    }
}

#[test]
fn it_works_without_any_input_to_wait_for() {
    for stdin in ["null", "closed", "terminal"] {
        let place = Place::new();
        let mut command = place.command(&["campaign", "job", "--ttl", "3s", "--json"]);
        let _terminal = match stdin {
            "null" => {
                command.stdin(Stdio::null());
                None
            }
            "closed" => {
                command.stdin(Stdio::piped());
                None
            }
            _ => {
                // Of another session: this process is never in its foreground.
                let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
                grantpt(&terminal).unwrap();
                unlockpt(&terminal).unwrap();
                let name = ptsname(&terminal, Vec::new()).unwrap();
                command.stdin(File::open(name.to_str().unwrap()).unwrap());
                Some(terminal)
            }
        };
        let mut process = Process::new(&mut command);
        if stdin == "closed" {
            process.end_input();
        }
        process.event("elected");
        process.signal(Signal::TERM);
        process.event("stepped_down");
        assert_eq!(process.code(), 0, "{stdin}");
    }
}
