//! I8 over HTTP: whoever was told by a 200 that this instance leads has the drain to end what it
//! began, or says that it is done; those who only look hold up nobody.

use std::time::Duration;

use serde_json::json;
use tenure::{BootClock, Election, MemoryStore};
use tokio::task::JoinHandle;

use crate::common::{self, LIMIT, SECRET, Service, candidate, eventually, with_token};

/// So long that its drain, a sixth of it, outlasts every test: what comes does not come by itself.
const LONG: Duration = Duration::from_secs(600);
/// Short enough to see the drain end.
const SHORT: Duration = Duration::from_secs(3);

/// Two instances; the first one leads.
struct Pair {
    first: Election,
    second: Election,
    a: Service,
    b: Service,
}

impl Pair {
    async fn new(ttl: Duration) -> Pair {
        let store = MemoryStore::new();
        let first = candidate(&store, "a").election("job").ttl(ttl).start().await.unwrap();
        let second = candidate(&store, "b").election("job").ttl(ttl).start().await.unwrap();
        let a = Service::start(with_token(&[&first]).metrics(|| "none".to_owned()));
        let b = Service::start(with_token(&[&second]));
        eventually("the first one leads", async || first.peek().is_some()).await;
        Pair { first, second, a, b }
    }

    /// Begins to end the first one, as `tenure serve` does at TERM.
    async fn stop(&self) -> JoinHandle<()> {
        self.a.sidecar.start_draining();
        let first = self.first.clone();
        let stopping = tokio::runtime::Handle::current().spawn(async move {
            first.stop().await.unwrap();
        });
        eventually("it steps down", async || self.first.peek().is_none()).await;
        stopping
    }

    /// Nobody may answer 200, however often they are asked.
    async fn nobody_leads(&self) {
        for _ in 0..50 {
            assert_eq!(self.b.get("/leader").await.status, 503, "the first one is not done");
            assert_eq!(self.a.get("/leader").await.status, 503);
        }
    }

    async fn second_leads(&self) {
        eventually("the second one leads", async || self.b.get("/leader").await.status == 200)
            .await;
    }
}

#[tokio::test]
async fn after_a_200_nobody_else_answers_200_before_done() {
    for request in [
        ("GET", "/leader", ""),
        ("GET", "/leader/job", ""),
        // These take the way through the router.
        ("GET", "/leader?x=y", ""),
        ("GET", "/leader", "authorization: Bearer 0123456789abcdef0123\r\n"),
        ("OPTIONS", "/leader", ""),
        ("OPTIONS", "/leader/job", ""),
    ] {
        let pair = Pair::new(LONG).await;
        let (method, path, headers) = request;
        assert_eq!(pair.a.ask(method, path, headers, "").await.status, 200, "{request:?}");
        let stopping = pair.stop().await;
        pair.nobody_leads().await;
        assert_eq!(pair.first.winding_up().map(|term| term.get()), Some(1), "{request:?}");
        let answer = pair.a.post("/elections/job/done", r#"{"term": 1}"#).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        pair.second_leads().await;
        tokio::time::timeout(LIMIT, stopping).await.expect("it has ended").unwrap();
    }
}

#[tokio::test]
async fn without_done_the_lease_is_given_back_when_the_drain_is_over() {
    let pair = Pair::new(SHORT).await;
    assert_eq!(pair.a.get("/leader").await.status, 200);
    let began = BootClock::time();
    let stopping = pair.stop().await;
    pair.second_leads().await;
    let kept = BootClock::time() - began;
    assert!(kept >= pair.first.timing().drain, "{kept:?}");
    assert_eq!(pair.second.peek().unwrap().term.get(), 2);
    tokio::time::timeout(LIMIT, stopping).await.expect("it has ended").unwrap();
}

#[tokio::test]
async fn looking_holds_up_nobody() {
    let pair = Pair::new(LONG).await;
    let mut stream = common::Stream::open(&pair.a, "", "").await;
    stream.event("snapshot").await;
    for path in ["/leader", "/leader/job", "/leader?x=y"] {
        assert_eq!(pair.a.ask("HEAD", path, "", "").await.status, 200, "{path}");
    }
    let paths = ["/", "/elections", "/elections/job", "/metrics", "/healthz", "/readyz"];
    for path in paths {
        assert_eq!(pair.a.get(path).await.status, 200, "{path}");
    }
    // A 503 told nobody that it leads.
    assert_eq!(pair.b.get("/leader").await.status, 503);
    let stopping = pair.stop().await;
    tokio::time::timeout(LIMIT, stopping).await.expect("nothing is waited for").unwrap();
    pair.second_leads().await;
}

#[tokio::test]
async fn done_while_it_leads_counts_for_the_answers_so_far() {
    let pair = Pair::new(LONG).await;
    assert_eq!(pair.a.get("/leader").await.status, 200);
    let answer = pair.a.post("/elections/job/done?term=1", "").await;
    assert_eq!((answer.status, &answer.json()["outcome"]), (200, &json!("done")));
    let stopping = pair.stop().await;
    tokio::time::timeout(LIMIT, stopping).await.expect("nothing is waited for").unwrap();

    let pair = Pair::new(LONG).await;
    assert_eq!(pair.a.post("/elections/job/done?term=1", "").await.status, 200);
    assert_eq!(pair.a.get("/leader").await.status, 200, "told again");
    let _stopping = pair.stop().await;
    pair.nobody_leads().await;
    assert_eq!(pair.a.post("/elections/job/done?term=1", "").await.status, 200);
    pair.second_leads().await;
}

#[tokio::test]
async fn done_needs_the_token_and_the_right_term() {
    let pair = Pair::new(LONG).await;
    let path = "/elections/job/done";
    pair.a.ask("POST", path, "", r#"{"term": 1}"#).await.problem(401);
    assert!(pair.a.post(path, "").await.problem(400).contains("which term"));
    assert!(pair.a.post(path, "{}").await.problem(400).contains("which term"));
    for bad in ["?term=", "?term=x", "?term=-1", "?term=0", "?term=9007199254740992"] {
        pair.a.post(&format!("{path}{bad}"), "").await.problem(400);
    }
    for bad in ["7", r#"{"term": "1"}"#, r#"{"term": 1, "x": 2}"#, "{"] {
        pair.a.post(path, bad).await.problem(400);
    }
    let differ = pair.a.post("/elections/job/done?term=2", r#"{"term": 1}"#).await;
    assert!(differ.problem(409).contains("different"), "{differ:?}");
    for wrong in [2, 7_000] {
        let answer = pair.a.post(path, &json!({ "term": wrong }).to_string()).await;
        answer.problem(409);
        assert_eq!(answer.json()["term"], 1, "{answer:?}");
    }
    // The other instance holds nothing.
    let answer = pair.b.post(path, r#"{"term": 1}"#).await;
    assert!(answer.problem(409).contains("holds no lease"), "{answer:?}");
    pair.a.post("/elections/nope/done", r#"{"term": 1}"#).await.problem(404);
    // None of it was taken for a done.
    assert_eq!(pair.a.get("/leader").await.status, 200);
    let _stopping = pair.stop().await;
    for wrong in ["?term=2", "?term=x", ""] {
        let token = format!("authorization: Bearer {SECRET}\r\n");
        let answer = pair.a.ask("POST", &format!("{path}{wrong}"), &token, "").await;
        assert!([400, 409].contains(&answer.status), "{answer:?}");
    }
    pair.nobody_leads().await;
    assert_eq!(pair.a.post("/elections/job/done?term=1", r#"{"term": 1}"#).await.status, 200);
    pair.second_leads().await;
    eventually("an old term is told as such", async || {
        pair.a.post(path, r#"{"term": 1}"#).await.status == 409
    })
    .await;
}

#[tokio::test]
async fn a_200_says_how_long_it_may_be_relied_on() {
    let pair = Pair::new(SHORT).await;
    assert_eq!(pair.a.get("/leader").await.json()["drain_ms"], 500);
    assert_eq!(pair.b.get("/leader").await.json()["drain_ms"], json!(null));
}

#[tokio::test]
async fn at_once_waits_for_nobody() {
    let store = MemoryStore::new();
    let first = candidate(&store, "a").election("job").ttl(LONG).at_once();
    let first = first.start().await.unwrap();
    let a = Service::start(with_token(&[&first]));
    assert_eq!(a.get("/leader").await.status, 200);
    tokio::time::timeout(LIMIT, first.stop()).await.expect("nothing is waited for").unwrap();
}
