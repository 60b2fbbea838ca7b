//! A network between a candidate and its server that can swallow everything.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Passes bytes on, until it is a black hole: nothing arrives any more, and nobody is told.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    hole: Arc<watch::Sender<bool>>,
}

impl Proxy {
    pub(crate) async fn start(to: u16) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let hole = Arc::new(watch::Sender::new(false));
        let switch = hole.clone();
        Handle::current().spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let switch = switch.clone();
                Handle::current().spawn(async move {
                    open(&mut switch.subscribe()).await;
                    let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    tokio::select! {
                        () = carry(from_client, to_server, switch.subscribe()) => {}
                        () = carry(from_server, to_client, switch.subscribe()) => {}
                    }
                });
            }
        });
        Proxy { port, hole }
    }

    /// From now on nothing passes, or everything again.
    pub(crate) fn swallow(&self, hole: bool) {
        self.hole.send_replace(hole);
    }
}

async fn open(hole: &mut watch::Receiver<bool>) {
    let _ = hole.wait_for(|hole| !*hole).await;
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut hole: watch::Receiver<bool>,
) {
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        open(&mut hole).await;
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
    // An end does not pass a black hole either.
    open(&mut hole).await;
}
