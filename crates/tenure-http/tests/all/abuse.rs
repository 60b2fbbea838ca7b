//! Clients that are slow, huge or nonsense: refused, and nobody else notices.

use std::time::Duration;

use tenure::{Election, MemoryStore};
use tenure_http::Limits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::common::{self, Answer, Service, Stream, candidate, eventually, with_token};

async fn election() -> Election {
    candidate(&MemoryStore::new(), "a").election("job").start().await.unwrap()
}

async fn is_unharmed(service: &Service) {
    assert_eq!(service.get("/leader").await.status, 200);
}

#[tokio::test]
async fn a_request_that_drips_in_is_cut_off() {
    let mut limits = Limits::default();
    limits.head_within = Duration::from_millis(300);
    let service = Service::start_with(with_token(&[&election().await]), limits);
    let mut loris = Vec::new();
    for _ in 0..50 {
        let mut stream = service.connect().await;
        stream.write_all(b"GET /leader HTTP/1.1\r\nhost: loc").await.unwrap();
        loris.push(stream);
    }
    is_unharmed(&service).await;
    for mut stream in loris {
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(common::LIMIT, stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "it is closed");
    }
    is_unharmed(&service).await;
}

#[tokio::test]
async fn huge_heads_and_too_many_headers_are_refused() {
    let service = Service::start(with_token(&[&election().await]));
    let huge =
        format!("GET /leader HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(1 << 20));
    let many: String = (0..200).map(|number| format!("x-{number}: y\r\n")).collect();
    let many = format!("GET /leader HTTP/1.1\r\nhost: localhost\r\n{many}\r\n");
    let long = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "y".repeat(1 << 20));
    for request in [huge, many, long] {
        let answer = service.raw(request.as_bytes()).await;
        let status = answer.as_ref().map_or(431, |answer| answer.status);
        assert!([400, 414, 431].contains(&status), "{answer:?}");
        is_unharmed(&service).await;
    }
}

#[tokio::test]
async fn nonsense_and_tricks_with_paths_are_refused() {
    let service = Service::start(with_token(&[&election().await]));
    for request in [
        &b"\xff\xfe\x00\x01\r\n\r\n"[..],
        b"GET /leader\xff HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        b"GET /leader HTTP/9.9\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /elections/job/resign HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n",
        b"GET /leader HTTP/1.1\r\nhost: a\r\nhost : b\r\n\r\n",
    ] {
        let answer = service.raw(request).await;
        let status = answer.as_ref().map_or(400, |answer| answer.status);
        assert!((400..500).contains(&status), "{request:?}: {answer:?}");
    }
    for path in [
        "/leader/..%2f..%2fetc%2fpasswd",
        "/leader/%00",
        "/leader/%2e%2e",
        "/elections/job%2fresign",
        "/leader/job/../job",
        "/leader;x=y",
        "/LEADER",
    ] {
        let answer = service.get(path).await;
        answer.problem(404);
        assert!(!answer.body.contains("root:"), "{answer:?}");
    }
    is_unharmed(&service).await;
}

#[tokio::test]
async fn more_connections_than_allowed_are_told_so_and_make_room_when_they_leave() {
    let mut limits = Limits::default();
    limits.connections = 3;
    limits.reserve = 0;
    let service = Service::start_with(with_token(&[&election().await]), limits);
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut stream = service.connect().await;
        stream.write_all(b"GET /leader HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut bytes = [0; 64];
        assert!(stream.read(&mut bytes).await.unwrap() > 0);
        held.push(stream);
    }
    let mut stream = service.connect().await;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let refused = Answer::parse(&text).unwrap();
    assert!(refused.problem(503).contains("too many connections"), "{refused:?}");
    held.pop();
    eventually("there is room", async || {
        let asked =
            service.raw(b"GET /leader HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        asked.await.is_some_and(|answer| answer.status == 200)
    })
    .await;
}

#[tokio::test]
async fn idle_connections_on_the_reserve_make_room_for_health() {
    let mut limits = Limits::default();
    (limits.connections, limits.reserve) = (2, 4);
    let service = Service::start_with(with_token(&[&election().await]), limits);
    let mut held = Vec::new();
    for _ in 0..50 {
        for _ in 0..10 {
            held.push(service.connect().await);
        }
        assert_eq!(service.get("/healthz").await.status, 200);
    }
}

#[tokio::test]
async fn health_is_answered_though_others_hold_all_connections() {
    let mut limits = Limits::default();
    limits.connections = 8;
    let service = Service::start_with(with_token(&[&election().await]), limits);
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(service.connect().await);
    }
    eventually("there is no room", async || service.get("/leader").await.status == 503).await;
    for _ in 0..100 {
        assert_eq!(service.get("/healthz").await.status, 200);
        assert_eq!(service.get("/readyz").await.status, 200);
        let refused = service.get("/leader").await;
        assert!(refused.problem(503).contains("too many connections"), "{refused:?}");
    }
    drop(held);
    eventually("there is room", async || service.get("/leader").await.status == 200).await;
}

#[tokio::test]
async fn one_address_can_not_take_all_connections() {
    let mut limits = Limits::default();
    limits.per_peer = 4;
    let service = Service::start_with(with_token(&[&election().await]), limits);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(service.connect().await);
    }
    eventually("it has all it may", async || service.get("/leader").await.status == 503).await;
    let other = tokio::net::TcpSocket::new_v4().unwrap();
    other.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut stream = other.connect(service.at).await.unwrap();
    let request = b"GET /leader HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert_eq!(Answer::parse(&text).unwrap().status, 200, "{text}");
    drop(held);
    eventually("it may come again", async || service.get("/leader").await.status == 200).await;
}

#[tokio::test]
async fn no_proxy_keeps_events_back() {
    let service = Service::start(with_token(&[&election().await]));
    let mut stream = service.connect().await;
    stream.write_all(b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let (mut text, mut bytes) = (String::new(), [0; 4096]);
    while !text.contains("\r\n\r\n") {
        let count = stream.read(&mut bytes).await.unwrap();
        assert!(count > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    assert!(text.to_lowercase().contains("x-accel-buffering: no"), "{text}");
}

#[tokio::test]
async fn more_listeners_than_allowed_are_told_so() {
    let service = Service::start(with_token(&[&election().await]).listeners_max(2));
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut stream = Stream::open(&service, "", "").await;
        stream.event("snapshot").await;
        streams.push(stream);
    }
    let answer = service.get("/events").await;
    assert!(answer.problem(503).contains("too many listen"), "{answer:?}");
    is_unharmed(&service).await;
}

#[tokio::test]
async fn a_body_that_never_comes_whole_does_not_hold_up_anybody() {
    let service = Service::start(with_token(&[&election().await]));
    let head = format!(
        "POST /elections/job/resign HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
         content-length: 1000\r\n\r\n{{",
        common::SECRET
    );
    let mut stream = service.connect().await;
    stream.write_all(head.as_bytes()).await.unwrap();
    is_unharmed(&service).await;
    let mut text = String::new();
    let read = tokio::time::timeout(common::LIMIT, stream.read_to_string(&mut text));
    // It answers 408 and closes; or it closes.
    let _closed = read.await.expect("it is not waited for for ever");
    if let Some(answer) = Answer::parse(&text) {
        answer.problem(408);
    }
    is_unharmed(&service).await;
}

#[tokio::test]
async fn a_client_that_asks_and_never_reads_is_dropped() {
    let mut limits = Limits::default();
    limits.write_within = Duration::from_millis(300);
    limits.connections = 1;
    let service = Service::start_with(with_token(&[&election().await]), limits);
    let mut greedy = service.connect().await;
    let request = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(100);
    let pushing = async {
        // Until the server takes no more, because nothing is taken of what it answers.
        while greedy.write_all(&request).await.is_ok() {}
    };
    assert!(tokio::time::timeout(common::LIMIT, pushing).await.is_ok(), "it is cut off");
    eventually("its place is free", async || {
        let asked =
            service.raw(b"GET /leader HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        asked.await.is_some_and(|answer| answer.status == 200)
    })
    .await;
}

#[tokio::test]
async fn ending_answers_what_was_asked_and_ends_the_streams() {
    let service = Service::start(with_token(&[&election().await]));
    let mut stream = Stream::open(&service, "", "").await;
    stream.event("snapshot").await;
    let at = service.at;
    service.stop().await;
    let mut rest = String::new();
    let ended = tokio::time::timeout(common::LIMIT, stream.socket.read_to_string(&mut rest)).await;
    assert!(ended.is_ok(), "the stream has an end");
    assert!(tokio::net::TcpStream::connect(at).await.is_err(), "nobody listens any more");
}
