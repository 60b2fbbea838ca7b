//! Requests of any content: answered with a sentence or cut off, and nothing is done for them.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use tenure::MemoryStore;
use tenure_http::Limits;

use crate::common::{self, Service, candidate, with_token};

/// What requests are made of: the words that a server looks for, and some that nobody should send.
const WORDS: [&[u8]; 40] = [
    b"GET ",
    b"POST ",
    b"HEAD ",
    b"OPTIONS ",
    b"PUT ",
    b" HTTP/1.1\r\n",
    b" HTTP/1.0\r\n",
    b"\r\n",
    b"\r\n\r\n",
    b"/leader",
    b"/elections",
    b"/elections/job/resign",
    b"/leader/job",
    b"/elections/job/notify/c",
    b"/readyz",
    b"/events",
    b"/metrics",
    b"/openapi.json",
    b"/healthz",
    b"/",
    b"?",
    b"%2e%2e%2f",
    b"%",
    b"%00",
    b"..",
    b"host: localhost\r\n",
    b"host: \r\n",
    b"content-type: application/json\r\n",
    b"content-length: 2\r\n",
    b"content-length: 99999999999999999999\r\n",
    b"transfer-encoding: chunked\r\n",
    b"expect: 100-continue\r\n",
    b"connection: close\r\n",
    b"authorization: Bearer 0123456789abcdef0124\r\n",
    b"authorization: Basic Og==\r\n",
    b"last-event-id: 1-1\r\n",
    b"if-none-match: *\r\n",
    b"origin: http://localhost\r\n",
    b"{}",
    b"{\"term\":18446744073709551616}",
];

/// Whole requests: a route that there is or nearly is, and anything at all for one header and body.
fn whole(pick: u8, path: &[u8], header: &[u8], body: &[u8]) -> Vec<u8> {
    const METHODS: [&str; 2] = ["GET", "POST"];
    const ROUTES: [&str; 8] = [
        "/",
        "/leader",
        "/leader/",
        "/elections/",
        "/elections/job/resign",
        "/elections/job/notify/",
        "/events",
        "/elections/job/resign?",
    ];
    const HEADERS: [&str; 8] = [
        "authorization",
        "x-any",
        "content-type",
        "last-event-id",
        "origin",
        "accept",
        "cookie",
        "x-forwarded-host",
    ];
    let (pick, from) =
        (usize::from(pick), |words: &[&'static str], pick: usize| words[pick % words.len()]);
    let (method, route) = (from(&METHODS, pick), from(&ROUTES, pick / 2));
    let length = format!("connection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    let begin = format!("{method} {route}");
    let name = format!(" HTTP/1.1\r\nhost: localhost\r\n{}: ", from(&HEADERS, pick / 16));
    [begin.as_bytes(), path, name.as_bytes(), header, b"\r\n", length.as_bytes(), body].concat()
}

#[test]
fn requests_of_any_content_change_nothing_and_break_nothing() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (service, election) = runtime.block_on(async {
        let election = candidate(&MemoryStore::new(), "a").election("job").start().await.unwrap();
        let mut limits = Limits::default();
        // Most of them are not complete, and are waited for.
        limits.head_within = Duration::from_millis(20);
        (Service::start_with(with_token(&[&election]), limits), election)
    });
    let term = election.term();
    assert!(term.is_some());
    type Input = (Vec<u8>, u8, u8, Vec<u8>, Vec<u8>, Vec<u8>);
    let shared = AssertUnwindSafe((&runtime, &service, &election));
    let check = bolero::check!().with_test_time(Duration::from_secs(2));
    check.with_type::<Input>().for_each(|(picks, pick, tame, path, header, body)| {
        let (runtime, service, election) = *shared;
        let word = |pick: &u8| WORDS[usize::from(*pick) % WORDS.len()];
        let words: Vec<&[u8]> = picks.iter().take(16).map(word).collect();
        // What is wrong in one place alone gets further than what is wrong everywhere.
        let or = |bit: u8, wild: &[u8], tamed: Vec<u8>| {
            if tame & bit == 0 { wild.to_vec() } else { tamed }
        };
        let path = or(1, path, Vec::new());
        let printable = header.iter().copied().filter(u8::is_ascii_graphic).collect();
        let header = or(2, header, printable);
        let body = or(4, body, if tame & 8 == 0 { Vec::new() } else { b"{}".to_vec() });
        for request in [words.concat(), whole(*pick, &path, &header, &body), body] {
            let answer = runtime.block_on(ask(service, &request));
            if let Some((status, text)) = answer {
                let shown = String::from_utf8_lossy(&request);
                // 503 tells that nobody leads, or that this one is not ready.
                assert!(status < 500 || status == 503, "{shown:?}: {text}");
            }
            assert_eq!(election.term(), term, "nobody who may not has taken anything away");
        }
    });
    assert_eq!(runtime.block_on(service.get("/leader")).status, 200);
}

/// Sends all of it and hangs up behind it; the first answer.
async fn ask(service: &Service, request: &[u8]) -> Option<(u16, String)> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = service.connect().await;
    let _refused = stream.write_all(request).await;
    let _closed = stream.shutdown().await;
    // A stream of events would go on for ever: its beginning will do.
    let mut text = vec![0; 4_096];
    let read = tokio::time::timeout(common::LIMIT, stream.read(&mut text)).await;
    let read = read.expect("the server answers or closes").ok()?;
    let text = String::from_utf8_lossy(&text[..read]).into_owned();
    let status = text.split(' ').nth(1)?.parse().ok()?;
    Some((status, text))
}
