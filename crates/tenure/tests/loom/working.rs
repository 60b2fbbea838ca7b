//! Those who work under a reign, and the driver that closes it (I8).

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::reign_words::ReignWords;

const UNTIL: u64 = 1_000;

fn reign() -> Arc<ReignWords> {
    Arc::new(ReignWords::new(UNTIL))
}

/// Spawns somebody who works under the reign if it lets them in.
fn worker<T: 'static>(
    reign: &Arc<ReignWords>,
    work: impl FnOnce(&ReignWords) -> T + 'static,
) -> thread::JoinHandle<T> {
    let reign = reign.clone();
    thread::spawn(move || work(&reign))
}

/// The driver that closes a reign sees its work, or exactly one of those who leave tells it.
#[test]
fn the_end_of_work_is_told_exactly_once() {
    loom::model(|| {
        let reign = reign();
        let works = |reign: &ReignWords| reign.enter() && reign.exit();
        let workers = [worker(&reign, works), worker(&reign, works)];
        reign.close();
        let seen = reign.has_work();
        let told = workers.into_iter().map(|worker| worker.join().unwrap());
        let told = told.filter(|last| *last).count();
        assert!(told <= 1, "told {told} times");
        assert!(!seen || told == 1, "the driver saw work, and nobody told it of the end");
        assert!(!reign.enter() && !reign.has_work(), "nobody works after the end");
    });
}

/// A lease that is given back because nobody works is not given back under somebody who does: what
/// they did is over for whoever gives it back. Loom tells of two who could be at it together.
#[test]
fn nobody_works_once_the_driver_has_seen_that_nobody_does() {
    loom::model(|| {
        let reign = reign();
        let effect = Arc::new(UnsafeCell::new(()));
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let effect = effect.clone();
                worker(&reign, move |reign| {
                    if reign.enter() {
                        effect.with(|_works| ());
                        reign.exit();
                    }
                })
            })
            .collect();
        reign.close();
        if !reign.has_work() {
            effect.with_mut(|_gives_back| ());
        }
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// At most one takes the handle. Those who come too late leave no work behind.
#[test]
fn one_handle_is_taken_and_late_ones_leave_nothing_behind() {
    loom::model(|| {
        let reign = reign();
        let claims = |reign: &ReignWords| reign.claim();
        let claimers = [worker(&reign, claims), worker(&reign, claims)];
        let taken = claimers.into_iter().map(|claimer| claimer.join().unwrap());
        let taken = taken.filter(|taken| *taken).count();
        assert_eq!(taken, 1, "nobody closed the reign, so one of them gets it");
        assert!(reign.is_claimed() && reign.has_work());
        assert!(!reign.exit(), "the reign is still open");
        assert!(!reign.has_work(), "one handle, one work");
    });
}

/// A handle that is taken as the reign ends is waited for, or not given.
#[test]
fn a_handle_is_waited_for_or_not_given() {
    loom::model(|| {
        let reign = reign();
        let claimer = worker(&reign, ReignWords::claim);
        reign.close();
        let seen = reign.has_work();
        assert_eq!(claimer.join().unwrap(), seen);
        assert!(!reign.is_open());
    });
}

/// A look that sees trust over also sees when it was to end last.
#[test]
fn the_end_of_trust_comes_with_its_instant() {
    loom::model(|| {
        let reign = reign();
        let reader = worker(&reign, |reign| (reign.trust_until(), reign.trust_ended()));
        reign.set_trust_until(UNTIL * 2);
        reign.set_trust_until(0);
        let (until, ended) = reader.join().unwrap();
        if until == 0 {
            assert_eq!(ended, UNTIL * 2, "an older end of trust is shown");
        }
        assert_eq!((reign.trust_until(), reign.trust_ended()), (0, UNTIL * 2));
    });
}
