//! A library process with a witness: killed, it is succeeded at once (D1, D3). And whatever happens
//! to its witness, nothing is given back while it lives.
//!
//! The process is this test binary, started again.

use std::fs::OpenOptions;
use std::io::{BufRead as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::event::{Timespec, poll};
use rustix::process::Signal;
use tenure::{Election, WitnessConfig};

use crate::common::{Watched, eventually, processes, tenure};
use crate::support::Process;
use crate::witness::{Ground, signal};

/// Longer than any test waits.
const TTL: Duration = Duration::from_secs(60);

const LABEL: &str = "LIBRARY_WITNESS_LABEL";

/// The process; without its variable, a test that does nothing.
#[test]
fn takes_part() {
    let Ok(label) = std::env::var(LABEL) else { return };
    let url = std::env::var("TENURE_STORE").unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let election = runtime.block_on(async {
        let witness = WitnessConfig::childless().program(tenure());
        Election::open("job", &url).label(label).ttl(TTL).witness(witness).build().unwrap()
    });
    let (watched, done) = (election.clone(), Arc::new(AtomicBool::new(false)));
    let is_done = done.clone();
    let watching = thread::spawn(move || {
        let mut known = false;
        for number in 1.. {
            while watched.is_witnessed() == known {
                if is_done.load(Ordering::Relaxed) {
                    return;
                }
                pause();
            }
            known = !known;
            say(&format!("@{} {number}", if known { "witnessed" } else { "alone" }));
        }
    });
    let reign = runtime.block_on(async {
        election.start().await.unwrap();
        if !election.is_leader() {
            say("@follows 1");
        }
        election.campaign().await.unwrap()
    });
    say(&format!("@leads {}", reign.term()));
    let stops = thread::spawn(|| {
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).unwrap() > 0
    });
    let notes = std::env::var("NOTES").unwrap();
    let mut notes = OpenOptions::new().append(true).create(true).open(notes).unwrap();
    while reign.is_current() && !stops.is_finished() {
        writeln!(notes, "{}", reign.term()).unwrap();
        pause();
    }
    drop(reign);
    runtime.block_on(election.stop()).unwrap();
    done.store(true, Ordering::Relaxed);
    watching.join().unwrap();
    drop(election);
    say("@stopped 1");
    // It stays, so that its witness has no death to see.
    eventually::<()>("the end", || None);
}

fn say(line: &str) {
    println!("\n{line}");
}

fn pause() {
    let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 5_000_000 }));
}

fn start(ground: &Ground, label: &str) -> Process {
    let mut member = Command::new(std::env::current_exe().unwrap());
    member.args(["--exact", "library_witness::takes_part", "--nocapture"]);
    member.env(LABEL, label).env("TENURE_STORE", &ground.url);
    member.env("NOTES", ground.place.path("notes")).stdin(Stdio::piped());
    Process::new(&mut member)
}

/// One that leads and is witnessed, and one that follows.
fn two(ground: &Ground) -> (Process, u64, Process) {
    let mut leader = start(ground, "a");
    leader.number("@witnessed");
    let term = term(&mut leader);
    let mut next = start(ground, "b");
    next.number("@follows");
    (leader, term, next)
}

fn term(leader: &mut Process) -> u64 {
    let line = leader.line("@leads ");
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn witness_of(member: &Process) -> Watched {
    let own = |stat: &crate::common::Stat| stat.parent == member.pid() && stat.state != "Z";
    eventually("a witness", || Some(Watched::new(processes().into_iter().find(own)?.pid)))
}

fn a_killed_process_is_succeeded_at_once(ground: &Ground) {
    let (leader, old, mut next) = two(ground);
    leader.signal(Signal::KILL);
    let new = term(&mut next);
    assert!(new > old, "{new} after {old}");
    ground.works_after(old);
    assert_eq!(ground.overlaps(), 0);
}

#[test]
fn a_killed_process_is_succeeded_at_once_on_sqlite() {
    a_killed_process_is_succeeded_at_once(&Ground::sqlite());
}

#[needs(redis)]
#[test]
fn needs_redis_a_killed_process_is_succeeded_at_once() {
    a_killed_process_is_succeeded_at_once(&Ground::redis());
}

#[needs(postgres)]
#[test]
fn needs_postgres_a_killed_process_is_succeeded_at_once() {
    a_killed_process_is_succeeded_at_once(&Ground::postgres());
}

#[test]
fn a_witness_that_was_killed_is_started_again() {
    let ground = Ground::sqlite();
    let (mut leader, old, mut next) = two(&ground);
    signal(&witness_of(&leader), Signal::KILL);
    leader.number("@alone");
    leader.number("@witnessed");
    leader.signal(Signal::KILL);
    assert!(term(&mut next) > old);
    assert_eq!(ground.overlaps(), 0);
}

/// A process that stands still is not dead, and neither is one whose witness does.
#[test]
fn nothing_is_given_back_for_a_process_that_lives() {
    let ground = Ground::sqlite();
    let (leader, old, mut next) = two(&ground);
    let (elector, witness) = (Watched::new(leader.pid()), witness_of(&leader));
    leader.signal(Signal::STOP);
    signal(&witness, Signal::TERM);
    signal(&witness, Signal::INT);
    let is_led = || ground.status()["term"].as_u64() == Some(old);
    assert!(is_led() && witness.is_alive(), "a frozen process lost its lease");
    signal(&witness, Signal::STOP);
    leader.signal(Signal::KILL);
    elector.ends();
    assert!(is_led(), "a frozen witness gave a lease back");
    signal(&witness, Signal::CONT);
    assert!(term(&mut next) > old);
    witness.ends();
    assert_eq!(ground.overlaps(), 0);
}

#[test]
fn a_witness_ends_with_the_last_election() {
    let ground = Ground::sqlite();
    let mut leader = start(&ground, "a");
    leader.number("@witnessed");
    term(&mut leader);
    let witness = witness_of(&leader);
    leader.write("stop");
    leader.number("@stopped");
    witness.ends();
    assert!(Watched::new(leader.pid()).is_alive());
}

/// Its arguments and its environment are no place for a URL with a password.
#[test]
fn a_witness_has_no_url_in_its_arguments() {
    let ground = Ground::sqlite();
    let mut leader = start(&ground, "a");
    leader.number("@witnessed");
    let witness = witness_of(&leader);
    let arguments = std::fs::read(format!("/proc/{}/cmdline", witness.pid)).unwrap();
    let arguments = String::from_utf8(arguments).unwrap();
    assert!(arguments.ends_with("__witness\0") && !arguments.contains("sqlite"), "{arguments:?}");
    leader.signal(Signal::KILL);
    witness.ends();
}
