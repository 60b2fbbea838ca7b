//! Three candidates with a fenced workload; the leader is told to end, killed, frozen, in turn.

use std::collections::BTreeMap;

use rustix::process::Signal;
use tenure_sqlite::fence::FenceError;

use super::fleet::Fleet;
use super::record::{self, Fate, assert_lies_are_seen, assert_sound, history};
use super::workload;
use crate::common::eventually;

/// How many rounds of each kind.
struct Plan {
    clean: usize,
    kill_9: usize,
    freeze: usize,
}

#[test]
fn one_leads_at_a_time_over_resignations_kills_and_freezes() {
    run(&Plan { clean: 5, kill_9: 5, freeze: 3 });
}

#[needs(long)]
#[test]
fn long_one_leads_at_a_time_over_50_resignations_kills_and_freezes_each() {
    run(&Plan { clean: 50, kill_9: 50, freeze: 50 });
}

fn run(plan: &Plan) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("data.db");
    let mut data = workload::open(&file);
    let mut fleet = Fleet::new(directory, workload::role(&file), Vec::new());
    for _ in 0..3 {
        fleet.add();
    }
    let mut fates = BTreeMap::new();
    let mut frozen = Vec::new();
    let kinds =
        [(plan.clean, Signal::TERM), (plan.kill_9, Signal::KILL), (plan.freeze, Signal::STOP)];
    for (rounds, signal) in kinds {
        for _ in 0..rounds {
            let leader = fleet.leader();
            eventually("a write", || workload::has_written(&data, leader.term).then_some(()));
            match signal {
                Signal::STOP => {
                    let at = fleet.freeze(leader.process);
                    fates.insert(leader.term, Fate::Frozen(at, fleet.lease_until()));
                    frozen.push(leader.term);
                }
                Signal::KILL => {
                    let at = fleet.kill(leader.process);
                    fates.insert(leader.term, Fate::Killed(at));
                }
                _ => drop(fleet.dismiss(leader.process)),
            }
            let next = fleet.successor(&leader);
            if signal == Signal::STOP {
                // It goes on in the middle of the reign of another.
                eventually("a write", || workload::has_written(&data, next.term).then_some(()));
                fleet.go_on(leader.process);
                fleet.wait("the end of the old reign", |told| {
                    told.is("stepped_down") && told.term == leader.term
                });
            } else {
                fleet.reap(leader.process);
                fleet.add();
            }
        }
    }

    // A leader that was frozen takes part again, under terms of its own.
    let last = fleet.leader();
    eventually("a write", || workload::has_written(&data, last.term).then_some(()));
    let stale = record::term(frozen[0]);
    let refused = workload::write(&mut data, &record::name(), stale, "somebody late");
    assert!(matches!(refused, Err(FenceError::Stale(_))), "{refused:?}");

    let history = history(fleet.told(), &fates, &workload::written(&data));
    assert_sound(&history);
    assert_lies_are_seen(&history, frozen[0]);
}
