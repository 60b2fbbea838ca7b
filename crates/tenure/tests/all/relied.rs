//! I8: a lease is given back only when everybody who was told "you lead" has said that they are
//! done, or, for unregistered answers, when the drain is over.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure::{Candidate, Election, ElectionBuilder, Event, Reason};
use tokio::sync::Notify;

use crate::common::{Mood, Moody, TTL, World, breathe, event, eventually, leads};

/// ttl 3 s: the drain is ttl / 6.
const DRAIN: Duration = Duration::from_millis(500);

type Stopping<'a> = Pin<Box<dyn Future<Output = Result<(), tenure::Error>> + 'a>>;

fn poll_once(future: &mut Stopping<'_>) -> Poll<Result<(), tenure::Error>> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

struct Reigning {
    world: World,
    candidate: Candidate,
    store: Arc<Moody>,
    election: Election,
}

impl Reigning {
    async fn of(set_up: impl FnOnce(ElectionBuilder) -> ElectionBuilder) -> Reigning {
        let world = World::new();
        let (candidate, store) = world.candidate("a");
        let builder = set_up(candidate.election("invoices").ttl(TTL));
        let election = builder.start().await.unwrap();
        assert!(election.peek().is_some(), "a lone instance leads");
        Reigning { world, candidate, store, election }
    }

    async fn plain() -> Reigning {
        Reigning::of(|builder| builder).await
    }

    fn released(&self) -> bool {
        self.store.verbs().contains(&"release")
    }

    /// Gives the driver many turns, without any time passing.
    async fn settle(&self) {
        for _ in 0..20 {
            self.candidate.synchronize().await;
            breathe().await;
        }
    }

    /// Stops, and sees the lease kept for exactly the drain.
    async fn is_kept_for_the_drain(&self) {
        let began = self.world.now();
        let mut stop: Stopping<'_> = Box::pin(self.election.stop());
        assert!(poll_once(&mut stop).is_pending());
        self.settle().await;
        assert!(!self.released(), "somebody was told that this instance leads");
        assert!(!self.election.is_leader(), "and nothing new may be started");
        assert!(self.election.winding_up().is_some());
        self.world.pass_until(|| self.released()).await;
        let kept = self.world.now() - began;
        assert!(kept >= DRAIN && kept < DRAIN * 2, "{kept:?}");
        assert!(self.store.verbs().iter().all(|verb| *verb != "renew") || kept < TTL);
        stop.await.unwrap();
        assert_eq!(self.election.winding_up(), None);
    }

    /// Stops, and sees the lease given back without any time passing.
    async fn is_given_back_at_once(&self) {
        tokio::time::timeout(Duration::from_secs(60), self.election.stop())
            .await
            .expect("no time has to pass")
            .unwrap();
        assert!(self.released());
    }
}

#[tokio::test]
async fn a_reign_that_answered_true_keeps_its_lease_for_the_drain() {
    let reign = Reigning::plain().await;
    assert!(reign.election.is_leader());
    reign.is_kept_for_the_drain().await;
}

#[tokio::test]
async fn every_public_answer_is_relied_upon() {
    let ask: [fn(&Election) -> bool; 3] =
        [Election::is_leader, |e| e.term().is_some(), |e| e.standing().is_some()];
    for ask in ask {
        let reign = Reigning::plain().await;
        assert!(ask(&reign.election));
        reign.is_kept_for_the_drain().await;
    }
}

#[tokio::test]
async fn those_who_only_look_hold_up_nobody() {
    let reign = Reigning::plain().await;
    assert!(reign.election.peek().is_some());
    let _events = reign.election.peek_events();
    assert!(format!("{:?}", reign.election).contains("invoices"));
    reign.election.current_leader().await.unwrap();
    tenure::refresh_metrics();
    assert_eq!(reign.election.run_if_leader(async { 1 }).await, Some(1));
    let tenure = reign.election.campaign().await.unwrap();
    assert!(tenure.is_leader() && tenure.is_current());
    drop(tenure);
    reign.is_given_back_at_once().await;
}

#[tokio::test]
async fn a_feed_that_tells_of_the_election_is_relied_upon_and_one_for_showing_is_not() {
    for (acts, feed) in [(true, "events"), (true, "changes"), (false, "peek")] {
        let world = World::new();
        let (candidate, store) = world.candidate("a");
        let election = candidate.election("invoices").ttl(TTL).build().unwrap();
        let (mut events, mut changes, mut peek) = (None, None, None);
        match feed {
            "events" => events = Some(election.events()),
            "changes" => changes = Some(election.changes()),
            _ => peek = Some(election.peek_events()),
        }
        election.start().await.unwrap();
        let reign = Reigning { world, candidate, store, election };
        if acts {
            reign.is_kept_for_the_drain().await;
        } else {
            reign.is_given_back_at_once().await;
        }
        drop((events.take(), changes.take(), peek.take()));
    }
}

#[tokio::test]
async fn a_feed_that_was_dropped_before_the_election_tells_nobody() {
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let election = candidate.election("invoices").ttl(TTL).build().unwrap();
    drop(election.events());
    election.start().await.unwrap();
    Reigning { world, candidate, store, election }.is_given_back_at_once().await;
}

#[tokio::test]
async fn done_gives_the_lease_back_before_the_drain_is_over() {
    let reign = Reigning::plain().await;
    let term = reign.election.term().unwrap();
    let mut stop: Stopping<'_> = Box::pin(reign.election.stop());
    assert!(poll_once(&mut stop).is_pending());
    reign.settle().await;
    assert_eq!(reign.election.winding_up(), Some(term));
    assert!(!reign.released());
    reign.election.done(term.next().unwrap()).unwrap();
    reign.settle().await;
    assert!(!reign.released(), "another term is none of its business");
    reign.election.done(term).unwrap();
    tokio::time::timeout(Duration::from_secs(60), stop).await.expect("at once").unwrap();
    assert!(reign.released());
}

#[tokio::test]
async fn done_while_leading_counts_for_the_answers_before_it_only() {
    let reign = Reigning::plain().await;
    let term = reign.election.term().unwrap();
    reign.election.done(term).unwrap();
    reign.settle().await;
    assert!(reign.election.is_leader(), "it leads on, and this answer counts again");
    reign.is_kept_for_the_drain().await;

    let reign = Reigning::plain().await;
    let term = reign.election.term().unwrap();
    reign.election.done(term).unwrap();
    reign.is_given_back_at_once().await;
}

#[tokio::test]
async fn at_once_is_the_static_form_of_done() {
    let reign = Reigning::of(ElectionBuilder::at_once).await;
    assert!(reign.election.is_leader());
    reign.is_given_back_at_once().await;
}

#[tokio::test]
async fn a_renewal_keeps_what_was_told() {
    let reign = Reigning::plain().await;
    assert!(reign.election.is_leader());
    let renewals = || reign.store.verbs().iter().filter(|verb| **verb == "renew").count();
    reign.world.pass_until(|| renewals() >= 3).await;
    let began = reign.world.now();
    let mut stop: Stopping<'_> = Box::pin(reign.election.stop());
    assert!(poll_once(&mut stop).is_pending());
    reign.settle().await;
    assert!(!reign.released());
    reign.world.pass_until(|| reign.released()).await;
    assert!(reign.world.now() - began >= DRAIN);
}

#[tokio::test]
async fn nobody_else_leads_before_the_drain_is_over() {
    let reign = Reigning::plain().await;
    let next = reign.world.election("b").start().await.unwrap();
    assert!(reign.election.is_leader());
    let began = reign.world.now();
    let mut stop: Stopping<'_> = Box::pin(reign.election.stop());
    assert!(poll_once(&mut stop).is_pending());
    reign.world.pass_until(|| next.is_leader()).await;
    assert!(reign.world.now() - began >= DRAIN);
    stop.await.unwrap();
}

#[tokio::test]
async fn a_drop_keeps_the_lease_for_the_drain_too() {
    let reign = Reigning::plain().await;
    assert!(reign.election.is_leader());
    let began = reign.world.now();
    let Reigning { world, candidate, store, election } = reign;
    drop(election);
    for _ in 0..20 {
        candidate.synchronize().await;
        breathe().await;
    }
    assert!(!store.verbs().contains(&"release"));
    world.pass_until(|| store.verbs().contains(&"release")).await;
    assert!(world.now() - began >= DRAIN);
}

/// The callbacks end after every handle is gone, that of the candidate, too.
#[tokio::test]
async fn the_lease_of_a_dropped_candidate_is_given_back_when_on_lost_returns() {
    let world = World::new();
    let (candidate, store) = world.untended_candidate("a");
    let builder = candidate.election("invoices").ttl(TTL);
    let builder = builder.on_elected(|_| {}).on_lost(|_| tokio::task::yield_now());
    let election = builder.start().await.unwrap();
    assert!(election.is_leader());
    drop((candidate, election));
    eventually("the release", || store.verbs().contains(&"release")).await;
}

#[tokio::test]
async fn after_a_forced_step_down_the_lease_of_those_who_were_told_runs_out() {
    let reign = Reigning::of(|builder| builder.fail_closed(true)).await;
    assert!(reign.election.is_leader());
    let mut events = reign.election.events();
    reign.store.set(Mood::Failing);
    reign.world.pass_until(|| !reign.election.is_leader()).await;
    reign.store.set(Mood::Well);
    let reason = event(&mut events, |event| match event {
        Event::Draining { reason, .. } => Some(reason),
        _ => None,
    });
    assert_eq!(reason.await, Reason::RenewalFailed);
    let next = reign.world.election("b").start().await.unwrap();
    reign.world.pass_until(|| reign.election.is_leader() || next.is_leader()).await;
    assert!(!reign.released(), "it was not released on behalf of those who were told");
}

#[tokio::test]
async fn after_a_forced_step_down_nobody_was_told_of_the_lease_is_given_back() {
    let reign = Reigning::of(|builder| builder.fail_closed(true)).await;
    reign.store.set(Mood::Failing);
    reign.world.pass_until(|| reign.election.peek().is_none()).await;
    reign.store.set(Mood::Well);
    reign.world.pass_until(|| reign.released()).await;
}

#[tokio::test]
async fn an_on_lost_that_returned_is_done_for_the_whole_reign() {
    let finish = Arc::new(Notify::new());
    let told = Arc::new(AtomicUsize::new(0));
    let (waits, counts) = (finish.clone(), told.clone());
    let reign = Reigning::of(|builder| {
        builder.on_elected(|_| {}).on_lost(move |_| {
            let (waits, counts) = (waits.clone(), counts.clone());
            async move {
                counts.fetch_add(1, Ordering::SeqCst);
                waits.notified().await;
            }
        })
    })
    .await;
    assert!(reign.election.is_leader(), "this answer is covered by on_lost");
    let mut stop: Stopping<'_> = Box::pin(reign.election.stop());
    assert!(poll_once(&mut stop).is_pending());
    eventually("on_lost", || told.load(Ordering::SeqCst) == 1).await;
    reign.settle().await;
    assert!(!reign.released());
    finish.notify_one();
    tokio::time::timeout(Duration::from_secs(60), stop).await.expect("at once").unwrap();
    assert!(reign.released());
}

#[tokio::test]
async fn an_on_elected_without_an_on_lost_is_relied_upon() {
    let reign = Reigning::of(|builder| builder.on_elected(|_| {})).await;
    reign.is_kept_for_the_drain().await;
}

#[tokio::test]
async fn the_lease_of_an_on_lost_that_does_not_return_runs_out() {
    let reign = Reigning::of(|builder| builder.on_lost(|_| std::future::pending::<()>())).await;
    assert!(reign.election.is_leader());
    let mut stop: Stopping<'_> = Box::pin(reign.election.stop());
    let mut answer = None;
    reign
        .world
        .pass_until(|| match poll_once(&mut stop) {
            Poll::Ready(result) => {
                answer = Some(result);
                true
            }
            Poll::Pending => false,
        })
        .await;
    let error = answer.unwrap().unwrap_err().to_string();
    assert!(error.contains("runs out by itself"), "{error}");
    assert!(!reign.released());
}

#[tokio::test]
async fn an_on_lost_that_panics_says_nothing_for_those_who_were_told() {
    let reign = Reigning::of(|builder| builder.on_lost(|_| async { panic!("on purpose") })).await;
    assert!(reign.election.is_leader());
    let next = reign.world.election("b").start().await.unwrap();
    let mut stop: Stopping<'_> = Box::pin(reign.election.stop());
    assert!(poll_once(&mut stop).is_pending());
    reign.world.pass_until(|| next.is_leader()).await;
    assert!(!reign.released());
}

/// Registered work hands over as soon as it has ended, whatever the drain.
#[tokio::test]
async fn registered_work_hands_over_at_once() {
    let reign = Reigning::plain().await;
    let next = reign.world.election("b").start().await.unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let tenure = reign.election.campaign().await.unwrap();
    let work = async {
        tenure.lost().await;
        ended.store(true, Ordering::SeqCst);
        drop(tenure);
    };
    let (stopped, ()) = tokio::join!(reign.election.stop(), work);
    stopped.unwrap();
    assert!(ended.load(Ordering::SeqCst));
    leads(&next).await;
}

/// Counts the warnings of the thread that it is set for.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl tracing::field::Visit for Warnings {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0.lock().unwrap().push(format!("{value:?}"));
        }
    }
}

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn dropping_the_last_handle_warns_only_if_somebody_relies_on_the_reign() {
    for relies in [true, false] {
        let Reigning { election, .. } = Reigning::plain().await;
        assert!(!relies || election.is_leader());
        let another = election.clone();
        let warnings = Warnings::default();
        let _set = tracing::subscriber::set_default(warnings.clone());
        drop(another);
        assert!(warnings.0.lock().unwrap().is_empty(), "it is not the last one");
        drop(election);
        let said = warnings.0.lock().unwrap().clone();
        assert_eq!(said.len(), usize::from(relies), "{said:?}");
        assert!(said.iter().all(|line| line.contains("stop().await")), "{said:?}");
    }
}
