//! What is counted, seen by a recorder of the program's own. A process has one recorder, which
//! hears of every election in it, so these tests have a binary of their own.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "all/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use common::{Mood, TTL, World, event, leads};
use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use tenure::core::Store as _;
use tenure::{Event, Message};

#[derive(Default)]
struct Recorded {
    counters: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    gauges: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    histograms: Mutex<BTreeMap<String, Arc<Values>>>,
    described: Mutex<Vec<String>>,
}

#[derive(Default)]
struct Values(Mutex<Vec<f64>>);

impl HistogramFn for Values {
    fn record(&self, value: f64) {
        self.0.lock().unwrap().push(value);
    }
}

struct Recording;

static RECORDED: LazyLock<Recorded> = LazyLock::new(|| {
    metrics::set_global_recorder(Recording).expect("it is the only one of this process");
    Recorded::default()
});

impl Recorder for Recording {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        RECORDED.described.lock().unwrap().push(key.as_str().to_owned());
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        RECORDED.described.lock().unwrap().push(key.as_str().to_owned());
    }

    fn describe_histogram(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        RECORDED.described.lock().unwrap().push(key.as_str().to_owned());
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(RECORDED.counters.lock().unwrap().entry(text(key)).or_default().clone())
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(RECORDED.gauges.lock().unwrap().entry(text(key)).or_default().clone())
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let values = RECORDED.histograms.lock().unwrap().entry(text(key)).or_default().clone();
        Histogram::from_arc(values)
    }
}

/// `name{label="value"}`.
fn text(key: &Key) -> String {
    let labels: Vec<String> =
        key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
    format!("{}{{{}}}", key.name(), labels.join(","))
}

/// The recorder is told off the driver's thread, soon after something happened or when asked to.
fn counter(name: &str) -> u64 {
    tenure::refresh_metrics();
    RECORDED.counters.lock().unwrap().get(name).map_or(0, |value| value.load(Ordering::SeqCst))
}

fn gauge(name: &str) -> f64 {
    tenure::refresh_metrics();
    let value = RECORDED.gauges.lock().unwrap().get(name).map(|value| value.load(Ordering::SeqCst));
    f64::from_bits(value.unwrap_or_default())
}

fn histogram(name: &str) -> Vec<f64> {
    tenure::refresh_metrics();
    let values = RECORDED.histograms.lock().unwrap().get(name).cloned();
    values.map(|values| values.0.lock().unwrap().clone()).unwrap_or_default()
}

#[tokio::test]
async fn reigns_and_renewals_are_counted_by_class() {
    LazyLock::force(&RECORDED);
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let one = candidate.election("count:one").ttl(TTL).at_once().start().await.unwrap();
    let two = candidate.election("count:two").ttl(TTL).at_once().start().await.unwrap();
    assert_eq!(counter("leader_acquired_total{key_class=count}"), 2);
    assert_eq!(gauge("leader_is_leader{key_class=count}"), 2.0);
    assert_eq!(gauge("leader_term{key_class=count}"), 1.0);
    let renewals = || counter("leader_renewals_total{key_class=count}");
    world.pass_until(|| renewals() >= 2).await;
    let took = histogram("leader_renewal_duration_seconds{key_class=count}");
    assert!(took.len() >= 2 && took.iter().all(|seconds| *seconds < 1.0), "{took:?}");

    let before = counter("leader_renewal_failures_total{key_class=count}");
    store.set(Mood::Failing);
    world.pass_until(|| !one.is_leader() && !two.is_leader()).await;
    world.pass_until(|| counter("leader_lost_total{key_class=count}") == 2).await;
    assert!(counter("leader_renewal_failures_total{key_class=count}") > before);
    assert_eq!(gauge("leader_is_leader{key_class=count}"), 0.0);
    assert_eq!(gauge("leader_term{key_class=count}"), 0.0);
    assert_eq!(gauge("leader_trust_seconds{key_class=count}"), 0.0);
}

/// A counter that first appears as 1 has not risen, as Prometheus sees it.
#[tokio::test]
async fn counters_are_there_before_there_is_anything_to_count() {
    LazyLock::force(&RECORDED);
    let world = World::new();
    let (candidate, _) = world.candidate("a");
    let _idle = candidate.election("zero:x").ttl(TTL).build().unwrap();
    common::eventually("all are there, without being asked for", || {
        let counters = RECORDED.counters.lock().unwrap();
        let zero = counters.iter().filter(|(name, _)| name.ends_with("{key_class=zero}"));
        zero.filter(|(_, value)| value.load(Ordering::SeqCst) == 0).count() == 4
    })
    .await;
}

#[tokio::test]
async fn elections_without_a_leader_are_counted_by_those_who_take_part() {
    LazyLock::force(&RECORDED);
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let here = || {
        let of = |name: &str| gauge(&format!("leader_{name}{{key_class=part}}"));
        (of("elections"), of("is_leader"), of("leaderless"))
    };
    let watched = candidate.election("part:watched").ttl(TTL).build().unwrap();
    watched.observe().await.unwrap();
    assert_eq!(here(), (0.0, 0.0, 0.0), "who only looks alarms nobody");
    let other = world.candidate("b").0.election("part:x").ttl(TTL).at_once();
    let other = other.per_election_metrics(true).start().await.unwrap();
    let follows = candidate.election("part:x").ttl(TTL).at_once().start().await.unwrap();
    let _leads = candidate.election("part:y").ttl(TTL).at_once().start().await.unwrap();
    assert_eq!(here(), (2.0, 1.0, 0.0), "another leads the one, this process the other");
    store.set(Mood::Failing);
    world.pass_until(|| here() == (2.0, 0.0, 2.0)).await;
    store.set(Mood::Well);
    world.pass_until(|| here() == (2.0, 1.0, 0.0)).await;
    drop(other);
    follows.stop().await.unwrap();
    assert_eq!(here().0, 1.0, "it takes no part any more");
}

#[tokio::test]
async fn changes_of_hands_are_those_of_one_election_and_seen_by_all() {
    LazyLock::force(&RECORDED);
    let world = World::new();
    let (a, b) = (world.candidate("a").0, world.candidate("b").0);
    let changes = |class: &str| gauge(&format!("leader_changes_recent{{key_class={class}}}"));
    let mut quiet = Vec::new();
    for number in 0..10 {
        let name = format!("moves:{number}");
        let first = a.election(&name).ttl(TTL).at_once().start().await.unwrap();
        quiet.push(b.election(&name).ttl(TTL).at_once().start().await.unwrap());
        first.stop().await.unwrap();
    }
    for second in &quiet {
        leads(second).await;
    }
    // Both candidates are of one process here, and each election is counted for each of them.
    assert_eq!(changes("moves"), 1.0, "ten that move once");
    let first = a.election("flaps:x").ttl(TTL).at_once().start().await.unwrap();
    let second = b.election("flaps:x").ttl(TTL).at_once().start().await.unwrap();
    for _ in 0..3 {
        for (from, to) in [(&first, &second), (&second, &first)] {
            from.stop().await.unwrap();
            world.pass_until(|| to.is_leader()).await;
            // One that comes back sees who leads now.
            from.start().await.unwrap();
        }
    }
    world.pass_until(|| changes("flaps") >= 6.0).await;
}

#[tokio::test]
async fn a_renewal_is_overdue_before_leadership_is_lost_and_not_by_a_wide_margin() {
    LazyLock::force(&RECORDED);
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let (margin, drain) = (TTL * 31 / 100, TTL / 100);
    let wide = candidate.election("late:x").ttl(TTL).margin(margin).drain(drain);
    let wide = wide.at_once().start().await.unwrap();
    let overdue = || gauge("leader_renewals_overdue{key_class=late}");
    let renewals = || counter("leader_renewals_total{key_class=late}");
    while renewals() < 5 {
        let before = renewals();
        world.pass_until(|| overdue() > 0.0 || renewals() > before).await;
        assert_eq!(overdue(), 0.0, "it is renewed in time");
    }
    store.set(Mood::Failing);
    world.pass_until(|| overdue() == 1.0 || !wide.is_leader()).await;
    assert!(wide.is_leader(), "there is time to do something");
    world.pass_until(|| !wide.is_leader()).await;
    world.pass_until(|| overdue() == 0.0).await;
}

#[tokio::test]
async fn trust_is_the_shortest_of_the_class_and_is_brought_up_to_date() {
    LazyLock::force(&RECORDED);
    let world = World::new();
    let (candidate, store) = world.untended_candidate("a");
    let _long = candidate.election("trust:a").ttl(TTL * 10).at_once().start().await.unwrap();
    let short = candidate.election("trust:b").ttl(TTL).at_once().start().await.unwrap();
    let trust = || gauge("leader_trust_seconds{key_class=trust}");
    let whole = short.standing().unwrap().remaining.as_secs_f64();
    assert!((trust() - whole).abs() < 1e-6, "{} {whole}", trust());
    store.set(Mood::Hanging);
    world.clock.advance(Duration::from_millis(500));
    tenure::refresh_metrics();
    assert!((trust() - (whole - 0.5)).abs() < 1e-6, "{}", trust());
}

#[tokio::test]
async fn the_ttl_is_the_shortest_of_those_that_are_led() {
    LazyLock::force(&RECORDED);
    let world = World::new();
    let (candidate, _) = world.candidate("a");
    let ttl = || gauge("leader_ttl_seconds{key_class=ttl}");
    let long = candidate.election("ttl:a").ttl(TTL * 10).at_once().start().await.unwrap();
    assert_eq!(ttl(), 30.0);
    let short = candidate.election("ttl:b").ttl(TTL).at_once().start().await.unwrap();
    assert_eq!(ttl(), 3.0);
    short.stop().await.unwrap();
    assert_eq!(ttl(), 30.0, "one that is not led does not count");
    long.stop().await.unwrap();
    assert_eq!(ttl(), 0.0);
}

#[tokio::test]
async fn a_gap_is_measured_by_whoever_takes_over() {
    LazyLock::force(&RECORDED);
    let world = World::new();
    let first = world.candidate("a").0.election("gap:x").ttl(TTL).at_once().start().await.unwrap();
    let second = world.candidate("b").0.election("gap:x").ttl(TTL).at_once().start().await.unwrap();
    assert!(histogram("leader_gap_seconds{key_class=gap}").is_empty(), "the first has no gap");
    first.stop().await.unwrap();
    leads(&second).await;
    // It leads before it is counted.
    let gaps = || histogram("leader_gap_seconds{key_class=gap}");
    common::eventually("a gap is measured", || !gaps().is_empty()).await;
    let gaps = gaps();
    assert_eq!(gaps.len(), 1);
    assert!(gaps[0] < 0.1, "a hint woke it, and no time passed: {gaps:?}");
}

#[tokio::test]
async fn a_label_per_election_is_there_for_those_who_want_it() {
    LazyLock::force(&RECORDED);
    let world = World::new();
    let (candidate, _) = world.candidate("a");
    let own = candidate.election("label:own").ttl(TTL).at_once().per_election_metrics(true);
    let _own = own.start().await.unwrap();
    let _plain = candidate.election("label:plain").ttl(TTL).at_once().start().await.unwrap();
    assert_eq!(counter("leader_acquired_total{key_class=label,election=label:own}"), 1);
    assert_eq!(counter("leader_acquired_total{key_class=label}"), 1);
    assert_eq!(gauge("leader_is_leader{key_class=label,election=label:own}"), 1.0);
    tenure::describe_metrics();
    let described = RECORDED.described.lock().unwrap().clone();
    assert_eq!(described.len(), 19, "{described:?}");
    assert!(described.iter().all(|name| name.starts_with("leader_")));
}

#[tokio::test]
async fn messages_are_counted_and_whoever_leads_shows_their_backlog() {
    LazyLock::force(&RECORDED);
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    store.carries.store(true, Ordering::Relaxed);
    let handler = |message: Message| async move {
        match message.payload.as_str() {
            "1" => Err("on purpose"),
            "2" => Ok(()),
            _ => std::future::pending().await,
        }
    };
    let election =
        candidate.election("mail:x").ttl(TTL).at_once().post_tries(1).on_post("orders", handler);
    let election = election.on_notify("pings", |_| ()).build().unwrap();
    for number in ["1", "2", "3", "4"] {
        election.post("orders", number, number).await.unwrap();
    }
    election.start().await.unwrap();
    election.notify("pings", "{}").await.unwrap();
    let channels = store.channels().unwrap();
    channels.notify(election.name(), "pings", "no JSON").await.unwrap();
    world.pass_until(|| counter("leader_messages_handled_total{key_class=mail}") == 2).await;
    world.pass_until(|| counter("leader_messages_failed_total{key_class=mail}") == 1).await;
    world.pass_until(|| counter("leader_messages_dropped_total{key_class=mail}") == 1).await;
    // One is dead, one is handled, and the two others wait until they are acknowledged.
    world.pass_until(|| gauge("leader_messages_waiting{key_class=mail}") == 2.0).await;
    world.pass_until(|| gauge("leader_messages_dead{key_class=mail}") == 1.0).await;
    store.set(Mood::Failing);
    world.pass_until(|| gauge("leader_messages_waiting{key_class=mail}") == 0.0).await;
    world.pass_until(|| gauge("leader_messages_dead{key_class=mail}") == 0.0).await;
}

#[tokio::test]
async fn a_renewal_that_is_withheld_counts_as_failed() {
    LazyLock::force(&RECORDED);
    let world = World::new();
    let (candidate, _) = world.candidate("a");
    let election = candidate.election("deaf:x").ttl(TTL).at_once().build().unwrap();
    let mut events = election.events();
    let tenure = election.campaign().await.unwrap();
    // Somebody waits for the loss but is never polled again: a blocked program.
    let mut lost = Box::pin(tenure.lost());
    let polled =
        std::future::poll_fn(|cx| std::task::Poll::Ready(lost.as_mut().poll(cx).is_pending()));
    assert!(polled.await);
    world.pass_until(|| counter("leader_renewal_failures_total{key_class=deaf}") > 0).await;
    event(&mut events, |event| matches!(event, Event::RenewalFailed { .. }).then_some(())).await;
}

#[tokio::test]
async fn a_reign_that_goes_on_after_trust_has_ended_is_overdue() {
    let world = World::new();
    let (candidate, store) = world.candidate("a");
    let election = candidate.election("overdue:x").ttl(TTL).at_once().build().unwrap();
    let tenure = election.campaign().await.unwrap();
    let standing = election.standing().unwrap();
    assert_eq!((standing.term, election.overdue()), (tenure.term(), None));
    store.set(Mood::Failing);
    world.pass_until(|| election.standing().is_none()).await;
    assert_eq!(election.overdue(), None, "there is still time to wind up");
    world.pass_until(|| !tenure.is_current()).await;
    world.clock.advance(Duration::from_secs(1));
    let overdue = election.overdue().expect("the tenure is held on");
    assert_eq!(overdue.term, tenure.term());
    assert!(overdue.by >= Duration::from_secs(1), "{overdue:?}");
    drop(tenure);
    world.pass_until(|| election.overdue().is_none()).await;
}

#[tokio::test]
async fn a_driver_that_hangs_is_overdue() {
    let world = World::new();
    let (candidate, store) = world.untended_candidate("a");
    let election = candidate.election("hang:x").ttl(TTL).at_once().start().await.unwrap();
    store.set(Mood::Blocking);
    world.clock.advance(TTL / 3);
    common::eventually("the driver is stuck in a call", || store.is_blocked()).await;
    world.clock.advance(TTL);
    assert!(!election.is_leader(), "trust ends by itself");
    assert!(election.overdue().is_some(), "but nobody has stepped down");
    store.set(Mood::Well);
    common::eventually("it steps down", || election.overdue().is_none()).await;
}

#[tokio::test]
async fn whoever_leads_can_be_asked_to_resign() {
    let world = World::new();
    let first = world.election("a").start().await.unwrap();
    let second = world.election("b").start().await.unwrap();
    let term = first.term();
    assert_eq!(second.ask_to_resign(None).await.unwrap(), term);
    world.pass_until(|| second.is_leader()).await;
    assert_eq!(first.ask_to_resign(term).await.unwrap(), None, "that term is over");
}
