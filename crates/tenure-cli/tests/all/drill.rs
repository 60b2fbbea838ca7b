//! `tenure drill` on SQLite: it passes on a sound binary, leaves nothing behind however it ends,
//! and fails on one that is wrong on purpose.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::common::{eventually, processes};
use crate::support::{self, Done, Place, finish, sabotaged_binary};

/// The store of the drill, with an election in it that is nobody's business.
fn place_with_a_leader_of_its_own() -> (Place, support::Process) {
    let place = Place::new();
    let mut other = place.spawn(&["campaign", "not-the-drills", "--json"]);
    other.event("elected");
    (place, other)
}

fn elections(place: &Place) -> Vec<String> {
    let done = place.run(&["status", "--json"]);
    let name = |line: &str| {
        let json: Value = serde_json::from_str(line).unwrap();
        json["election"].as_str().unwrap().to_owned()
    };
    done.out.lines().map(name).collect()
}

/// Whose parent is this process.
fn children(parent: u32) -> Vec<u32> {
    let own = processes().into_iter().filter(|process| process.parent == parent);
    own.map(|process| process.pid).collect()
}

fn object(done: &Done) -> Value {
    serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done:?}"))
}

#[track_caller]
fn assert_passed(done: &Done, rounds: u64) -> Value {
    let json = object(done);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(json["event"], "drill");
    assert_eq!((&json["passed"], &json["overlaps"]), (&true.into(), &0.into()), "{json:#}");
    assert_eq!(json["rounds"], rounds);
    assert!(json["terms"].as_u64().unwrap() > rounds, "each fault has its successor");
    json
}

#[test]
fn a_short_drill_passes_and_leaves_the_store_as_it_was() {
    let (place, mut other) = place_with_a_leader_of_its_own();
    let report = place.path("report");
    let flags = ["--candidates", "3", "--rounds", "12", "--ttl", "1s", "--seed", "7"];
    let mut command = place.command(&["drill", "--json", "--report", &report]);
    let json = assert_passed(&finish(command.args(flags)), 12);
    for fault in json["faults"].as_array().unwrap() {
        assert_eq!(fault["rounds"], 3, "{fault}");
        let (p50, max) = (fault["gap_p50_ms"].as_f64(), fault["gap_max_ms"].as_f64());
        assert!(p50.unwrap() > 0.0 && p50 <= max, "{fault}");
    }
    let stopped = json["stale_writes_stopped"].as_u64().unwrap();
    assert!(stopped >= 3, "whoever was frozen tries to write when it goes on");
    assert_eq!(elections(&place), ["not-the-drills"]);
    other.signal(Signal::TERM);
    assert_eq!(other.code(), 0);

    let read = |name: &str| std::fs::read_to_string(Path::new(&report).join(name)).unwrap();
    let is_fault = |line: &&str| line.contains("\"event\":\"fault\"");
    let faults = read("history.jsonl").lines().filter(is_fault).count();
    assert_eq!(faults, 12);
    assert!(read("timeline.svg").starts_with("<svg "));
    assert!(read("report.html").contains("Passed: 12 faults"));
}

#[test]
fn people_get_a_table_and_a_sentence() {
    let place = Place::new();
    let flags = ["drill", "--candidates", "2", "--rounds", "2", "--faults", "kill,resign"];
    let done = place.run(&flags);
    assert_eq!(done.code, 0, "{done:?}");
    let lines: Vec<&str> = done.out.lines().collect();
    assert!(lines[0].starts_with("FAULT"), "{done:?}");
    assert!(lines[1].starts_with("kill") && lines[2].starts_with("resign"), "{done:?}");
    assert!(lines[3].starts_with("passed: 2 faults, never two leaders at once"), "{done:?}");
    assert!(done.err.contains("seed "), "{done:?}");
}

#[test]
fn what_the_store_can_not_have_is_refused_with_a_sentence() {
    let place = Place::new();
    for (fault, says) in [("cut", "network"), ("delay", "network"), ("restart", "server")] {
        let done = place.run(&["drill", "--faults", &format!("kill,{fault}")]);
        assert_eq!(done.code, 2, "{done:?}");
        let sentence = format!("the fault {fault} needs a {says}");
        assert!(done.err.contains(&sentence), "{done:?}");
        assert!(done.err.contains("possible are kill, die, freeze, resign, clock"), "{done:?}");
    }
}

#[test]
fn after_ctrl_c_nothing_is_left_and_what_was_seen_is_told() {
    let (place, _other) = place_with_a_leader_of_its_own();
    // In the middle of a freeze, too: its lease is one that nobody gives back.
    for (faults, rounds) in [("kill", 2), ("freeze", 1)] {
        let flags = ["drill", "--rounds", "500", "--ttl", "3s", "--faults", faults];
        let mut drill = place.spawn(&flags);
        for _ in 0..rounds {
            drill.line("round ");
        }
        let candidates = eventually("a frozen candidate, or all of them", || {
            let own = children(drill.pid());
            let is_frozen = |pid: &u32| {
                processes().iter().any(|process| process.pid == *pid && process.state == "T")
            };
            (own.len() == 5 && (faults == "kill" || own.iter().any(is_frozen))).then_some(own)
        });
        drill.signal(Signal::INT);
        assert_eq!(drill.code(), 130, "{:#?}", drill.seen());
        let told = |part: &str| drill.seen().iter().any(|line| line.contains(part));
        assert!(told("interrupted: ") && !told("passed"), "{:#?}", drill.seen());
        assert_gone(&candidates);
        assert_eq!(elections(&place), ["not-the-drills"]);
    }
}

/// A terminal sends its Ctrl-C to everybody in the group. Candidates that ended by it would look
/// like ones that ended by themselves, which fails a drill.
#[test]
fn a_signal_to_the_whole_group_is_for_the_drill_alone() {
    let place = Place::new();
    let mut command = place.command(&["drill", "--rounds", "500", "--faults", "kill"]);
    let mut drill = support::Process::new(command.process_group(0));
    drill.line("round 1");
    let candidates = eventually("five candidates", || {
        let own = children(drill.pid());
        (own.len() == 5).then_some(own)
    });
    let in_group = |pid: &u32| {
        processes().iter().any(|process| process.pid == *pid && process.group == drill.pid())
    };
    assert_eq!(candidates.iter().filter(|pid| in_group(pid)).count(), 0);
    kill_process_group(Pid::from_raw(drill.pid() as i32).unwrap(), Signal::INT).unwrap();
    assert_eq!(drill.code(), 130, "{:#?}", drill.seen());
    assert_gone(&candidates);
}

#[test]
fn a_drill_in_which_nothing_happened_does_not_pass() {
    let place = Place::new();
    let done = place.run(&["drill", "--candidates", "2", "--for", "1ms"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.out.contains("no fault happened"), "{done:?}");
    assert!(!done.out.contains("passed"), "{done:?}");
}

#[test]
fn a_report_that_can_not_be_written_is_told_before_anything_is_done() {
    let place = Place::new();
    let done = place.run(&["drill", "--rounds", "1", "--report", "/proc/no-such-directory"]);
    assert_ne!(done.code, 0, "{done:?}");
    assert!(done.err.contains("can't write the report into /proc"), "{done:?}");
    assert!(!done.err.contains("in the election"), "{done:?}");
    assert_eq!(files(&place), [""; 0]);
}

#[test]
fn a_file_that_the_drill_has_made_is_gone_with_it() {
    let place = Place::new();
    let done = place.run(&["drill", "--candidates", "2", "--rounds", "1", "--faults", "resign"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(files(&place), [""; 0]);
}

/// Whatever is in the directory of the store.
fn files(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.dir.path()).unwrap().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn candidates_do_not_outlive_a_drill_that_is_killed() {
    let place = Place::new();
    let mut command = place.command(&["drill", "--faults", "freeze", "--rounds", "500"]);
    // Nobody is left to remove its directory.
    let drill = support::Process::new(command.env("TMPDIR", place.path("")));
    let candidates = eventually("five candidates", || {
        let own = children(drill.pid());
        (own.len() == 5).then_some(own)
    });
    drill.signal(Signal::KILL);
    assert_gone(&candidates);
}

#[track_caller]
fn assert_gone(pids: &[u32]) {
    eventually("the end of all candidates", || {
        let left = processes().into_iter().find(|p| pids.contains(&p.pid) && p.state != "Z");
        left.is_none().then_some(())
    });
}

#[needs(faketime)]
#[test]
fn needs_faketime_steps_of_the_wall_clock_change_nothing() {
    let place = Place::new();
    let flags = ["--faults", "clock", "--rounds", "4", "--ttl", "1s", "--candidates", "3"];
    let done = finish(place.command(&["drill", "--json"]).args(flags));
    let json = object(&done);
    assert_eq!((done.code, &json["passed"]), (0, &true.into()), "{json:#}");
    assert_eq!((&json["terms"], &json["unplanned_changes"]), (&1.into(), &0.into()), "{json:#}");
    assert_eq!(json["faults"][0]["rounds"], 4);
}

#[test]
fn fifty_six_mixed_faults_pass() {
    let place = Place::new();
    let flags = ["drill", "--json", "--rounds", "56", "--seed", "1", "--ttl", "600ms"];
    let json = assert_passed(&place.run(&flags), 56);
    for fault in json["faults"].as_array().unwrap() {
        assert_eq!((&fault["rounds"], &fault["overlaps"]), (&14.into(), &0.into()), "{fault}");
    }
    assert!(json["stale_writes_stopped"].as_u64().unwrap() >= 14, "{json:#}");
    assert_eq!(elections(&place), [""; 0]);
}

/// `docs/proof-faults.md` has the table that this test fills.
#[needs(long)]
#[test]
fn long_a_drill_of_a_sabotaged_binary_fails() {
    let binary = sabotaged_binary();
    let judged = |sabotage: Option<&str>, faults: &str| {
        let place = Place::new();
        let mut command = Command::new(&binary);
        command.args(["drill", "--json", "--rounds", "12", "--ttl", "1s", "--candidates", "3"]);
        command.args(["--faults", faults, "--store", &place.url()]);
        command.env_remove("TENURE_SABOTAGE");
        command.envs(sabotage.map(|name| ("TENURE_SABOTAGE", name)));
        let done = finish(&mut command);
        let json = object(&done);
        let violations = json["violations"].as_array().unwrap().clone();
        (done.code, violations.iter().map(|v| v.as_str().unwrap().to_owned()).collect::<Vec<_>>())
    };
    // The control: without a wish for sabotage the same binary passes.
    assert_eq!(judged(None, "kill,freeze,resign"), (0, vec![]));
    for (sabotage, promise) in [
        ("hint-believed", "I1"),
        ("release-before-drain", "I1"),
        ("grants-held", "I1"),
        ("forgets-terms", "a successor after a"),
        ("grants-nothing", "a leader that works did not come"),
    ] {
        let (code, violations) = judged(Some(sabotage), "kill,freeze,resign");
        assert_eq!(code, 1, "{sabotage}: {violations:#?}");
        let is_seen = violations.iter().any(|violation| violation.starts_with(promise));
        assert!(is_seen, "{sabotage}: {violations:#?}");
    }
}
