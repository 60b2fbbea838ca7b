//! A sidecar on a free port, and a client that can misbehave.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tenure::{Candidate, Election, MemoryStore};
use tenure_http::{Limits, Listen, Listener, Server, Sidecar, SidecarBuilder, Token};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) const SECRET: &str = "0123456789abcdef0123";
pub(crate) const TTL: Duration = Duration::from_secs(3);

/// Far more than anything here takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A running service. Dropping it ends it.
pub(crate) struct Service {
    pub(crate) at: SocketAddr,
    pub(crate) sidecar: Sidecar,
    end: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

/// One of many instances on a store.
pub(crate) fn candidate(store: &MemoryStore, label: &str) -> Candidate {
    Candidate::builder(Arc::new(store.clone())).label(label).build().unwrap()
}

pub(crate) fn with_token(elections: &[&Election]) -> SidecarBuilder {
    let mut builder = Sidecar::builder().token(Token::new(SECRET).unwrap());
    for election in elections {
        builder = builder.election((*election).clone());
    }
    builder
}

impl Service {
    pub(crate) fn start(builder: SidecarBuilder) -> Service {
        Service::start_with(builder, Limits::default())
    }

    pub(crate) fn start_with(builder: SidecarBuilder, limits: Limits) -> Service {
        let sidecar = builder.build().unwrap();
        let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let Listen::Tcp(at) = *listener.at() else { panic!("an address was asked for") };
        let (end, ended) = oneshot::channel::<()>();
        let server = Server::new(sidecar.clone()).limits(limits);
        let serving = tokio::runtime::Handle::current().spawn(server.run(vec![listener], async {
            let _gone = ended.await;
        }));
        Service { at, sidecar, end: Some(end), serving }
    }

    /// Ends it, and waits for that.
    pub(crate) async fn stop(mut self) {
        drop(self.end.take());
        tokio::time::timeout(LIMIT, &mut self.serving).await.unwrap().unwrap();
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "", "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.ask("POST", path, &format!("authorization: Bearer {SECRET}\r\n"), body).await
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let length = body.len();
        let host =
            if headers.to_lowercase().contains("host:") { "" } else { "host: localhost\r\n" };
        let head = format!(
            "{method} {path} HTTP/1.1\r\n{host}connection: close\r\n{headers}content-length: \
             {length}\r\n\r\n"
        );
        self.raw([head.as_bytes(), body.as_bytes()].concat().as_slice()).await.unwrap()
    }

    /// Sends these bytes; `None` if the connection was closed without a word.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> Option<Answer> {
        let mut stream = self.connect().await;
        // A server that has heard enough may close before everything is sent.
        let _refused = stream.write_all(bytes).await;
        let mut text = Vec::new();
        let read = tokio::time::timeout(LIMIT, stream.read_to_end(&mut text)).await;
        let _reset = read.expect("the server answers or closes");
        Answer::parse(&String::from_utf8_lossy(&text))
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.at).await.unwrap()
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn parse(text: &str) -> Option<Answer> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Answer { status, head: head.to_lowercase(), body: body.to_owned() })
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find(|line| line.starts_with(&format!("{name}:")))?;
        Some(line[name.len() + 1..].trim())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The problem's sentence; fails if this is no problem of that status.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let json = self.json();
        assert_eq!(json["status"], status);
        json["detail"].as_str().unwrap().to_owned()
    }
}

/// Waits for something that others bring about.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        while !holds().await {
            ticks.tick().await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, waiting).await.is_ok(), "{what} did not happen");
}

/// A stream of events.
pub(crate) struct Stream {
    pub(crate) socket: TcpStream,
    text: String,
}

impl Stream {
    pub(crate) async fn open(service: &Service, query: &str, headers: &str) -> Stream {
        let mut socket = service.connect().await;
        let head = format!("GET /events{query} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
        Stream { socket, text: String::new() }
    }

    /// The next event of this name: its id and its data.
    pub(crate) async fn event(&mut self, name: &str) -> (String, Value) {
        tokio::time::timeout(LIMIT, async {
            loop {
                if let Some(found) = self.take(name) {
                    return found;
                }
                let mut bytes = [0; 4096];
                let count = self.socket.read(&mut bytes).await.unwrap();
                assert!(count > 0, "the stream ended without {name}: {}", self.text);
                self.text.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        })
        .await
        .unwrap_or_else(|_| panic!("{name} never came: {}", self.text))
    }

    fn take(&mut self, name: &str) -> Option<(String, Value)> {
        let start = self.text.find(&format!("event: {name}\n"))?;
        let end = start + self.text[start..].find("\n\n")?;
        let data = self.text[start..end].split_once("data: ")?.1.to_owned();
        // The id stands on the line before.
        let id = self.text[..start].rsplit_once("id: ").map(|(_, id)| id.trim().to_owned());
        self.text.drain(..end + 2);
        Some((id.unwrap_or_default(), serde_json::from_str(&data).unwrap()))
    }
}
