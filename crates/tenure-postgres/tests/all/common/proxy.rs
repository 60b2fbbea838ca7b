//! A network between a candidate and its server that can swallow everything.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Passes bytes on, until it is a black hole: nothing arrives any more, and nobody is told.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    /// Connections with a number below this one are swallowed.
    hole: Arc<watch::Sender<u32>>,
    connections: Arc<AtomicU32>,
    trap: Arc<Mutex<Option<Trap>>>,
}

/// What to do once a client has sent a certain text.
#[derive(Clone, Copy)]
pub(crate) enum Trap {
    /// It arrives, and nothing does after it.
    Swallow(&'static str),
    /// It does not arrive: the connection ends.
    Close(&'static str),
}

impl Proxy {
    pub(crate) async fn start(to: u16) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let hole = Arc::new(watch::Sender::new(0));
        let connections: Arc<AtomicU32> = Arc::default();
        let trap: Arc<Mutex<Option<Trap>>> = Arc::default();
        let (switch, counted, laid) = (hole.clone(), connections.clone(), trap.clone());
        Handle::current().spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (switch, laid) = (switch.clone(), laid.clone());
                let number = counted.fetch_add(1, Ordering::Relaxed);
                Handle::current().spawn(async move {
                    open(&mut switch.subscribe(), number).await;
                    let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    tokio::select! {
                        () = carry(from_client, to_server, &switch, number, Some(&laid)) => {}
                        () = carry(from_server, to_client, &switch, number, None) => {}
                    }
                });
            }
        });
        Proxy { port, hole, connections, trap }
    }

    /// From now on, for all connections.
    pub(crate) fn lay(&self, trap: Trap) {
        *self.trap.lock().unwrap() = Some(trap);
    }

    /// How many connections were made so far.
    pub(crate) fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Waits until it is a black hole.
    pub(crate) async fn swallows(&self) {
        let _ = self.hole.subscribe().wait_for(|hole| *hole > 0).await;
    }

    /// From now on nothing passes on the connections that there are. New ones work.
    pub(crate) fn forget(&self) {
        self.hole.send_replace(self.connections());
    }

    /// From now on nothing passes, or everything again.
    pub(crate) fn swallow(&self, hole: bool) {
        self.hole.send_replace(if hole { u32::MAX } else { 0 });
    }
}

async fn open(hole: &mut watch::Receiver<u32>, number: u32) {
    let _ = hole.wait_for(|hole| *hole <= number).await;
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    hole: &watch::Sender<u32>,
    number: u32,
    trap: Option<&Mutex<Option<Trap>>>,
) {
    let (mut bytes, mut sent, mut is_open) = (vec![0; 16 * 1024], Vec::new(), hole.subscribe());
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        open(&mut is_open, number).await;
        let trap = trap.and_then(|trap| *trap.lock().unwrap());
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
            hole.send_replace(u32::MAX);
        }
    }
    // An end does not pass a black hole either.
    open(&mut is_open, number).await;
}
