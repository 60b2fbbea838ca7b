//! The suite that every store must pass.
//!
//! A store's test implements [`Subject`] and calls [`run`]. The suite asks the store what it
//! supports ([`StoreInfo`](tenure_core::StoreInfo)) and says what it skips and why. It is plain
//! async code without a runtime of its own: drive it by whatever the store needs.

pub(crate) mod arena;
mod report;
mod under_faults;

mod acquire;
mod ask;
mod batches;
mod concurrency;
mod expiry;
mod hints;
mod metadata;
mod names;
mod partial_failure;
mod read;
mod release;
mod renew;
mod terms;

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tenure_core::{BoxFuture, Error, Store, Time};

use self::arena::{Arena, Stop, Verdict};
pub use self::report::{CaseReport, Ending, Report};
pub use self::under_faults::run_under_faults;
use crate::util::join_all;

/// A store under test, and what the suite needs to know of its world.
pub trait Subject: Send + Sync {
    /// Opens a handle onto the data of this number, as another process would: the same number is
    /// the same data, a number not seen before is an empty store.
    ///
    /// Election names do not repeat from one number to the next, save the odd ones of the topic
    /// `names`. So a subject with a single place to put things may ignore the number, if it
    /// starts out empty.
    fn open(&self, data: u32) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>>;

    /// The present instant, on a clock that runs at the rate of the store's.
    fn now(&self) -> Time;

    /// Waits until this much time has passed on the store's clock: a driven clock is moved, a
    /// real one waited for.
    fn wait(&self, span: Duration) -> BoxFuture<'_, ()>;

    /// Whether waiting costs nothing, because the clock is driven. Cases that wait for minutes
    /// are skipped otherwise.
    fn time_is_free(&self) -> bool {
        false
    }

    /// How much later than its ttl a lease may run out.
    fn expiry_grace(&self) -> Duration {
        Duration::from_millis(20)
    }

    /// Ends when something that ought to have happened by now, such as the arrival of a hint,
    /// must be given up. In real time, even if the clock is driven.
    fn patience(&self) -> BoxFuture<'_, ()> {
        self.wait(Duration::from_secs(5))
    }

    /// Ends the store of this data as a power cut would, so that `open` finds what survived.
    /// Handles opened before are dead. `false`: there is no way to do that.
    fn crash(&self, data: u32) -> BoxFuture<'_, bool> {
        let _ = data;
        Box::pin(async { false })
    }

    /// Runs these at the same time. The default interleaves them in one task; a subject that has
    /// a runtime at hand may spread them over threads.
    fn run_together(&self, work: Vec<BoxFuture<'static, ()>>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            join_all(work).await;
        })
    }

    /// Why this case does not apply to this store, if it does not. `topic` and `case` are as the
    /// report names them.
    fn exempt(&self, topic: &str, case: &str) -> Option<String> {
        let _ = (topic, case);
        None
    }
}

/// One case of the suite.
pub(crate) struct Case {
    topic: &'static str,
    name: &'static str,
    run: for<'a> fn(&'a Arena<'a>) -> BoxFuture<'a, Verdict>,
}

/// A topic's cases, named by their functions.
macro_rules! cases {
    ($($case:ident),+ $(,)?) => {
        pub(super) const CASES: &[(&str, super::CaseFn)] =
            &[$((stringify!($case), |arena| Box::pin($case(arena)))),+];
    };
}
pub(crate) use cases;

pub(crate) type CaseFn = for<'a> fn(&'a Arena<'a>) -> BoxFuture<'a, Verdict>;

/// A topic and its cases.
pub(crate) type Topic = (&'static str, &'static [(&'static str, CaseFn)]);

const TOPICS: [Topic; 13] = [
    ("acquire", acquire::CASES),
    ("renew", renew::CASES),
    ("release", release::CASES),
    ("expiry", expiry::CASES),
    ("ask", ask::CASES),
    ("read", read::CASES),
    ("terms", terms::CASES),
    ("batches", batches::CASES),
    ("names", names::CASES),
    ("metadata", metadata::CASES),
    ("hints", hints::CASES),
    ("concurrency", concurrency::CASES),
    ("partial failure", partial_failure::CASES),
];

/// The topics of the suite, in the order in which they are run.
pub fn topics() -> impl Iterator<Item = &'static str> {
    TOPICS.iter().map(|(topic, _)| *topic)
}

/// Runs the whole suite, one case after the other, each on data of its own.
///
/// # Cancel safety
/// Dropping it ends the suite; the data of the current case stays as it is.
///
/// # Examples
/// ```no_run
/// # async fn test(subject: &dyn tenure_testkit::conformance::Subject) {
/// tenure_testkit::conformance::run(subject).await.assert_passed();
/// # }
/// ```
pub async fn run(subject: &dyn Subject) -> Report {
    run_cases(subject, &TOPICS, 1, "").await
}

/// Runs the cases whose topic or name contains `pattern`: `"renew"`, or a few words of one case.
///
/// # Cancel safety
/// As [`run`].
pub async fn run_matching(subject: &dyn Subject, pattern: &str) -> Report {
    run_cases(subject, &TOPICS, 1, pattern).await
}

/// Runs the cases whose topic or name contains `pattern`, each on data of its own, numbered from
/// `first` on.
pub(crate) async fn run_cases(
    subject: &dyn Subject,
    topics: &[Topic],
    first: u32,
    pattern: &str,
) -> Report {
    let (mut report, pattern) = (Report::new(), pattern.replace('_', " "));
    let all = topics.iter().flat_map(|(topic, cases)| {
        cases.iter().map(move |(name, run)| Case { topic, name, run: *run })
    });
    // Counted over all cases, so that a case has the same data whether it runs alone or not.
    for (case, data) in all.zip(first..) {
        let name = case.name.replace('_', " ");
        if !case.topic.contains(&pattern) && !name.contains(&pattern) {
            continue;
        }
        let ending = match subject.exempt(case.topic, &name) {
            Some(why) => Ending::Skipped(why),
            None => ending(run_case(subject, &case, data)).await,
        };
        report.add(CaseReport { topic: case.topic, case: name, ending });
    }
    report
}

async fn run_case(subject: &dyn Subject, case: &Case, data: u32) -> Verdict {
    let arena = Arena::new(subject, data, case.name).await?;
    (case.run)(&arena).await
}

/// How a case ended. A panic of the store fails its case and not the suite.
async fn ending(case: impl Future<Output = Verdict>) -> Ending {
    let mut case = std::pin::pin!(case);
    let verdict = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| case.as_mut().poll(cx))) {
        Ok(polled) => polled,
        Err(panic) => Poll::Ready(Err(Stop::Failed(format!("panicked: {}", words(&*panic))))),
    })
    .await;
    match verdict {
        Ok(()) => Ending::Passed,
        Err(Stop::Skipped(why)) => Ending::Skipped(why),
        Err(Stop::Failed(what)) => Ending::Failed(what),
    }
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without words")
}
