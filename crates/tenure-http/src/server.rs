//! A small server with limits: on headers, connections, and the patience with slow clients.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Sleep, timeout};
use tower_service::Service as _;

use crate::gate::{self, Peer};
use crate::listen::{Listener, Socket};
use crate::problem::Problem;
use crate::room::{Admission, Permit, Room};
use crate::sidecar::Sidecar;

/// How much of everything one client, and all of them, may have.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// How many connections there are at most; others are answered with 503 and closed.
    pub connections: usize,
    /// How many of these one address may have, so that one client can't take them all.
    pub per_peer: usize,
    /// How many more there may be for those who ask for health: a supervisor must not take this
    /// process for dead because others hold all connections.
    pub reserve: usize,
    /// How long a request's head may take to arrive, and how long a connection may be idle.
    pub head_within: Duration,
    /// How long a client may take nothing of what is sent to it.
    pub write_within: Duration,
    /// The largest head of a request, in bytes.
    pub head_bytes: usize,
    /// How many headers a request may have.
    pub headers: usize,
    /// How long connections have to end after the service was told to.
    pub end_within: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 2048,
            per_peer: 1024,
            reserve: 64,
            head_within: Duration::from_secs(10),
            write_within: Duration::from_secs(20),
            head_bytes: 16 * 1024,
            headers: 64,
            end_within: Duration::from_secs(3),
        }
    }
}

/// Descriptors for everything but connections: the store's, files, and room to spare.
const OTHER_DESCRIPTORS: u64 = 128;

impl Limits {
    /// The same for a process that may have so many descriptors: connections that can't be taken
    /// would keep those of the reserve from being taken, too.
    #[must_use]
    pub fn within_descriptors(mut self, descriptors: u64) -> Limits {
        let others = OTHER_DESCRIPTORS.min(descriptors / 4) + self.reserve as u64;
        let room = usize::try_from(descriptors.saturating_sub(others)).unwrap_or(usize::MAX);
        self.connections = self.connections.min(room.max(1));
        self.per_peer = self.per_peer.min(self.connections.div_ceil(2));
        self
    }
}

/// Serves a [`Sidecar`] alone.
#[derive(Debug)]
pub struct Server {
    sidecar: Sidecar,
    limits: Limits,
}

const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    content-type: application/problem+json\r\nconnection: close\r\nretry-after: 1\r\n\
    content-length: 124\r\n\r\n\
    {\"type\":\"about:blank\",\"title\":\"Service Unavailable\",\"status\":503,\
    \"detail\":\"there are too many connections; ask again later\"}";

const FULL_DETAIL: &str = "there are too many connections; ask again later";

/// What the reserve is for.
const HEALTH: [&str; 2] = ["/healthz", "/readyz"];

/// How long a connection of the reserve may take to ask.
const RESERVED_FOR: Duration = Duration::from_secs(1);

/// What others are told who come in on the reserve.
fn full() -> Response {
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, FULL_DETAIL).retry_after(1);
    let mut response = problem.into_response();
    gate::harden(&mut response);
    response
}

impl Server {
    /// A server with the default limits.
    pub fn new(sidecar: Sidecar) -> Server {
        Server { sidecar, limits: Limits::default() }
    }

    /// The same with other limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Server {
        self.limits = limits;
        self
    }

    /// Serves until `end` comes; then answers what was asked, ends the streams, and returns.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future closes all connections.
    pub async fn run(self, listeners: Vec<Listener>, end: impl Future<Output = ()>) {
        let (ending, ended) = watch::channel(false);
        let mut accepting = JoinSet::new();
        let service = self.sidecar.service();
        let room = Room::new(&self.limits);
        for listener in listeners {
            let (room, ended) = (room.clone(), ended.clone());
            let (sidecar, service) = (self.sidecar.clone(), service.clone());
            let served = Served { sidecar, service, health_only: false };
            accepting.spawn(accept(listener, served, self.limits, room, ended));
        }
        end.await;
        ending.send_replace(true);
        self.sidecar.close_streams();
        let _late = timeout(self.limits.end_within, async {
            while accepting.join_next().await.is_some() {}
        })
        .await;
    }
}

/// What answers: quickly where that matters, else by its routes.
#[derive(Clone)]
struct Served {
    sidecar: Sidecar,
    service: Router,
    /// It came in on the reserve.
    health_only: bool,
}

/// Takes connections until the end, then waits for those there are.
async fn accept(
    listener: Listener,
    served: Served,
    limits: Limits,
    room: Room,
    mut ended: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = come(&mut ended) => break,
            Some(_) = connections.join_next() => continue,
            accepted = next(&listener) => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // No descriptors left, for example: some time may help.
                tracing::warn!(%error, "a connection could not be taken");
                nap(Duration::from_millis(50)).await;
                continue;
            }
        };
        match room.admit(peer) {
            Admission::Ordinary(permit) => {
                let permit = Some(permit);
                connections.spawn(serve(
                    stream,
                    peer,
                    served.clone(),
                    limits,
                    ended.clone(),
                    permit,
                ));
            }
            Admission::Reserve => {
                let served = Served { health_only: true, ..served.clone() };
                let serving = serve(stream, peer, served, limits, ended.clone(), None);
                room.reserved_for(connections.spawn(serving));
            }
            Admission::Refused => stream.refuse(),
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn next(listener: &Listener) -> io::Result<(Stream, Peer)> {
    match &listener.socket {
        Socket::Tcp(socket) => {
            let (stream, from) = socket.accept().await?;
            stream.set_nodelay(true)?;
            Ok((Stream::Tcp(stream), Peer::Ip(from.ip())))
        }
        Socket::Unix(socket) => {
            let peer = if listener.is_owners { Peer::Unix } else { Peer::SharedUnix };
            Ok((Stream::Unix(socket.accept().await?.0), peer))
        }
    }
}

async fn serve(
    stream: Stream,
    peer: Peer,
    served: Served,
    limits: Limits,
    mut ended: watch::Receiver<bool>,
    _permit: Option<Permit>,
) {
    let Served { sidecar, service, health_only } = served;
    let head_within = if health_only { RESERVED_FOR } else { limits.head_within };
    let answer = service_fn(move |request: hyper::Request<Incoming>| {
        let refused = health_only && !HEALTH.contains(&request.uri().path());
        let quick = if refused { Some(full()) } else { sidecar.quick(&request, peer) };
        let answer = match quick {
            Some(answer) => Ok(answer),
            None => Err((service.clone(), request)),
        };
        async move {
            let (mut service, request) = match answer {
                Ok(answer) => return Ok(answer),
                Err(rest) => rest,
            };
            let mut request: Request = request.map(axum::body::Body::new);
            request.extensions_mut().insert(peer);
            let answer: Result<Response, Infallible> = service.call(request).await;
            answer
        }
    });
    let stream = Patient { stream, limit: limits.write_within, waiting: None };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_within)
        .keep_alive(!health_only)
        .max_buf_size(limits.head_bytes)
        .max_headers(limits.headers)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = pin!(connection);
    let over = tokio::select! {
        over = connection.as_mut() => over,
        () = come(&mut ended) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = over {
        tracing::debug!(%error, "a connection broke");
    }
}

/// Waits for the end; a sender that is gone is one, too.
async fn come(ended: &mut watch::Receiver<bool>) {
    let _gone = ended.wait_for(|ended| *ended).await.map(|_| ());
}

/// Either kind of connection.
enum Stream {
    Tcp(TcpStream),
    Unix(tokio::net::UnixStream),
}

impl Stream {
    /// Says that there is no room, if that can be said at once.
    fn refuse(self) {
        let _not_sent = match &self {
            Stream::Tcp(stream) => stream.try_write(FULL),
            Stream::Unix(stream) => stream.try_write(FULL),
        };
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// A connection whose other end must take something now and then.
struct Patient {
    stream: Stream,
    limit: Duration,
    /// Since the other end takes nothing.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    fn wrote<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let limit = self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(patience(limit)));
        ready!(waiting.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.wrote(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[expect(clippy::disallowed_methods, reason = "patience with a client, not a lease")]
fn patience(limit: Duration) -> Sleep {
    tokio::time::sleep(limit)
}

async fn nap(span: Duration) {
    patience(span).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_are_few_connections() {
        let within = |descriptors| {
            let limits = Limits::default().within_descriptors(descriptors);
            (limits.connections, limits.per_peer)
        };
        assert_eq!(within(u64::MAX), (2048, 1024));
        assert_eq!(within(8192), (2048, 1024));
        assert_eq!(within(1024), (832, 416));
        assert_eq!(within(16), (1, 1));
    }

    #[test]
    fn the_refusal_has_the_length_that_it_says() {
        let text = std::str::from_utf8(FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        assert!(serde_json::from_str::<serde_json::Value>(body).is_ok());
    }
}
