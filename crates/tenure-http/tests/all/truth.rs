//! What is told of others: who leads now, how long that lasts, and when it ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tenure::core::{BoxFuture, CandidateId, Error, ErrorKind, Op, Reply};
use tenure::{BootClock, Candidate, Clock as _, Election, MemoryStore, Metadata, Name, Store};
use tenure_testkit::ManualClock;

use crate::common::{SECRET, Service, Stream, TTL, candidate, eventually, with_token};

const URL: &str = r#"{"url": "http://10.0.0.9:8080/"}"#;

/// A store that can be taken away.
struct Fickle {
    inner: MemoryStore,
    away: AtomicBool,
}

impl Store for Fickle {
    fn apply<'a>(&'a self, ops: &'a [Op]) -> BoxFuture<'a, Vec<Reply>> {
        if self.away.load(Ordering::SeqCst) {
            let away = || Reply::Unknown(Error::new(ErrorKind::Unavailable, "away"));
            let replies = ops.iter().map(|_| away()).collect();
            return Box::pin(async { replies });
        }
        self.inner.apply(ops)
    }

    tenure::core::forward!(inner: hints, info, faces);
}

/// A follower on a clock driven by hand, and a leader that is killed: it never renews.
struct Scene {
    clock: ManualClock,
    store: Arc<Fickle>,
    follower: Election,
    candidate: Candidate,
}

impl Scene {
    async fn new() -> Scene {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1000));
        let inner = MemoryStore::with_clock(Arc::new(clock.clone()));
        let store = Arc::new(Fickle { inner, away: AtomicBool::new(false) });
        let granted = store.apply(&[acquire(TTL)]).await;
        assert!(matches!(granted[..], [Reply::Granted(_)]), "{granted:?}");
        let candidate = Candidate::builder(store.clone()).label("b").clock(Arc::new(clock.clone()));
        let candidate = candidate.build().unwrap();
        let follower = candidate.election("job").ttl(TTL).start().await.unwrap();
        Scene { clock, store, follower, candidate }
    }

    /// Lets time pass in small steps, with turns for the driver in each.
    async fn pass(&self, span: Duration) {
        let until = self.clock.now() + span;
        while self.clock.now() < until {
            self.clock.advance(Duration::from_millis(10));
            for _ in 0..3 {
                self.candidate.synchronize().await;
            }
        }
    }
}

fn job() -> Name {
    Name::new("job").unwrap()
}

fn killed() -> CandidateId {
    CandidateId::new("a", 7).unwrap()
}

fn acquire(ttl: Duration) -> Op {
    Op::Acquire {
        election: job(),
        candidate: killed(),
        seq: 1,
        above: None,
        floor: None,
        ttl,
        metadata: Some(Metadata::new(URL).unwrap()),
    }
}

#[tokio::test]
async fn whoever_resigned_soon_tells_who_followed() {
    let store = MemoryStore::new();
    // So long that nothing here can wait for the next attempt of whoever resigned.
    let ttl = Duration::from_secs(600);
    let first = candidate(&store, "a").election("job").ttl(ttl).start().await.unwrap();
    let second = candidate(&store, "b").election("job").ttl(ttl).metadata(URL);
    let second = second.start().await.unwrap();
    let a = Service::start(with_token(&[&first]));
    let mut stream = Stream::open(&a, "", "").await;
    assert_eq!(a.post("/elections/job/resign", "").await.status, 200);
    eventually("b leads", async || second.is_leader()).await;
    // For a moment it may have seen nobody.
    let mut told = stream.event("leader_changed").await.1;
    if told["state"]["label"].is_null() {
        told = stream.event("leader_changed").await.1;
    }
    assert_eq!((&told["state"]["label"], &told["state"]["term"]), (&json!("b"), &json!(2)));
    let answer = a.get("/leader").await;
    assert_eq!((answer.status, &answer.json()["label"]), (503, &json!("b")));
    let answer = a.get("/leader?redirect=url").await;
    assert_eq!(answer.header("location"), Some("http://10.0.0.9:8080/"), "{answer:?}");
    let history = a.get("/elections/job").await.json()["history"].clone();
    assert_eq!((&history[0]["label"], &history[1]["label"]), (&json!("b"), &json!("a")));
}

#[tokio::test]
async fn a_leader_that_renews_is_told_as_such_after_nobody_asked_for_long() {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1000));
    let store = MemoryStore::with_clock(Arc::new(clock.clone()));
    let one = |label: &str| {
        let builder = Candidate::builder(Arc::new(store.clone())).label(label);
        builder.clock(Arc::new(clock.clone())).build().unwrap()
    };
    let (a, b) = (one("a"), one("b"));
    let leader = a.election("job").ttl(TTL).metadata(URL).start().await.unwrap();
    let follower = b.election("job").ttl(TTL).start().await.unwrap();
    let service = Service::start(with_token(&[&follower]));
    let started = clock.now();
    // One and a half of what was told at first: that lease would be over, had nobody renewed it.
    while clock.now() < started + TTL + TTL / 2 {
        clock.advance(Duration::from_millis(10));
        for _ in 0..3 {
            a.synchronize().await;
            b.synchronize().await;
        }
    }
    assert!(leader.is_leader());
    // The first answer must be right: nobody has looked for it yet.
    let answer = service.get("/leader").await.json();
    assert!(answer["remaining_ms"].as_u64().unwrap() > 0, "{answer}");
    assert_eq!(service.get("/leader?redirect=url").await.status, 307);
}

#[tokio::test]
async fn nobody_is_sent_to_a_leader_whose_lease_has_run_out() {
    let scene = Scene::new().await;
    let service = Service::start(with_token(&[&scene.follower]));
    assert_eq!(service.get("/leader?redirect=url").await.status, 307);
    scene.store.away.store(true, Ordering::SeqCst);
    scene.pass(TTL).await;
    assert!(!scene.follower.is_leader(), "nobody can take over");
    service.get("/leader?redirect=url").await.problem(503);
    let answer = service.get("/leader").await;
    assert_eq!((answer.status, &answer.json()["remaining_ms"]), (503, &json!(0)));
}

#[tokio::test]
async fn a_reign_that_was_cut_short_ends_with_its_lease_and_leaves_a_gap() {
    // On the real clock, by which reigns are dated.
    let ttl = Duration::from_millis(600);
    let store = Fickle { inner: MemoryStore::new(), away: AtomicBool::new(false) };
    let store = Arc::new(store);
    store.apply(&[acquire(ttl)]).await;
    let killed_at = BootClock::time();
    let candidate = Candidate::builder(store.clone()).label("b").build().unwrap();
    let follower = candidate.election("job").ttl(ttl).start().await.unwrap();
    let service = Service::start(with_token(&[&follower]));
    store.away.store(true, Ordering::SeqCst);
    eventually("time passes", async || BootClock::time() >= killed_at + ttl * 3).await;
    store.away.store(false, Ordering::SeqCst);
    eventually("b leads", async || follower.is_leader()).await;
    let history = async || service.get("/elections/job").await.json()["history"].clone();
    eventually("both are known", async || history().await.as_array().unwrap().len() == 2).await;
    let history: Value = history().await;
    assert_eq!((&history[0]["label"], &history[1]["label"]), (&json!("b"), &json!("a")));
    let gap_ms = history[0]["gap_ms"].as_u64().unwrap();
    assert!(u128::from(gap_ms) >= ttl.as_millis() * 3 / 2, "{history}");
}

#[tokio::test]
async fn who_drains_sends_nobody_to_itself() {
    let store = MemoryStore::new();
    let election = candidate(&store, "a").election("job").metadata(URL).start().await.unwrap();
    let service = Service::start(with_token(&[&election]));
    assert_eq!(service.get("/leader?redirect=url").await.status, 307);
    service.sidecar.start_draining();
    assert_eq!(service.get("/leader?redirect=url").await.status, 503);
    assert!(election.is_leader(), "it still leads");
}

#[tokio::test]
async fn a_name_with_a_slash_is_found_by_its_code_and_by_nothing_else() {
    let store = MemoryStore::new();
    let election = candidate(&store, "a").election("a/b").start().await.unwrap();
    let service = Service::start(with_token(&[&election]));
    for token in ["", &format!("authorization: Bearer {SECRET}\r\n")] {
        assert_eq!(service.ask("GET", "/leader/a%2Fb", token, "").await.status, 200);
        service.ask("GET", "/leader/a/b", token, "").await.problem(404);
    }
}
