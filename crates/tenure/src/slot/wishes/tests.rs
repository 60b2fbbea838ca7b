//! What only shows inside of a slot: its wishes, whom it tells, and what it keeps back.

use std::task::{Context, Poll, Waker};

use tenure_core::{CandidateId, Grant, Holder, Lease, Name, Settings, Sight, Timing};

use super::super::*;
use crate::clock::AnyClock;
use crate::feed::Events;
use crate::runtime::{Runtime, Threads};

const TTL: std::time::Duration = std::time::Duration::from_secs(3);

/// A slot and what it writes to.
struct Bench {
    slot: Slot,
    shared: Arc<Shared>,
    schedule: Schedule,
    rng: fastrand::Rng,
    sends: Vec<(u64, Op)>,
    now: Time,
}

impl Bench {
    fn new(relay: Option<mpsc::Sender<Notice>>) -> Bench {
        Bench::with(relay, None)
    }

    fn with(
        relay: Option<mpsc::Sender<Notice>>,
        dispatcher: Option<mpsc::UnboundedSender<Order>>,
    ) -> Bench {
        let (name, timing) = (Name::new("jobs").unwrap(), Timing::new(TTL));
        let id = CandidateId::new("me", 1).unwrap();
        let origin = tenure_fork::Origin::here().unwrap();
        let shared = Shared::new(name.clone(), id.clone(), timing, AnyClock::Boot, origin);
        let shared = Arc::new(shared);
        let runtime: Arc<dyn Runtime> = Arc::new(Threads);
        let announcer = Announcer::start(AnyClock::Boot, &runtime).unwrap();
        let telemetry = Telemetry::start(&*runtime).unwrap();
        let new = NewSlot {
            id: 1,
            settings: Settings::new(name, id, timing),
            shared: shared.clone(),
            relay,
            callbacks: Promises::default(),
            dispatcher,
        };
        let slot = Slot::new(new, Past::default(), announcer, telemetry);
        let (schedule, sends, now) = (Schedule::default(), Vec::new(), shared.clock.now());
        Bench { slot, shared, schedule, rng: fastrand::Rng::with_seed(1), sends, now }
    }

    fn act<T>(&mut self, act: impl FnOnce(&mut Slot, Time, &mut Io<'_>) -> T) -> T {
        let Bench { slot, schedule, rng, sends, now, .. } = self;
        act(slot, *now, &mut Io { schedule, rng, sends })
    }

    fn start(&mut self) -> oneshot::Receiver<Result<(), Error>> {
        let (done, started) = oneshot::channel();
        self.act(|slot, now, io| slot.start(now, done, io));
        started
    }

    fn reply(&mut self, reply: Reply) {
        self.act(|slot, now, io| slot.reply(now, now, reply, io));
    }

    /// The lease is granted as the first term.
    fn grant(&mut self) {
        self.reply(Reply::Granted(Grant::new(Term::new(1).unwrap())));
        assert!(self.shared.status.borrow().reign.is_some());
    }

    fn sent(&mut self) -> Vec<&'static str> {
        self.sends.drain(..).map(|(_, op)| op.verb()).collect()
    }
}

fn held() -> Sight {
    let other = CandidateId::new("other", 2).unwrap();
    let lease = Lease {
        holder: Holder::new(other.to_string()),
        term: Term::new(7),
        remaining: TTL,
        ttl: Some(TTL),
        since_unix_ms: None,
        metadata: None,
    };
    Sight { lease: Some(lease), ..Sight::default() }
}

/// What has been told so far.
fn told(events: &mut Events) -> Vec<Event> {
    let mut all = Vec::new();
    loop {
        let mut next = std::pin::pin!(events.next());
        match next.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(event)) => all.push(event),
            _ => return all,
        }
    }
}

#[test]
fn a_reign_that_nobody_took_is_given_back_when_the_last_who_waited_goes() {
    let mut bench = Bench::new(None);
    bench.act(|slot, now, io| slot.enter(now, 0, io));
    bench.grant();
    bench.sent();
    let reign = bench.shared.status.borrow().reign.clone().unwrap();
    bench.act(|slot, now, io| slot.exit(now, 0, io));
    assert_eq!(bench.sent(), ["release"]);
    assert!(bench.slot.machine().leading().is_none() && !reign.claim());
    assert!(bench.slot.wish == Wish::Rest, "nobody asked to observe");
}

#[test]
fn a_second_who_campaigns_changes_nothing() {
    let mut bench = Bench::new(None);
    let mut events = Events::of(&bench.shared, false);
    for _ in 0..3 {
        bench.act(|slot, now, io| slot.enter(now, 0, io));
    }
    let all = told(&mut events);
    assert_eq!(all.iter().filter(|event| matches!(event, Event::Campaigning)).count(), 1);
}

#[test]
fn whoever_starts_waits_for_an_attempt_also_if_another_did_before() {
    let mut bench = Bench::new(None);
    let _both = (bench.start(), bench.start());
    assert_eq!(bench.slot.first_reply.len(), 2);
    bench.grant();
    assert_eq!(bench.slot.first_reply.len(), 0);
    let _third = bench.start();
    assert_eq!(bench.slot.first_reply.len(), 0, "there was one");
}

#[test]
fn a_look_at_a_lease_that_is_held_is_as_good_as_an_acquire() {
    let comes_to = |sight: Sight| Attempt::Look.comes_to(&Outcome::Seen(sight));
    assert!(comes_to(held()) == Wish::Campaign);
    assert!(comes_to(Sight::default()) == Wish::Observe, "an acquire follows");
}

#[test]
fn no_lease_is_taken_if_nobody_can_be_told() {
    let (relay, notices) = mpsc::channel(256);
    let mut bench = Bench::new(Some(relay));
    drop(notices);
    let _started = bench.start();
    assert_eq!(bench.sent(), [] as [&str; 0]);
    assert_eq!(bench.slot.first_reply.len(), 0, "that was the attempt");
}

#[test]
fn no_lease_is_taken_if_nobody_can_handle_messages() {
    let (dispatcher, orders) = mpsc::unbounded_channel();
    let mut bench = Bench::with(None, Some(dispatcher));
    drop(orders);
    let _started = bench.start();
    assert_eq!(bench.sent(), [] as [&str; 0]);
}

/// The reign is announced with what the last renewal granted, not with what the first grant did.
#[test]
fn a_lease_that_is_renewed_before_anybody_listens_lasts_longer() {
    let (dispatcher, _orders) = mpsc::unbounded_channel();
    let mut bench = Bench::with(None, Some(dispatcher));
    let _started = bench.start();
    let grant = || Reply::Granted(Grant::new(Term::new(1).unwrap()));
    bench.reply(grant());
    bench.sent();
    let until = bench.slot.pending.as_ref().unwrap().until;
    while !bench.sent().contains(&"renew") {
        bench.now = bench.now + TTL / 60;
        bench.act(|slot, now, io| slot.handle(now, Input::Tick, io));
    }
    bench.reply(grant());
    assert!(bench.slot.pending.as_ref().unwrap().until > until);
}

#[test]
fn what_the_machine_reports_is_told() {
    let mut bench = Bench::new(None);
    let mut events = Events::of(&bench.shared, false);
    let term = |number| Term::new(number).unwrap();
    bench.slot.report(Report::Settling { left: TTL });
    bench.slot.report(Report::StoreClockStepped { by: TTL, ahead: true });
    bench.slot.report(Report::DuplicateLabel { holder: Holder::new("me#2") });
    bench.slot.report(Report::TermFell { granted: term(1), least: term(2) });
    let all = told(&mut events);
    assert!(
        matches!(
            all[..],
            [
                Event::Settling { .. },
                Event::StoreClockStepped { ahead: true, .. },
                Event::DuplicateLabel { .. },
                Event::TermFell { .. },
            ]
        ),
        "{all:?}"
    );
}

/// One who is blocked keeps no lease, and that is an error like any other.
#[test]
fn a_renewal_that_is_kept_back_is_told() {
    let mut bench = Bench::new(None);
    let mut events = Events::of(&bench.shared, false);
    let _silent = bench.shared.vouching.listen();
    let _started = bench.start();
    bench.grant();
    bench.sent();
    let (mut kept_back, end) = (0, bench.now + TTL);
    while bench.now < end {
        bench.now = bench.now + TTL / 60;
        bench.act(|slot, now, io| slot.handle(now, Input::Tick, io));
        if bench.sent().contains(&"renew") {
            panic!("nobody vouches for it");
        }
        let failed = |event: &Event| matches!(event, Event::RenewalFailed { .. });
        kept_back += told(&mut events).iter().filter(|event| failed(event)).count();
    }
    assert!(kept_back > 0 && bench.slot.machine().leading().is_none());
}

/// Callbacks that have answered before their runtime ended are as good as any.
#[test]
fn a_reign_whose_callbacks_have_answered_is_given_back() {
    let reign = Arc::new(Reign::new(Term::new(1).unwrap(), Time::ZERO, Time::MAX));
    let mut ongoing = Ongoing::new(reign);
    ongoing.reason = Some(Reason::Resigned);
    let verdict = |ongoing: &Ongoing| ongoing.verdict(true, crate::sabotage::Faults::default());
    assert!(matches!(verdict(&ongoing), Some(Input::Drained)));
    ongoing.awaits_relay = true;
    assert!(matches!(verdict(&ongoing), Some(Input::RunOut)), "nobody said that they are done");
}
