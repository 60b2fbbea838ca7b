//! Every route, as programs and load balancers see it.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::MemoryStore;
use tenure_http::{Sidecar, Token};

use crate::common::{self, SECRET, Service, Stream, TTL, candidate, eventually, with_token};

#[tokio::test]
async fn whoever_leads_answers_200_and_everybody_else_503_naming_the_leader() {
    let store = MemoryStore::new();
    let metadata = r#"{"url": "http://10.0.0.7:8080/x"}"#;
    let first = candidate(&store, "a").election("job").ttl(TTL).metadata(metadata);
    let first = first.start().await.unwrap();
    let second = candidate(&store, "b").election("job").ttl(TTL).start().await.unwrap();
    let (a, b) = (Service::start(with_token(&[&first])), Service::start(with_token(&[&second])));

    for path in ["/leader", "/leader/job"] {
        let answer = a.get(path).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let json = answer.json();
        assert_eq!((&json["is_leader"], &json["label"]), (&json!(true), &json!("a")));
        assert_eq!((&json["term"], &json["election"]), (&json!(1), &json!("job")));
        assert!(json["remaining_ms"].as_u64().unwrap() <= 3000);
        assert!(json["since"].as_str().unwrap().ends_with('Z'));
        assert_eq!(json["metadata"]["url"], "http://10.0.0.7:8080/x");
        let answer = b.get(path).await;
        assert_eq!(answer.status, 503, "{answer:?}");
        let json = answer.json();
        assert_eq!((&json["is_leader"], &json["label"]), (&json!(false), &json!("a")));
        assert_eq!(json["metadata"]["url"], "http://10.0.0.7:8080/x");
        for (service, status) in [(&a, 200), (&b, 503)] {
            for method in ["HEAD", "OPTIONS"] {
                let answer = service.ask(method, path, "", "").await;
                assert_eq!((answer.status, answer.body.as_str()), (status, ""), "{method}");
            }
        }
        let redirected = b.get(&format!("{path}?redirect=url")).await;
        assert_eq!(redirected.status, 307);
        assert_eq!(redirected.header("location"), Some("http://10.0.0.7:8080/x"));
    }
    first.stop().await.unwrap();
    eventually("b takes over", async || b.get("/leader").await.status == 200).await;
    assert_eq!(a.get("/leader").await.status, 503);
}

#[tokio::test]
async fn a_follower_keeps_telling_how_long_the_lease_of_the_leader_lasts() {
    let store = MemoryStore::new();
    let first = candidate(&store, "a").election("job").ttl(TTL).start().await.unwrap();
    let second = candidate(&store, "b").election("job").ttl(TTL).start().await.unwrap();
    let b = Service::start(with_token(&[&second]));
    let remaining = async || b.get("/leader").await.json()["remaining_ms"].as_u64().unwrap();
    let (mut last, mut grew) = (remaining().await, false);
    // It is renewed without an event: what is told must not run down to nothing.
    eventually("the countdown starts again", async || {
        let now = remaining().await;
        grew |= now > last;
        last = now;
        grew
    })
    .await;
    assert!(first.is_leader());
}

#[tokio::test]
async fn leader_without_a_name_is_for_those_who_have_one_election() {
    let store = MemoryStore::new();
    let candidate = candidate(&store, "a");
    let one = candidate.election("one").start().await.unwrap();
    let two = candidate.election("two").start().await.unwrap();
    let service = Service::start(with_token(&[&one, &two]));
    let answer = service.get("/leader").await;
    assert!(answer.problem(400).contains("/leader/NAME"));
    assert_eq!(answer.json()["known"], json!(["one", "two"]));
    let none = Service::start(Sidecar::builder());
    none.get("/leader").await.problem(400);
}

#[tokio::test]
async fn what_is_not_there_is_told_with_what_is() {
    let store = MemoryStore::new();
    let election = candidate(&store, "a").election("a/b c").start().await.unwrap();
    let service = Service::start(with_token(&[&election]));
    assert_eq!(service.get("/leader/a%2Fb%20c").await.status, 200);
    for path in ["/leader/x", "/elections/x", "/events?election=x"] {
        let answer = service.get(path).await;
        assert!(answer.problem(404).contains("no election \"x\""), "{answer:?}");
        assert_eq!(answer.json()["known"], json!(["a/b c"]));
    }
    service.post("/elections/x/resign", "").await.problem(404);
    service.get("/leader/%ff").await.problem(400);
    service.get("/leader?redirect=%ff").await.problem(400);
    for path in ["/nope", "/leader/", "/elections/a/b/c", "//leader", "/../leader", "/leader/a/b"] {
        let answer = service.get(path).await;
        answer.problem(404);
        assert!(answer.body.contains("openapi.json"), "{answer:?}");
    }
    for (method, path) in [("DELETE", "/leader"), ("POST", "/"), ("GET", "/elections/x/resign")] {
        let answer = service.ask(method, path, "", "").await;
        answer.problem(405);
        assert!(answer.header("allow").is_some(), "{answer:?}");
    }
    assert_eq!(service.get("/metrics").await.problem(404), "this service renders no metrics");
}

#[tokio::test]
async fn nothing_but_what_the_leader_published_is_redirected_to() {
    let store = MemoryStore::new();
    let metadata = r#"{"bad": "javascript:alert(1)", "number": 7, "user": "http://a@b/"}"#;
    let election = candidate(&store, "a").election("job").metadata(metadata);
    let election = election.start().await.unwrap();
    let service = Service::start(with_token(&[&election]));
    for key in ["bad", "number", "user"] {
        service.get(&format!("/leader?redirect={key}")).await.problem(502);
    }
    let answer = service.get("/leader?redirect=http://evil.example").await;
    answer.problem(404);
    assert_eq!(answer.json()["known"], json!(["bad", "number", "user"]));
    election.stop().await.unwrap();
    service.get("/leader?redirect=bad").await.problem(503);
}

#[tokio::test]
async fn an_election_has_a_history_of_reigns_and_gaps() {
    let store = MemoryStore::new();
    let first = candidate(&store, "a").election("job").ttl(TTL).start().await.unwrap();
    let second = candidate(&store, "b").election("job").ttl(TTL).start().await.unwrap();
    let service = Service::start(with_token(&[&second]));
    first.stop().await.unwrap();
    let history = async || service.get("/elections/job").await.json()["history"].clone();
    eventually("the hand-over is seen", async || history().await.as_array().unwrap().len() == 2)
        .await;
    let reigns = history().await;
    assert_eq!((&reigns[0]["label"], &reigns[0]["term"]), (&json!("b"), &json!(2)));
    assert_eq!((&reigns[1]["label"], &reigns[1]["term"]), (&json!("a"), &json!(1)));
    assert_eq!(reigns[0]["to"], Value::Null, "it goes on");
    assert!(reigns[0]["gap_ms"].as_u64().unwrap() < 3000);
    second.stop().await.unwrap();
    eventually("its end is seen", async || history().await[0]["reason"] == json!("resigned")).await;
}

#[tokio::test]
async fn resigning_needs_the_token_and_says_whom_it_asked() {
    let store = MemoryStore::new();
    let first = candidate(&store, "a").election("job").ttl(TTL).start().await.unwrap();
    let second = candidate(&store, "b").election("job").ttl(TTL).start().await.unwrap();
    let (a, b) = (Service::start(with_token(&[&first])), Service::start(with_token(&[&second])));
    let path = "/elections/job/resign";
    let answer = a.ask("POST", path, "", "").await;
    assert!(answer.problem(401).contains("Bearer TOKEN"), "{answer:?}");
    assert!(answer.header("www-authenticate").is_some());
    a.ask("POST", path, "authorization: Bearer wrong\r\n", "").await.problem(401);
    assert!(a.post(path, "{\"term\": oh}").await.problem(400).contains("line 1, column 10"));
    a.post(path, "[1]").await.problem(400);
    a.post(path, "{\"term\": 0}").await.problem(400);
    a.post(path, "{\"who\": 1}").await.problem(400);
    assert!(a.post(path, "{\"term\": 7}").await.problem(409).contains("as term 7"));
    assert!(first.is_leader(), "nothing has happened yet");

    let answer = a.post(path, "{\"term\": 1}").await;
    assert_eq!((answer.status, &answer.json()["outcome"]), (200, &json!("resigned")));
    eventually("b leads", async || second.is_leader()).await;
    // Asked of the wrong one, it is passed on through the store.
    let answer = a.post(path, "").await;
    assert_eq!((answer.status, &answer.json()["outcome"]), (202, &json!("asked")));
    assert_eq!(answer.json()["term"], 2);
    eventually("b has resigned", async || b.get("/leader").await.status == 503).await;
}

#[tokio::test]
async fn without_a_configured_token_nobody_changes_anything() {
    let store = MemoryStore::new();
    let election = candidate(&store, "a").election("job").start().await.unwrap();
    let service = Service::start(Sidecar::builder().election(election.clone()));
    for headers in ["", "authorization: Bearer x\r\n"] {
        let answer = service.ask("POST", "/elections/job/resign", headers, "").await;
        assert!(answer.problem(401).contains("none is configured"), "{answer:?}");
    }
    assert!(election.is_leader());
}

#[tokio::test]
async fn wrong_tokens_are_refused_each_time_and_never_lock_out_the_right_one() {
    let store = MemoryStore::new();
    let election = candidate(&store, "a").election("job").start().await.unwrap();
    let service = Service::start(with_token(&[&election]));
    for number in 0..50 {
        let wrong = format!("authorization: Bearer wrong-{number}\r\n");
        service.ask("POST", "/elections/job/resign", &wrong, "").await.problem(401);
        // From the same address, as it is behind a proxy: it had guessed nothing.
        service.post("/elections/nope/resign", "").await.problem(404);
    }
    assert_eq!(service.get("/leader").await.status, 200, "reading goes on");
}

#[tokio::test]
async fn reading_can_need_the_token_too() {
    let store = MemoryStore::new();
    let election = candidate(&store, "a").election("job").start().await.unwrap();
    let builder = with_token(&[&election]).token_for_reading(true);
    let service = Service::start(builder);
    let token = format!("authorization: Bearer {SECRET}\r\n");
    for path in ["/leader", "/elections", "/elections/job", "/events", "/metrics", "/nope"] {
        service.get(path).await.problem(401);
    }
    assert_eq!(service.ask("GET", "/leader", &token, "").await.status, 200);
    for path in ["/", "/healthz", "/readyz", "/openapi.json"] {
        assert_eq!(service.get(path).await.status, 200, "{path}");
    }
    service.sidecar.set_token(Token::new("another-token-0123456789").unwrap());
    service.ask("GET", "/leader", &token, "").await.problem(401);
}

#[tokio::test]
async fn a_name_that_is_not_ours_is_refused_unless_it_comes_with_the_token() {
    let store = MemoryStore::new();
    let election = candidate(&store, "a").election("job").start().await.unwrap();
    let service = Service::start(with_token(&[&election]).host("tenure.internal"));
    for host in ["localhost:7070", "127.0.0.1:1", "[::1]", "tenure.internal:80"] {
        assert_eq!(
            service.ask("GET", "/leader", &format!("host: {host}\r\n"), "").await.status,
            200
        );
    }
    let strange = "host: rebound.example:7070\r\n";
    let answer = service.ask("GET", "/leader", strange, "").await;
    assert!(answer.problem(421).contains("--allow-host"), "{answer:?}");
    let known = format!("{strange}authorization: Bearer {SECRET}\r\n");
    assert_eq!(service.ask("GET", "/leader", &known, "").await.status, 200);
    // The name in the line of the request counts, not the header.
    let line = "GET http://rebound.example/leader HTTP/1.1\r\nhost: localhost\r\n\
                connection: close\r\n\r\n";
    service.raw(line.as_bytes()).await.unwrap().problem(421);
    let nameless = "GET /leader HTTP/1.1\r\nconnection: close\r\n\r\n";
    service.raw(nameless.as_bytes()).await.unwrap().problem(400);
    let old = "OPTIONS /leader HTTP/1.0\r\n\r\n";
    assert_eq!(service.raw(old.as_bytes()).await.unwrap().status, 200, "an old health check");
}

#[tokio::test]
async fn answers_are_not_kept_not_framed_and_not_shared_with_other_sites() {
    let store = MemoryStore::new();
    let election = candidate(&store, "a").election("job").start().await.unwrap();
    let service = Service::start(with_token(&[&election]));
    for path in ["/", "/leader", "/nope", "/elections", "/openapi.json"] {
        let answer = service.ask("GET", path, "origin: http://evil.example\r\n", "").await;
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert!(!answer.head.contains("access-control"), "{path}");
    }
}

#[tokio::test]
async fn draining_answers_503_while_it_still_leads() {
    let store = MemoryStore::new();
    let election = candidate(&store, "a").election("job").start().await.unwrap();
    let service = Service::start(with_token(&[&election]));
    assert_eq!(service.get("/readyz").await.status, 200);
    service.sidecar.start_draining();
    assert!(election.is_leader());
    for method in ["GET", "HEAD", "OPTIONS"] {
        assert_eq!(service.ask(method, "/leader", "", "").await.status, 503, "{method}");
    }
    service.get("/readyz").await.problem(503);
    assert_eq!(service.get("/healthz").await.status, 200, "it is going, not ill");
}

#[tokio::test]
async fn ready_means_that_the_store_was_asked() {
    let store = MemoryStore::new();
    let election = candidate(&store, "a").election("job").build().unwrap();
    let service = Service::start(with_token(&[&election]));
    service.get("/readyz").await.problem(503);
    election.start().await.unwrap();
    assert_eq!(service.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn health_fails_when_work_goes_on_after_trust_has_ended() {
    let store = MemoryStore::new();
    let ttl = Duration::from_millis(600);
    let election = candidate(&store, "a").election("job").ttl(ttl).build().unwrap();
    let tenure = election.campaign().await.unwrap();
    let service = Service::start(with_token(&[&election]));
    assert_eq!(service.get("/healthz").await.status, 200);
    // Asked to resign, but the work never ends.
    election.ask_to_resign(None).await.unwrap();
    eventually("it is overdue", async || service.get("/healthz").await.status == 503).await;
    let sentence = service.get("/healthz").await.problem(503);
    assert!(sentence.contains("was to be stepped down from"), "{sentence}");
    assert!(!tenure.is_current());
    drop(tenure);
    eventually("it is well again", async || service.get("/healthz").await.status == 200).await;
}

#[tokio::test]
async fn a_message_goes_to_the_leader_and_bad_ones_are_refused() {
    let store = MemoryStore::new();
    let (sender, mut got) = tokio::sync::mpsc::unbounded_channel();
    let election = candidate(&store, "a").election("job").on_notify("wake", move |message| {
        let _gone = sender.send(message.payload.clone());
    });
    let election = election.start().await.unwrap();
    let service = Service::start(with_token(&[&election]));
    let path = "/elections/job/notify/wake";
    service.ask("POST", path, "", "{}").await.problem(401);
    assert!(service.post(path, "{\n oh").await.problem(400).contains("line 2, column 2"));
    service.post(path, "").await.problem(400);
    service.post(path, &"x".repeat(70_000)).await.problem(413);
    assert_eq!(service.post(path, "{\"n\": 7}").await.status, 202);
    let message = tokio::time::timeout(common::LIMIT, got.recv()).await.unwrap().unwrap();
    assert_eq!(serde_json::from_str::<Value>(&message).unwrap(), json!({ "n": 7 }));
}

#[tokio::test]
async fn events_are_told_live_and_can_be_resumed() {
    let store = MemoryStore::new();
    let first = candidate(&store, "a").election("job").ttl(TTL).start().await.unwrap();
    let second = candidate(&store, "b").election("job").ttl(TTL).start().await.unwrap();
    let service = Service::start(with_token(&[&second]));
    let mut stream = Stream::open(&service, "", "").await;
    let (id, snapshot) = stream.event("snapshot").await;
    assert_eq!(snapshot["elections"][0]["label"], "a");
    first.stop().await.unwrap();
    let (_, elected) = stream.event("elected").await;
    assert_eq!((&elected["term"], &elected["state"]["is_leader"]), (&json!(2), &json!(true)));
    let mut resumed = Stream::open(&service, "", &format!("last-event-id: {id}\r\n")).await;
    let (_, again) = resumed.event("elected").await;
    assert_eq!(again["term"], 2, "what was missed comes first, and no snapshot");
    let mut only = Stream::open(&service, "?election=job", "last-event-id: nonsense\r\n").await;
    assert_eq!(only.event("snapshot").await.1["elections"].as_array().unwrap().len(), 1);
    second.stop().await.unwrap();
    assert_eq!(resumed.event("stepped_down").await.1["reason"], "resigned");
}

#[tokio::test]
async fn the_description_is_true_of_every_route() {
    let store = MemoryStore::new();
    let election = candidate(&store, "a").election("job").start().await.unwrap();
    let service = Service::start(with_token(&[&election]));
    let document = service.get("/openapi.json").await.json();
    assert_eq!(document["openapi"], "3.1.0");
    for (path, operations) in document["paths"].as_object().unwrap() {
        let real = path.replace("{name}", "job").replace("{channel}", "c");
        for (method, operation) in operations.as_object().unwrap() {
            if path == "/events" {
                continue; // It never ends; another test reads it.
            }
            let token = format!("authorization: Bearer {SECRET}\r\n");
            let answer = service.ask(&method.to_uppercase(), &real, &token, "").await;
            let described = &operation["responses"][answer.status.to_string()];
            assert!(described.is_object(), "{method} {path}: {answer:?}");
            if let Some(content) = described["content"].as_object() {
                let told = answer.header("content-type").unwrap_or_default();
                let plain = told.split(';').next().unwrap();
                assert!(content.contains_key(plain), "{method} {path}: {told}");
            }
        }
    }
}
