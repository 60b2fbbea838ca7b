//! A network between a program and its server that can swallow everything.

use std::net::TcpListener as StdListener;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use tenure_core::sync::lock;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

/// Passes bytes on to a port of loopback, until it is a black hole: nothing arrives any more, and
/// nobody is told. It runs on a thread of its own for as long as the test does.
pub struct Proxy {
    /// Where it listens.
    pub port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    /// Connections with a number below this one are swallowed.
    hole: watch::Sender<u32>,
    connections: AtomicU32,
    /// Where new connections lead.
    to: AtomicU16,
    trap: Mutex<Option<Trap>>,
}

/// What to do once a client has sent a certain text.
#[derive(Clone, Copy)]
pub enum Trap {
    /// It arrives, and nothing does after it.
    Swallow(&'static str),
    /// It does not arrive: the connection ends.
    Close(&'static str),
}

impl Proxy {
    /// A proxy in front of this port.
    pub fn start(to: u16) -> Proxy {
        let listener = StdListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            hole: watch::Sender::new(0),
            connections: AtomicU32::new(0),
            to: AtomicU16::new(to),
            trap: Mutex::new(None),
        });
        let served = shared.clone();
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_io().build().unwrap();
            runtime.block_on(served.accept(listener));
        });
        Proxy { port, shared }
    }

    /// From now on, for all connections.
    pub fn lay(&self, trap: Trap) {
        *lock(&self.shared.trap) = Some(trap);
    }

    /// How many connections were made so far.
    pub fn connections(&self) -> u32 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Waits until it is a black hole.
    ///
    /// # Cancel safety
    ///
    /// It keeps nothing.
    pub async fn swallows(&self) {
        let _ = self.shared.hole.subscribe().wait_for(|hole| *hole > 0).await;
    }

    /// From now on nothing passes on the connections that there are. New ones work.
    pub fn forget(&self) {
        self.shared.hole.send_replace(self.connections());
    }

    /// From now on nothing passes, or everything again.
    pub fn swallow(&self, hole: bool) {
        self.shared.hole.send_replace(if hole { u32::MAX } else { 0 });
    }

    /// New connections lead to another port.
    pub fn lead_to(&self, port: u16) {
        self.shared.to.store(port, Ordering::Relaxed);
    }
}

impl Shared {
    async fn accept(self: Arc<Shared>, listener: StdListener) {
        let listener = TcpListener::from_std(listener).unwrap();
        while let Ok((client, _)) = listener.accept().await {
            let number = self.connections.fetch_add(1, Ordering::Relaxed);
            Handle::current().spawn(self.clone().connect(client, number));
        }
    }

    async fn connect(self: Arc<Shared>, client: TcpStream, number: u32) {
        open(&mut self.hole.subscribe(), number).await;
        let to = self.to.load(Ordering::Relaxed);
        let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::select! {
            () = self.carry(from_client, to_server, number, true) => {}
            () = self.carry(from_server, to_client, number, false) => {}
        }
    }

    async fn carry(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        number: u32,
        is_client: bool,
    ) {
        let (mut bytes, mut sent) = (vec![0; 16 * 1024], Vec::new());
        let mut is_open = self.hole.subscribe();
        while let Ok(count @ 1..) = from.read(&mut bytes).await {
            open(&mut is_open, number).await;
            let trap = *lock(&self.trap);
            let trap = trap.filter(|_| is_client);
            if trap.is_some() {
                sent.extend_from_slice(&bytes[..count]);
            }
            let has = |text: &str| sent.windows(text.len()).any(|part| part == text.as_bytes());
            if matches!(trap, Some(Trap::Close(text)) if has(text)) {
                return;
            }
            if to.write_all(&bytes[..count]).await.is_err() {
                return;
            }
            if matches!(trap, Some(Trap::Swallow(text)) if has(text)) {
                self.hole.send_replace(u32::MAX);
            }
        }
        // An end does not pass a black hole either.
        open(&mut is_open, number).await;
    }
}

async fn open(hole: &mut watch::Receiver<u32>, number: u32) {
    let _ = hole.wait_for(|hole| *hole <= number).await;
}
