//! Two fleets, one calling the three SQL functions and one of `tenure` processes, with kills: one
//! of them believes that it leads at any instant, and terms only rise.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tenure_core::Time;

use super::database::{Database, Psql};
use crate::common::{LIMIT, now};
use crate::support::Process;

/// How many elections are contested at once, and how often each changes hands.
const LANES: u64 = 4;
const HAND_OVERS: u64 = 25;

/// The lease of both fleets: the functions count in whole seconds.
const TTL: Duration = Duration::from_secs(2);

/// Somebody who led, from when to when it could believe so.
#[derive(Debug)]
struct SeenReign {
    who: &'static str,
    term: u64,
    from: Time,
    until: Time,
}

/// Who leads at present.
enum Leader {
    Ours(Process),
    Theirs { psql: Psql, id: String, beat: Time },
}

#[needs(postgres)]
#[test]
fn needs_postgres_a_mixed_fleet_with_kills_has_one_leader_at_a_time() {
    let database = Database::empty();
    assert_eq!(database.run(&["migrate"]).code, 0);
    let database = Arc::new(database);
    let lanes: Vec<_> = (0..LANES)
        .map(|lane| {
            let database = database.clone();
            thread::spawn(move || contest(&database, lane))
        })
        .collect();
    for lane in lanes {
        let reigns = lane.join().unwrap();
        assert_eq!(reigns.len() as u64, HAND_OVERS);
        for pair in reigns.windows(2) {
            assert!(pair[0].term < pair[1].term, "terms only rise: {pair:?}");
            assert!(pair[0].until <= pair[1].from, "two at once: {pair:?}");
        }
        for fleet in ["ours", "theirs"] {
            assert!(reigns.iter().filter(|reign| reign.who == fleet).count() > 5, "{reigns:?}");
        }
    }
}

fn contest(database: &Database, lane: u64) -> Vec<SeenReign> {
    let election = format!("lane {lane}");
    let mut random = fastrand::Rng::with_seed(lane);
    let mut reigns = Vec::new();
    let mut before: Option<(Leader, u64, Time)> = None;
    for number in 0..=HAND_OVERS {
        // The next one is there and waits before the last one goes.
        let theirs = random.bool();
        let next = if theirs { None } else { Some(ours(database, &election, number)) };
        let mut psql = database.psql();
        let id = format!("theirs-{number}");
        if let Some((leader, _, _)) = &mut before {
            beat(leader, &election);
        }
        if let Some((leader, term, from)) = before.take() {
            let (who, until) = end(leader, term, &election, random.bool());
            reigns.push(SeenReign { who, term, from, until });
        }
        before = Some(match next {
            Some(process) => elected(process),
            None => taken(psql_takes(&mut psql, &election, &id), psql, &election, id),
        });
    }
    reigns
}

fn ours(database: &Database, election: &str, number: u64) -> Process {
    let (id, ttl) = (format!("ours-{number}"), format!("{}s", TTL.as_secs()));
    // Nobody works for it, so nobody is waited for at its end.
    let args = ["campaign", election, "--json", "--id", &id, "--ttl", &ttl, "--at-once"];
    let mut process = database.spawn(&args);
    process.event("campaigning");
    process
}

fn elected(mut process: Process) -> (Leader, u64, Time) {
    let elected = process.event("elected");
    let from = Time::from_nanos(elected["boot_ns"].as_u64().unwrap());
    (Leader::Ours(process), elected["term"].as_u64().unwrap(), from)
}

/// Asks until it leads; when it asked for the last time.
fn psql_takes(psql: &mut Psql, election: &str, id: &str) -> Time {
    let take = format!("SELECT try_become_leader('{election}', '{id}', {})", TTL.as_secs());
    let limit = now() + LIMIT;
    loop {
        let sent = now();
        if psql.truth(&take) {
            return sent;
        }
        assert!(now() < limit, "nobody is let in");
    }
}

fn taken(beat: Time, mut psql: Psql, election: &str, id: String) -> (Leader, u64, Time) {
    let from = now();
    let sql = "SELECT term FROM leader_election WHERE service_name = ";
    let term = psql.ask(&format!("{sql}'{election}'")).parse().unwrap();
    (Leader::Theirs { psql, id, beat }, term, from)
}

/// Its lease may have run out on a slow machine; then its belief has as well.
fn beat(leader: &mut Leader, election: &str) {
    if let Leader::Theirs { psql, id, beat } = leader {
        let sent = now();
        if psql.truth(&format!("SELECT leader_heartbeat('{election}', '{id}')")) {
            *beat = sent;
        }
    }
}

/// Ends a reign, by a kill or in good order: who it was, and until when it could believe in it.
fn end(leader: Leader, term: u64, election: &str, kill: bool) -> (&'static str, Time) {
    match leader {
        Leader::Ours(mut process) => {
            process.signal(if kill { Signal::KILL } else { Signal::TERM });
            let code = process.code();
            assert!(kill || code == 0, "{code}");
            ("ours", stepped_down(process.seen(), term).unwrap_or_else(now))
        }
        Leader::Theirs { mut psql, id, beat } => {
            if kill {
                psql.kill();
                return ("theirs", now().min(beat + TTL));
            }
            let until = now().min(beat + TTL);
            psql.truth(&format!("SELECT step_down('{election}', '{id}')"));
            ("theirs", until)
        }
    }
}

/// When it said that this term was over, if it lived to say so.
fn stepped_down(lines: &[String], term: u64) -> Option<Time> {
    let events = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut over = events.filter(|event| event["event"] == "stepped_down" && event["term"] == term);
    over.next()?["boot_ns"].as_u64().map(Time::from_nanos)
}
