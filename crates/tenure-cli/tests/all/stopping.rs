//! How tenure and its command are told to stop, and what systemd is told of it.

use std::fs::{self, File};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{LIMIT, Watched, eventually};
use crate::support::{Place, Process};

/// What came on the socket, within a generous limit.
fn told(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 1024];
    let count = socket.recv(&mut bytes).expect("systemd is told something");
    String::from_utf8(bytes[..count].to_vec()).unwrap()
}

#[test]
fn systemd_is_told_when_a_candidate_takes_part_and_when_it_stops() {
    let jobs = "[[job]]\nname = \"a\"\nschedule = \"@daily\"\ncommand = \"true\"\n";
    let place = Place::new();
    fs::write(place.path("jobs.toml"), jobs).unwrap();
    let file = place.path("jobs.toml");
    for (args, code) in [
        (&["run", "job", "--", "sleep", "99"][..], 143),
        (&["cron", "--file", &file], 0),
        (&["listen", "job", "orders"], 0),
        (&["campaign", "job"], 0),
    ] {
        let place = Place::new();
        let path = place.path("notify.sock");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let mut command = place.command(args);
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
        let mut process = Process::new(&mut command);
        assert!(told(&socket).starts_with("READY=1"), "{args:?}");
        assert_eq!(told(&socket), "WATCHDOG=1", "{args:?}");
        process.signal(Signal::TERM);
        eventually("it says that it stops", || {
            told(&socket).starts_with("STOPPING=1").then_some(())
        });
        assert_eq!(process.code(), code, "{args:?}");
    }
}

/// The kernel keeps signals from process 1 that it does not handle.
#[needs(root)]
#[test]
fn needs_root_process_1_ends_by_a_signal_while_the_store_is_opened() {
    for args in [
        &["run", "job", "--", "true"][..],
        &["once", "job", "--key", "k", "--", "true"],
        &["cron", "a", "@daily", "--", "true"],
        &["listen", "job", "orders"],
        &["campaign", "job"],
        &["serve", "-e", "job", "--listen", "127.0.0.1:0"],
    ] {
        let place = Place::new();
        let state = place.path("state");
        let hints = place.path("state/tenure/tenure.db-hints");
        fs::create_dir_all(&hints).unwrap();
        // Somebody is stuck while opening it.
        let gate = File::open(&hints).unwrap();
        flock(&gate, FlockOperation::LockExclusive).unwrap();
        let inside = place.command(args);
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(inside.get_program());
        command.args(inside.get_args()).env_remove("TENURE_STORE").env("XDG_STATE_HOME", &state);
        let mut process = Process::new(&mut command);
        process.line("electing");
        let path = format!("/proc/{0}/task/{0}/children", process.pid());
        let first: i32 = fs::read_to_string(path).unwrap().trim().parse().unwrap();
        let first = Pid::from_raw(first).unwrap();
        let ended = Watched::new(first.as_raw_pid() as u32);
        kill_process(first, Signal::TERM).unwrap();
        // Less than it waits for whoever opens the store.
        assert!(ended.ends_within(Duration::from_secs(6)), "{args:?}");
        let code = process.code();
        assert!([0, 143].contains(&code), "{args:?}: {code}");
    }
}

#[test]
fn a_candidate_is_not_suspended_and_its_command_neither() {
    let place = Place::new();
    let script = "echo @main $$; sleep 99 & wait";
    let mut leader = place.spawn(&["run", "job", "--ttl", "3s", "--", "sh", "-c", script]);
    leader.line("@main");
    leader.signal(Signal::TSTP);
    leader.line("not suspended");
    leader.signal(Signal::TERM);
    assert_eq!(leader.code(), 143);
}

#[test]
fn a_command_is_stopped_by_the_signal_that_was_chosen() {
    let place = Place::new();
    let script = "trap 'echo got-int; exit 3' INT; trap 'echo got-term; exit 4' TERM; echo @main; \
                  while :; do sleep 0.1; done";
    let mut args = vec!["run", "job", "--ttl", "3s", "--stop-signal", "INT", "--", "sh", "-c"];
    args.push(script);
    let mut leader = place.spawn(&args);
    leader.line("@main");
    leader.signal(Signal::TERM);
    leader.line("got-int");
    assert_eq!(leader.code(), 3);
    let done = place.run(&["run", "job", "--stop-signal", "KILLL", "--", "true"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.err.contains("--stop-signal") && done.err.contains("TERM"), "{done:?}");
}

#[test]
fn only_the_main_process_is_told_if_that_was_chosen() {
    // The child would end by TERM; its parent ends it in its own way, and is not interrupted.
    let script = "trap 'kill -USR1 $child; wait $child; echo main-ends; exit 5' TERM; \
                  sh -c 'trap \"echo child-told\" TERM; trap \"echo child-ends; exit\" USR1; \
                  echo @child; while :; do sleep 0.05; done' & child=$!; \
                  echo @main; while :; do wait; done";
    let place = Place::new();
    let args = ["run", "job", "--ttl", "6s", "--stop-main-only", "--", "sh", "-c", script];
    let mut leader = place.spawn(&args);
    eventually("both are ready", || {
        leader.take_in();
        let said = |word: &str| leader.seen().iter().any(|line| line == word);
        (said("@main") && said("@child")).then_some(())
    });
    leader.signal(Signal::TERM);
    assert_eq!(leader.code(), 5, "{:#?}", leader.seen());
    leader.line("child-ends");
    assert!(leader.seen().iter().all(|line| line != "child-told"), "{:#?}", leader.seen());
}
