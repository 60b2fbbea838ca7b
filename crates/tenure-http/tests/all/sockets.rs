//! Sockets that others opened, and routes in somebody else's service.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::json;
use tenure::MemoryStore;
use tenure_http::{Listener, Server, Token};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tower_service::Service as _;

use crate::common::{Answer, LIMIT, SECRET, Service, candidate, with_token};

async fn ask(path: &Path, method: &str, target: &str, headers: &str) -> Answer {
    let mut stream = UnixStream::connect(path).await.unwrap();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nhost: anything\r\nconnection: close\r\n{headers}\
         content-length: 0\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut text = String::new();
    tokio::time::timeout(LIMIT, stream.read_to_string(&mut text)).await.unwrap().unwrap();
    Answer::parse(&text).unwrap()
}

#[tokio::test]
async fn a_socket_that_others_may_open_needs_the_token_to_change_something() {
    let dir = tempfile::tempdir().unwrap();
    for (mode, changes) in [(0o600, 200), (0o660, 401), (0o606, 401), (0o666, 401)] {
        let path = dir.path().join(format!("{mode:o}.sock"));
        // As systemd does: somebody else binds it and sets the mode.
        let socket = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let listener = Listener::from_unix(socket).unwrap();
        let election = candidate(&MemoryStore::new(), "a").election("job").at_once();
        let election = election.start().await.unwrap();
        let server = Server::new(with_token(&[&election]).build().unwrap());
        let serving = server.run(vec![listener], std::future::pending());
        let serving = tokio::runtime::Handle::current().spawn(serving);
        assert_eq!(ask(&path, "GET", "/leader", "").await.status, 200, "{mode:o}");
        let answer = ask(&path, "POST", "/elections/job/resign", "").await;
        assert_eq!(answer.status, changes, "{mode:o}: {answer:?}");
        assert_eq!(election.peek().is_some(), changes != 200, "{mode:o}");
        if changes != 200 {
            let token = format!("authorization: Bearer {SECRET}\r\n");
            assert_eq!(ask(&path, "POST", "/elections/job/resign", &token).await.status, 200);
        }
        serving.abort();
    }
}

#[tokio::test]
async fn health_is_told_to_those_with_an_old_token_too() {
    let store = MemoryStore::new();
    let election = candidate(&store, "a").election("job").start().await.unwrap();
    let service = Service::start(with_token(&[&election]));
    for path in ["/healthz", "/readyz"] {
        let answer = service.ask("GET", path, "authorization: Bearer stale\r\n", "").await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let answer = service.ask("GET", "/elections", "authorization: Bearer stale\r\n", "").await;
    answer.problem(401);
}

#[tokio::test]
async fn routes_work_in_a_service_of_ones_own_and_leave_its_routes_alone() {
    let store = MemoryStore::new();
    let election = candidate(&store, "a").election("job").start().await.unwrap();
    let sidecar = with_token(&[&election]).token(Token::new(SECRET).unwrap()).build().unwrap();
    let own = axum::routing::get(async || "mine");
    let mut service: Router = Router::new().route("/mine", own).merge(sidecar.routes());
    let mut call = async |method: &str, path: &str, host: &str| {
        let request = Request::builder().method(method).uri(path).header("host", host);
        let answer = service.call(request.body(Body::empty()).unwrap()).await.unwrap();
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    let (status, body) = call("GET", "/leader", "localhost").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&body["label"], &body["is_leader"]), (&json!("a"), &json!(true)));
    assert_eq!(call("GET", "/leader", "evil.example").await.0, StatusCode::MISDIRECTED_REQUEST);
    assert_eq!(call("POST", "/elections/job/resign", "localhost").await.0.as_u16(), 401);
    assert_eq!(call("GET", "/mine", "evil.example").await, (StatusCode::OK, "mine".to_owned()));
    assert_eq!(call("GET", "/nothing", "localhost").await.0, StatusCode::NOT_FOUND);
}
