//! An election as a program sees it: starting, leading, losing, stopping.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure::core::Op;
use tenure::{ErrorKind, Event, Reason};

use crate::common::{Mood, TTL, World, breathe, event, eventually, leads};

#[tokio::test]
async fn a_lone_instance_leads_when_start_returns() {
    let world = World::new();
    let election = world.election("a").metadata(r#"{"url":"x"}"#).start().await.unwrap();
    assert!(election.is_leader());
    assert_eq!(election.term().unwrap().get(), 1);
    let leader = election.current_leader().await.unwrap().unwrap();
    assert!(leader.holder.is(election.candidate()));
    assert_eq!(leader.metadata.unwrap().as_str(), r#"{"url":"x"}"#);
}

#[tokio::test]
async fn start_and_stop_can_be_called_twice_and_in_turns() {
    let world = World::new();
    let election = world.election("a").start().await.unwrap();
    election.start().await.unwrap();
    election.stop().await.unwrap();
    assert!(!election.is_leader());
    assert_eq!(election.current_leader().await.unwrap(), None, "the lease was given back");
    election.stop().await.unwrap();
    election.start().await.unwrap();
    assert!(election.is_leader());
    assert_eq!(election.term().unwrap().get(), 2, "a new reign is a new term");
}

#[tokio::test]
async fn stop_on_a_follower_is_safe() {
    let world = World::new();
    let leader = world.election("a").start().await.unwrap();
    let follower = world.election("b").start().await.unwrap();
    assert!(!follower.is_leader());
    assert_eq!(follower.last_seen_leader().unwrap().holder.label(), "a");
    follower.stop().await.unwrap();
    assert!(leader.is_leader());
}

#[tokio::test]
async fn a_follower_takes_over_at_once_when_the_leader_stops() {
    let world = World::new();
    let first = world.election("a").start().await.unwrap();
    let second = world.election("b").start().await.unwrap();
    first.stop().await.unwrap();
    // No time passes here: only the hint can have woken it.
    leads(&second).await;
    assert_eq!(second.term().unwrap().get(), 2);
}

#[tokio::test]
async fn resigning_steps_back_for_one_renewal_and_campaigns_again() {
    let world = World::new();
    let election = world.election("a").start().await.unwrap();
    election.resign().await.unwrap();
    assert!(!election.is_leader());
    let resigned_at = world.now();
    world.pass_until(|| election.is_leader()).await;
    assert!(world.now() - resigned_at >= Duration::from_secs(1));
    assert_eq!(election.term().unwrap().get(), 2);
}

#[tokio::test]
async fn trust_ends_by_itself_while_the_store_hangs() {
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let election = candidate.election("invoices").ttl(TTL).at_once().build().unwrap();
    let tenure = election.campaign().await.unwrap();
    store.set(Mood::Hanging);
    // The driver may or may not have run by now: the clock alone decides.
    world.clock.advance(Duration::from_millis(2351));
    assert!(!election.is_leader() && !tenure.is_leader());
    assert!(tenure.is_current(), "work may still be finished");
    world.clock.advance(Duration::from_millis(500));
    assert!(!tenure.is_current());
    assert_eq!(tenure.lost().await, Reason::NotRenewed);
    assert_eq!(tenure.ended().await, Reason::NotRenewed);
}

#[tokio::test]
async fn one_failed_renewal_does_not_end_leadership() {
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let election = candidate.election("invoices").ttl(TTL).at_once().start().await.unwrap();
    let mut events = election.events();
    store.set(Mood::Failing);
    world.pass_until(|| store.verbs().contains(&"renew")).await;
    event(&mut events, |event| matches!(event, Event::StoreLost { .. }).then_some(())).await;
    event(&mut events, |event| matches!(event, Event::RenewalFailed { .. }).then_some(())).await;
    assert!(election.is_leader());
    store.set(Mood::Well);
    let mut back = false;
    world
        .pass_until(|| {
            back |= matches!(poll_event(&mut events), Some(Event::StoreBack));
            back
        })
        .await;
    assert!(election.is_leader());
    assert_eq!(election.term().unwrap().get(), 1);
}

#[tokio::test]
async fn failing_closed_steps_down_at_the_first_failed_renewal() {
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let election =
        candidate.election("invoices").ttl(TTL).at_once().fail_closed(true).start().await.unwrap();
    let mut events = election.events();
    store.set(Mood::Failing);
    world.pass_until(|| !election.is_leader()).await;
    let reason = event(&mut events, |event| match event {
        Event::SteppedDown { reason, .. } => Some(reason),
        _ => None,
    });
    assert_eq!(reason.await, Reason::RenewalFailed);
}

#[tokio::test]
async fn a_store_that_panics_or_miscounts_is_an_unknown_outcome() {
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    store.set(Mood::Panicking);
    let election = candidate.election("invoices").ttl(TTL).at_once().build().unwrap();
    let error = election.start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    store.set(Mood::Well);
    election.start().await.unwrap();
    world.pass_until(|| election.is_leader()).await;
}

#[tokio::test]
async fn a_store_that_is_down_at_the_start_is_no_error_but_one_that_denies_is() {
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    store.set(Mood::Failing);
    let election = candidate.election("invoices").ttl(TTL).at_once().start().await.unwrap();
    assert!(!election.is_leader());
    assert!(election.current_leader().await.is_err());
    store.set(Mood::Well);
    world.pass_until(|| election.is_leader()).await;

    let (candidate, store) = world.candidate("b");
    store.set(Mood::Denying);
    let error = candidate.election("other").ttl(TTL).at_once().start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn a_lost_acquire_reply_is_taken_back_when_stopping() {
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    store.set(Mood::Failing);
    let election = candidate.election("invoices").ttl(TTL).at_once().start().await.unwrap();
    store.set(Mood::Well);
    election.stop().await.unwrap();
    let ops = store.ops.lock().unwrap();
    assert!(
        ops.iter().any(|op| matches!(op, Op::Release { term: None, seq: 1, .. })),
        "the store may take us for the holder: {ops:?}"
    );
}

#[tokio::test]
async fn dropping_the_campaign_withdraws_and_dropping_the_tenure_releases() {
    let world = World::new();
    let leader = world.election("a").start().await.unwrap();
    let (candidate, store) = world.candidate("b");
    let election = candidate.election("invoices").ttl(TTL).at_once().build().unwrap();
    {
        let waiting = election.campaign();
        let timeout = tokio::time::timeout(Duration::from_millis(50), waiting).await;
        assert!(timeout.is_err(), "somebody else leads");
    }
    leader.stop().await.unwrap();
    breathe().await;
    assert!(!election.is_leader(), "nobody waits any more");

    let tenure = election.campaign().await.unwrap();
    assert!(tenure.is_current());
    drop(tenure);
    eventually("the release", || store.verbs().contains(&"release")).await;
    // Sent, which is not yet done.
    while election.current_leader().await.unwrap().is_some() {
        breathe().await;
    }
}

#[tokio::test]
async fn dropping_every_handle_gives_the_lease_back() {
    let world = World::new();
    let (candidate, store) = world.untended_candidate("a");
    let election = candidate.election("invoices").ttl(TTL).at_once().start().await.unwrap();
    drop((election, candidate));
    eventually("the release", || store.verbs().contains(&"release")).await;
}

#[tokio::test]
async fn one_candidate_enters_an_election_once_at_a_time() {
    let world = World::new();
    let (candidate, _) = world.candidate("a");
    let first = candidate.election("invoices").ttl(TTL).at_once().start().await.unwrap();
    let error = candidate.election("invoices").ttl(TTL).at_once().build().unwrap_err();
    assert!(error.to_string().contains("already"), "{error}");
    let led = first.term().unwrap();
    first.stop().await.unwrap();
    drop(first);
    let mut again = None;
    eventually("the name to be free", || {
        again =
            again.take().or_else(|| candidate.election("invoices").ttl(TTL).at_once().build().ok());
        again.is_some()
    })
    .await;
    let again = again.unwrap();
    again.start().await.unwrap();
    assert!(again.term().unwrap() > led, "it numbers on, though the incarnation is the same");
}

#[tokio::test]
async fn a_thousand_elections_share_their_calls() {
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let elections: Vec<_> = (0..1000)
        .map(|n| candidate.election(&format!("job-{n}")).ttl(TTL).at_once().build().unwrap())
        .collect();
    for election in &elections {
        election.start().await.unwrap();
        assert!(election.is_leader());
    }
    let before = store.calls.load(Ordering::Relaxed);
    let renewals = || store.verbs().iter().filter(|verb| **verb == "renew").count();
    world.pass_until(|| renewals() >= 3000).await;
    let calls = store.calls.load(Ordering::Relaxed) - before;
    assert!(calls <= 60, "{calls} calls for three renewals of a thousand elections");
    assert!(elections.iter().all(tenure::Election::is_leader));
}

#[tokio::test]
async fn the_change_feed_carries_the_term() {
    let world = World::new();
    let election = world.election("a").build().unwrap();
    let mut changes = election.changes();
    election.start().await.unwrap();
    election.stop().await.unwrap();
    election.start().await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(changes.next().await.unwrap().map(tenure::Term::get));
    }
    assert_eq!(seen, [Some(1), None, Some(2)]);
}

#[tokio::test]
async fn a_reader_that_is_late_is_told_how_much_it_missed() {
    let world = World::new();
    let election = world.election("a").build().unwrap();
    let mut events = election.events();
    for _ in 0..400 {
        election.start().await.unwrap();
        election.stop().await.unwrap();
    }
    let mut missed = 0;
    for _ in 0..1100 {
        match poll_event(&mut events) {
            Some(Event::Missed { count }) => missed += count,
            Some(_) => {}
            None => {
                election.start().await.unwrap();
                election.stop().await.unwrap();
            }
        }
    }
    assert!(missed > 0);
}

#[tokio::test]
async fn bad_settings_are_refused_before_anything_starts() {
    let world = World::new();
    let long = "x".repeat(300);
    let cases = [
        (
            world.election("a").renew_every(Duration::from_secs(2)),
            "renew_every is 2s, more than 1s",
        ),
        (world.election("a").ttl(Duration::from_millis(1)), "renew_every is 333us"),
        (world.election("a").metadata("[1]"), "metadata must be a JSON object"),
        (world.election("a").profile("slow"), "there is no profile"),
        (world.candidate("a").0.election(""), "the name of an election is empty"),
        (world.candidate("a").0.election(&long), "the name of an election has 300 bytes"),
    ];
    for (builder, says) in cases {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().starts_with(says), "{error}");
    }
    let store = Arc::new(world.store.clone());
    let error = tenure::Candidate::builder(store).label("a\nb").build().unwrap_err();
    assert!(error.to_string().contains("control character"), "{error}");
}

fn poll_event(events: &mut tenure::Events) -> Option<Event> {
    use std::future::Future;
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(events.next()).poll(&mut cx) {
        std::task::Poll::Ready(event) => event,
        std::task::Poll::Pending => None,
    }
}
