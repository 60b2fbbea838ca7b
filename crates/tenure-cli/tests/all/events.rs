//! What people and programs are told: events and tables.

use std::fs::File;
use std::io::Read as _;
use std::process::Stdio;

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;

use crate::common;
use crate::support::{Place, Process, finish};

fn assert_whole(event: &Value) {
    for field in ["at", "boot_ns", "event", "election", "candidate", "term"] {
        assert!(event.get(field).is_some(), "{field} is missing in {event}");
    }
    let at = event["at"].as_str().unwrap();
    assert!(at.ends_with('Z') && at.contains('T'), "{at}");
    assert!(event["boot_ns"].as_u64().unwrap() > 0);
}

#[test]
fn events_are_objects_with_all_their_fields() {
    let place = Place::new();
    let mut leader = place.spawn(&["campaign", "job", "--id", "a", "--ttl", "3s", "--json"]);
    leader.event("elected");
    let metadata = r#"{"url": "http://b"}"#;
    let args = ["campaign", "job", "--id", "b", "--ttl", "3s", "--json", "--metadata", metadata];
    let mut follower = place.spawn(&args);
    let changed = follower.event("leader_changed");
    assert_eq!(changed["label"], "a");
    assert_eq!(changed["term"], 1);
    assert_eq!(place.run(&["resign", "job"]).code, 0);
    assert_eq!(leader.event("draining")["reason"], "asked");
    let over = leader.event("stepped_down");
    assert_eq!(over["reason"], "asked");
    let elected = follower.event("elected");
    assert_eq!(elected["term"], 2);
    assert!(
        elected["boot_ns"].as_u64() > over["boot_ns"].as_u64(),
        "stamped when they happened: {over} before {elected}"
    );
    let changed = leader.event("leader_changed");
    assert!(changed["label"] == "b" || changed["leader"].is_null(), "{changed}");
    for process in [&mut leader, &mut follower] {
        process.signal(Signal::TERM);
        assert_eq!(process.code(), 0);
        for line in process.seen() {
            assert_whole(&serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")));
        }
        assert!(process.seen()[0].contains("\"campaigning\""));
    }
}

#[test]
fn status_is_a_table_or_an_object_and_says_no_with_its_code() {
    let place = Place::new();
    let done = place.run(&["status"]);
    assert_eq!((done.code, done.out.as_str()), (0, ""));
    assert!(!std::path::Path::new(&place.path("tenure.db")).exists(), "asking creates nothing");
    assert_eq!(place.run(&["status", "job"]).code, 1);

    let args = ["campaign", "job", "--id", "web-1", "--metadata", r#"{"port": 7}"#];
    let mut leader = place.spawn(&args);
    leader.line("leading as term 1");
    let done = place.run(&["status", "job"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.out.starts_with("ELECTION  LEADER  TERM  SINCE"), "{done:?}");
    assert!(done.out.contains("web-1") && done.out.contains(r#"{"port": 7}"#), "{done:?}");
    let done = place.run(&["status", "job", "other", "job"]);
    assert_eq!(done.code, 1, "one of them has no leader");
    assert_eq!(done.out.lines().count(), 3, "each name once: {done:?}");
    let status = place.status("job");
    assert_whole(&status);
    assert_eq!(status["term"], 1);
    assert_eq!(status["label"], "web-1");
    assert_eq!(status["metadata"]["port"], 7);
    assert!(status["remaining_ms"].as_u64().unwrap() <= 30_000);

    let mut second = place.spawn(&["campaign", "z", "--id", "web-1"]);
    second.line("leading as term 1");
    let done = place.run(&["status"]);
    assert_eq!((done.code, done.out.lines().count()), (0, 3), "{done:?}");
}

#[test]
fn watch_tells_each_change_on_a_line() {
    let place = Place::new();
    let mut watch = place.spawn(&["watch", "job", "other"]);
    watch.line("job: nobody leads");
    watch.line("other: nobody leads");
    let mut leader = place.spawn(&["campaign", "job", "--id", "a", "--ttl", "3s"]);
    leader.line("leading");
    watch.line("job: a leads as term 1");
    leader.signal(Signal::TERM);
    assert_eq!(leader.code(), 0);
    watch.line("job: nobody leads");
    watch.signal(Signal::INT);
    assert_eq!(watch.code(), 0);

    let mut watch = place.spawn(&["watch", "job", "--json"]);
    assert_whole(&watch.event("leader_changed"));
}

#[test]
fn watch_draws_a_table_on_a_terminal_and_gives_the_cursor_back() {
    let place = Place::new();
    let mut leader = place.spawn(&["campaign", "job", "--id", "web-7"]);
    leader.line("leading");
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let side = || Stdio::from(File::options().read(true).write(true).open(&name).unwrap());
    let mut command = place.command(&["watch", "job"]);
    let mut watch = command.env("TERM", "xterm").stdout(side()).stderr(side()).spawn().unwrap();
    drop(command);
    let mut terminal = File::from(terminal);
    let mut seen = String::new();
    let mut read_until = |part: &str, count: usize| {
        let mut bytes = [0; 4096];
        while seen.matches(part).count() < count {
            match terminal.read(&mut bytes) {
                Ok(got) => seen.push_str(&String::from_utf8_lossy(&bytes[..got])),
                Err(_) => break,
            }
        }
        seen.clone()
    };
    // Drawn again in place.
    let drawn = read_until("REMAINING", 3);
    assert!(drawn.contains("web-7") && drawn.contains("\x1b[J"), "{drawn:?}");
    rustix::process::kill_process(rustix::process::Pid::from_child(&watch), Signal::INT).unwrap();
    let drawn = read_until("\x1b[?25h", 1);
    assert!(drawn.contains("\x1b[?25h"), "the cursor is back: {drawn:?}");
    assert_eq!(watch.wait().unwrap().code(), Some(0));
}

#[test]
fn resign_tells_who_leads_now() {
    let place = Place::new();
    let none = place.run(&["resign", "job"]);
    assert_eq!(none.code, 1);
    assert!(none.err.contains("nobody leads job"), "{none:?}");

    let mut a = place.spawn(&["campaign", "job", "--id", "a", "--ttl", "3s"]);
    a.line("leading as term 1");
    let mut b = place.spawn(&["campaign", "job", "--id", "b", "--ttl", "3s"]);
    b.line("following: a leads as term 1");
    let done = place.run(&["resign", "job"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.err.contains("term 1 of job is over; b leads as term 2"), "{done:?}");

    // A server that does not answer is waited for no longer than told.
    b.signal(Signal::STOP);
    let done = place.run(&["resign", "job", "--timeout", "100ms"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.err.contains("b leads as term 2 still, 100ms after"), "{done:?}");
    b.signal(Signal::CONT);
}

#[test]
fn a_store_that_does_not_answer_is_69_for_a_one_shot_command() {
    let place = Place::new();
    let mut leader = place.spawn(&["campaign", "job"]);
    leader.line("leading");
    let stuck = rusqlite::Connection::open(place.path("tenure.db")).unwrap();
    stuck.execute_batch("BEGIN IMMEDIATE").unwrap();
    let done = place.run(&["resign", "job"]);
    assert_eq!(done.code, 69, "{done:?}");
    assert!(done.err.contains("has been writing to"), "{done:?}");
}

#[test]
fn the_default_store_is_noted_once() {
    let place = Place::new();
    let state = place.path("state");
    let mut command = place.command(&["run", "job", "--", "true"]);
    let done = finish(command.env_remove("TENURE_STORE").env("XDG_STATE_HOME", &state));
    assert_eq!(done.code, 0, "{done:?}");
    // The tests may run in a container, and then that is what is said.
    let address = format!("sqlite:{state}/tenure/tenure.db");
    let notes = [
        format!("electing on this machine, this user only ({address}); use --store to elect "),
        format!(
            "electing inside this container only, unless others share its file ({address}); use \
             --store to elect "
        ),
    ];
    let count: usize = notes.iter().map(|note| done.err.matches(note).count()).sum();
    assert_eq!(count, 1, "{done:?}");
    let done = place.run(&["run", "job", "--", "true"]);
    assert!(!done.err.contains("electing"), "{done:?}");
}

#[test]
fn quiet_says_nothing_and_verbose_logs() {
    let place = Place::new();
    let done = place.run(&["run", "job", "-q", "--", "true"]);
    assert_eq!((done.code, done.err.as_str()), (0, ""));
    let done = place.run(&["run", "job", "-v", "--", "true"]);
    assert!(done.err.contains("INFO"), "{done:?}");
    let done = place.run(&["run", "job", "-vv", "--log-format", "json", "--", "true"]);
    for line in done.err.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert!(line["level"].is_string() && line["fields"]["message"].is_string(), "{line}");
    }
}

#[test]
fn colours_are_for_those_who_want_them() {
    let place = Place::new();
    let is_colored = |command: &mut std::process::Command| {
        let done = finish(command);
        (done.out + &done.err).contains('\x1b')
    };
    for args in [&["--help"][..], &["watch"], &["resign", ""]] {
        assert!(!is_colored(&mut place.command(args)), "no terminal, no colours: {args:?}");
        let always = [args, &["--color", "always"]].concat();
        assert!(is_colored(&mut place.command(&always)), "{args:?}");
        let never = [args, &["--color", "never"]].concat();
        assert!(!is_colored(&mut place.command(&never)), "{args:?}");
    }
    let mut command = place.command(&["resign", "", "-vvv"]);
    assert!(!is_colored(command.env("NO_COLOR", "1")));
}

#[test]
fn a_password_in_the_arguments_is_warned_about_and_one_in_the_environment_is_not() {
    let place = Place::new();
    let url = "postgres://user:hunter2@127.0.0.1:1/db";
    let done = place.run(&["--store", url, "status"]);
    assert_eq!(done.code, 69, "{done:?}");
    assert!(done.err.contains("use TENURE_STORE"), "{done:?}");
    let done = finish(place.command(&["status"]).env("TENURE_STORE", url));
    assert_eq!(done.code, 69, "{done:?}");
    assert!(!done.err.contains("use TENURE_STORE"), "{done:?}");
}

#[test]
fn the_flag_goes_over_the_environment() {
    let place = Place::new();
    let other = format!("sqlite:{}", place.path("other.db"));
    let mut command =
        place.command(&["run", "job", "--store", &other, "--id", "flag", "--", "sh", "-c"]);
    let script = "echo $TENURE_CANDIDATE $TENURE_STORE";
    let done = finish(command.arg(script).env("TENURE_ID", "env"));
    assert!(done.out.starts_with("flag#") && done.out.trim_end().ends_with(&other), "{done:?}");
    let mut command = place.command(&["run", "job", "--", "sh", "-c", script]);
    let done = finish(command.env("TENURE_ID", "env").env("TENURE_TTL", "9s"));
    assert!(done.out.starts_with("env#"), "{done:?}");
    let done = finish(command.env("TENURE_TTL", "9"));
    assert_eq!(done.code, 2, "{done:?}");
}

#[test]
fn scripts_and_manual_pages_are_made() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = place.run(&["completions", shell]);
        assert_eq!(done.code, 0);
        assert!(done.out.contains("campaign"), "{shell}");
        assert!(!done.out.contains("__guardian"), "hidden parts stay hidden");
    }
    let done = place.run(&["man"]);
    assert!(done.code == 0 && done.out.contains(".TH tenure 1"), "{done:?}");
    let dir = place.path("man/man1");
    assert_eq!(place.run(&["man", "--dir", &dir]).code, 0);
    let page = std::fs::read_to_string(format!("{dir}/tenure-run.1")).unwrap();
    assert!(page.contains("TENURE_TERM"), "{page}");
    let done = place.run(&["man", "--dir", "/proc/nowhere"]);
    assert_eq!(done.code, 125, "{done:?}");
}

#[test]
fn stdin_that_is_no_terminal_is_the_commands() {
    use std::io::Write as _;

    let place = Place::new();
    let mut command = place.command(&["run", "job", "--", "cat"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"through\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"through\n"[..], Some(0)));
}

#[test]
fn a_reader_that_went_away_costs_nobody_the_leadership() {
    let place = Place::new();
    let mut command = place.command(&["campaign", "job", "--ttl", "3s", "--json"]);
    let mut leader = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(leader.stdout.take());
    let mut watch = Process::new(&mut place.command(&["watch", "job", "--json"]));
    let seen = common::eventually("a leader", || {
        Some(watch.event("leader_changed")).filter(|event| !event["leader"].is_null())
    });
    assert_eq!(seen["term"], 1);
    rustix::process::kill_process(rustix::process::Pid::from_child(&leader), Signal::TERM).unwrap();
    assert_eq!(leader.wait().unwrap().code(), Some(0));
}

/// The writing end of a pipe that is full; the reading end is never read from.
fn stuck_pipe() -> (std::io::PipeReader, Stdio) {
    use std::io::Write as _;

    use rustix::fs::{OFlags, fcntl_setfl};

    let (reader, mut writer) = std::io::pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'x'; 4096]).is_ok() {}
    while writer.write(b"x").is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, Stdio::from(writer))
}

#[test]
fn a_terminal_that_was_stopped_costs_nobody_the_leadership() {
    let place = Place::new();
    let ((_keep_out, out), (_keep_err, err)) = (stuck_pipe(), stuck_pipe());
    let args = ["campaign", "job", "--ttl", "1s", "--json", "-vvv"];
    let mut leader = place.command(&args).stdout(out).stderr(err).spawn().unwrap();
    let first = common::eventually("a leader", || {
        Some(place.status("job")).filter(|status| !status["leader"].is_null())
    });
    // Three times as long as a lease lasts.
    let long_after = first["boot_ns"].as_u64().unwrap() + 3_000_000_000;
    let last = common::eventually("a later time", || {
        Some(place.status("job")).filter(|status| status["boot_ns"].as_u64() > Some(long_after))
    });
    assert_eq!((&last["term"], &last["leader"]), (&first["term"], &first["leader"]));
    rustix::process::kill_process(rustix::process::Pid::from_child(&leader), Signal::TERM).unwrap();
    assert_eq!(leader.wait().unwrap().code(), Some(0), "nor does it keep it from ending");
}
