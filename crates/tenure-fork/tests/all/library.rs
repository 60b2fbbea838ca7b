//! The library in forked children (L3): a handle that was made before the fork leads nothing there,
//! and says so. A candidate that is made after it is like any other.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure::{Candidate, Election, Error, ErrorKind, MemoryStore, Tenure};
use tenure_cron::{Cron, Job, Run, Schedule};

use crate::common::{alone, in_child};

/// The ttl is long: nothing here is over because time has passed.
const TTL: Duration = Duration::from_secs(600);

/// Longer than a busy machine may need, and shorter than the alarm of a child.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs something on a runtime that did not exist before.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let waited = runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await });
    waited.expect("it is answered")
}

/// A leader with everything that one can hold.
struct Leader {
    candidate: Candidate,
    election: Election,
    tenure: Tenure,
    cron: Cron,
}

impl Leader {
    fn new() -> Leader {
        let store = Arc::new(MemoryStore::new());
        let candidate = Candidate::builder(store).build().unwrap();
        let (election, tenure) = block_on(async {
            let election = candidate.election("invoices").ttl(TTL).start().await.unwrap();
            let tenure = election.campaign().await.unwrap();
            (election, tenure)
        });
        let job = Job::new("job", Schedule::new("@daily", "UTC").unwrap(), |_: Run| async {});
        let cron = Cron::builder(&election).job(job).build().unwrap();
        Leader { candidate, election, tenure, cron }
    }

    /// Leads no more, in order. Nobody works because of what was asked here.
    fn leave(self) {
        self.election.done(self.tenure.term()).unwrap();
        block_on(self.tenure.resign()).unwrap();
        block_on(self.election.stop()).unwrap();
        assert!(!self.election.is_leader());
    }

    fn leads(&self) -> bool {
        self.election.is_leader() && self.tenure.is_current() && self.tenure.is_leader()
    }
}

fn refused<T>(what: &str, result: Result<T, Error>) {
    let Err(error) = result else { panic!("{what} was done in a forked child") };
    assert_eq!(error.kind(), ErrorKind::Forked, "{what}: {error}");
    let text = error.to_string();
    assert!(text.contains("before a fork") && text.contains("new candidate"), "{what}: {text}");
}

#[test]
fn in_a_forked_child_every_answer_is_no() {
    alone("library::in_a_forked_child_every_answer_is_no", || {
        let leader = Leader::new();
        assert!(leader.leads());
        in_child(|| {
            assert!(!leader.election.is_leader(), "a forked child answered is_leader() true");
            assert_eq!(leader.election.term(), None);
            assert_eq!(leader.election.standing(), None);
            assert_eq!(leader.election.peek(), None);
            assert_eq!(leader.election.winding_up(), None);
            assert_eq!(leader.election.overdue(), None);
            assert_eq!(leader.election.store_answers(), None);
            assert_eq!(leader.election.last_seen_leader(), None);
            assert!(!leader.tenure.is_current() && !leader.tenure.is_leader());
            assert_eq!(leader.tenure.remaining(), Duration::ZERO);
            assert_eq!(leader.tenure.trusted_until(), tenure::Time::ZERO);
            assert_eq!(block_on(leader.election.run_if_leader(async {})), None);
        })
        .unwrap();
        assert!(leader.leads(), "nothing has changed for the parent");
    });
}

#[test]
fn in_a_forked_child_those_who_wait_are_told_at_once() {
    alone("library::in_a_forked_child_those_who_wait_are_told_at_once", || {
        let leader = Leader::new();
        let (mut events, mut changes) = (leader.election.events(), leader.election.changes());
        in_child(move || {
            block_on(leader.tenure.lost());
            block_on(leader.tenure.ended());
            block_on(leader.tenure.deadline_moved(leader.election.now()));
            // What was sent before the fork may still be read. Then it is at its end.
            while block_on(events.next()).is_some() {}
            while block_on(changes.next()).is_some() {}
            assert!(block_on(leader.election.events().next()).is_none());
            assert!(block_on(leader.election.changes().next()).is_none());
        })
        .unwrap();
    });
}

#[test]
fn in_a_forked_child_every_other_call_is_a_clear_error() {
    alone("library::in_a_forked_child_every_other_call_is_a_clear_error", || {
        let leader = Leader::new();
        let messenger = leader.election.messenger().unwrap();
        in_child(move || {
            let Leader { candidate, election, tenure, cron } = leader;
            refused("done", election.done(tenure.term()));
            refused("start", block_on(election.start()));
            refused("stop", block_on(election.stop()));
            refused("resign", block_on(election.resign()));
            refused("observe", block_on(election.observe()));
            refused("campaign", block_on(election.campaign()));
            refused("lead", block_on(election.lead(|_| async {})));
            refused("current_leader", block_on(election.current_leader()));
            refused("ask_to_resign", block_on(election.ask_to_resign(None)));
            refused("notify", block_on(election.notify("c", "1")));
            refused("post", block_on(election.post("c", "1", "k")));
            refused("messenger", election.messenger());
            refused("messenger.notify", block_on(messenger.notify("c", "1")));
            refused("messenger.backlog", block_on(messenger.backlog()));
            refused("cron.run", block_on(cron.run()));
            refused("cron.trigger", block_on(cron.trigger("job")));
            refused("cron.history", block_on(cron.history(None, 10)));
            refused("build", candidate.election("reports").build());
            refused("tenure.resign", block_on(tenure.resign()));
        })
        .unwrap();
    });
}

/// The pattern of gunicorn's `--preload`: everything is set up, then workers are forked.
#[test]
fn workers_of_a_preloaded_program_can_take_part_themselves_and_the_parent_goes_on() {
    const NAME: &str =
        "library::workers_of_a_preloaded_program_can_take_part_themselves_and_the_parent_goes_on";
    alone(NAME, || {
        let leader = Leader::new();
        let term = leader.election.term();
        for _ in 0..3 {
            in_child(|| {
                assert!(!leader.leads());
                let own = Leader::new();
                assert!(own.leads(), "a candidate of the child's own is like any other");
                in_child(|| assert!(!own.leads() && !leader.leads())).unwrap();
                assert!(own.leads() && !leader.leads());
                own.leave();
            })
            .unwrap();
        }
        assert!(leader.leads() && leader.election.term() == term);
        leader.leave();
    });
}

/// A child may be forked while another thread, or the driver's, holds any lock of the library.
#[test]
fn a_child_waits_for_no_lock_that_a_lost_thread_holds() {
    alone("library::a_child_waits_for_no_lock_that_a_lost_thread_holds", || {
        let leader = Leader::new();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        drop((leader.election.events(), leader.election.standing()));
                        drop(leader.candidate.election("invoices").build());
                        block_on(async {
                            tokio::select! {
                                biased;
                                _ = leader.tenure.lost() => panic!("it was not lost"),
                                () = std::future::ready(()) => {}
                            }
                        });
                        drop(block_on(leader.election.current_leader()));
                    }
                });
            }
            for _ in 0..300 {
                let asked = in_child(|| {
                    assert!(!leader.leads());
                    assert_eq!(leader.election.standing(), None);
                    drop((leader.election.events(), leader.election.changes()));
                    refused("build", leader.candidate.election("reports").build());
                    refused("current_leader", block_on(leader.election.current_leader()));
                    block_on(leader.tenure.lost());
                });
                if asked.is_err() {
                    over.store(true, Ordering::Relaxed);
                }
                asked.unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
        // And the last handles of all can be dropped in a child.
        in_child(move || drop(leader)).unwrap();
    });
}
