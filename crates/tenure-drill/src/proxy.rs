//! The proxy between the candidates and a store that is reached by a network.
//!
//! Each candidate has addresses of its own on loopback, one for each host of the store. What goes
//! through them can be cut off, held back, slowed down or reset, for one candidate at a time. It
//! runs on a thread of its own, so that nothing that the drill waits for adds to the faults.
//!
//! What is held back is not lost: as in a network that heals, it arrives late.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tenure_core::{Clock, Time};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::error::DrillError;
use crate::route::Host;

/// How many pieces may be under way in one direction, each of at most this size.
const PIECES_MAX: usize = 64;
const PIECE: usize = 16 * 1024;

/// How long to wait when nobody can be let in.
const ACCEPT_AGAIN: Duration = Duration::from_millis(20);

/// How long a connection to the store may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// What becomes of what a candidate sends and is sent through the proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkState {
    /// It arrives.
    #[default]
    Open,
    /// Connections are closed, and new ones too.
    Cut,
    /// Nothing arrives in these directions, and nobody is told.
    Held {
        /// What it sends.
        requests: bool,
        /// What it is sent.
        replies: bool,
    },
    /// It arrives later.
    Slow {
        /// By how much, what it sends.
        requests: Duration,
        /// By how much, what it is sent.
        replies: Duration,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Replies,
}

impl LinkState {
    fn holds(self, direction: Direction) -> bool {
        match (self, direction) {
            (LinkState::Held { requests, .. }, Direction::Requests) => requests,
            (LinkState::Held { replies, .. }, Direction::Replies) => replies,
            _ => false,
        }
    }

    fn delay(self, direction: Direction) -> Duration {
        match (self, direction) {
            (LinkState::Slow { requests, .. }, Direction::Requests) => requests,
            (LinkState::Slow { replies, .. }, Direction::Replies) => replies,
            _ => Duration::ZERO,
        }
    }
}

/// The proxy. It ends when it is dropped.
pub struct Proxy {
    clock: Arc<dyn Clock>,
    lanes: Vec<Lane>,
    _ends_it: oneshot::Sender<()>,
}

struct Lane {
    addresses: Vec<SocketAddr>,
    state: watch::Sender<LinkState>,
    /// Counts how often all connections were reset.
    resets: watch::Sender<u64>,
}

/// What a connection knows of its lane.
#[derive(Clone)]
struct Link {
    state: watch::Receiver<LinkState>,
    resets: watch::Receiver<u64>,
}

impl Proxy {
    /// Opens addresses that lead to these hosts, for so many candidates.
    ///
    /// # Errors
    /// No port, no thread or no descriptor is left.
    pub fn start(
        clock: Arc<dyn Clock>,
        candidates: usize,
        hosts: &[Host],
    ) -> Result<Proxy, DrillError> {
        let (mut lanes, mut entries) = (Vec::new(), Vec::new());
        for _ in 0..candidates {
            let (state, resets) = (watch::Sender::default(), watch::Sender::default());
            let mut addresses = Vec::new();
            for host in hosts {
                let listener = StdListener::bind(("127.0.0.1", 0))?;
                listener.set_nonblocking(true)?;
                addresses.push(listener.local_addr()?);
                let link = Link { state: state.subscribe(), resets: resets.subscribe() };
                entries.push((listener, (host.address.clone(), host.port), link));
            }
            lanes.push(Lane { addresses, state, resets });
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (ends_it, ended) = oneshot::channel::<()>();
        let timer = clock.clone();
        let serve = move || {
            runtime.block_on(async {
                let mut listening = JoinSet::new();
                for (listener, to, link) in entries {
                    listening.spawn(accept_all(timer.clone(), listener, to, link));
                }
                let _dropped = ended.await;
            });
            runtime.shutdown_background();
        };
        thread::Builder::new().name("proxy".to_owned()).spawn(serve)?;
        Ok(Proxy { clock, lanes, _ends_it: ends_it })
    }

    /// The addresses that a candidate is to use, one for each host.
    pub fn addresses(&self, lane: usize) -> &[SocketAddr] {
        self.lanes.get(lane).map_or(&[], |lane| &lane.addresses)
    }

    /// Changes the state of the link of a candidate. Tells the instant just before.
    pub fn set(&self, lane: usize, state: LinkState) -> Time {
        let at = self.clock.now();
        if let Some(lane) = self.lanes.get(lane) {
            lane.state.send_replace(state);
        }
        at
    }

    /// Resets all connections of a candidate. Tells the instant just before.
    pub fn reset(&self, lane: usize) -> Time {
        let at = self.clock.now();
        if let Some(lane) = self.lanes.get(lane) {
            lane.resets.send_modify(|count| *count += 1);
        }
        at
    }
}

impl Link {
    fn now(&self) -> LinkState {
        *self.state.borrow()
    }

    /// Waits until this is so; for ever if the proxy has ended.
    async fn until(&mut self, is_so: impl FnMut(&LinkState) -> bool) {
        if self.state.wait_for(is_so).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    async fn reset(&mut self) {
        if self.resets.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Takes in every connection to one address.
async fn accept_all(clock: Arc<dyn Clock>, listener: StdListener, to: (String, u16), link: Link) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else {
                    // No descriptor is left, perhaps: the next try fails just as fast.
                    clock.sleep_until(clock.now() + ACCEPT_AGAIN).await;
                    continue;
                };
                let mut link = link.clone();
                link.resets.mark_unchanged();
                connections.spawn(serve(clock.clone(), client, to.clone(), link));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One connection, from its beginning to its end.
async fn serve(clock: Arc<dyn Clock>, mut client: TcpStream, to: (String, u16), mut link: Link) {
    if link.now() == LinkState::Cut {
        return;
    }
    let mut first = Vec::new();
    if link.now().holds(Direction::Requests)
        && !waits_held(&mut client, &mut first, &mut link).await
    {
        return;
    }
    let connect = TcpStream::connect((to.0.as_str(), to.1));
    let end = clock.now() + CONNECT_WITHIN;
    let server = tokio::select! {
        server = connect => server,
        () = clock.sleep_until(end) => return,
        () = link.until(|state| *state == LinkState::Cut) => return,
    };
    let Ok(mut server) = server else { return };
    if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
        return;
    }
    let is_reset = {
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        let requests =
            carry(&*clock, from_client, to_server, first, Direction::Requests, link.clone());
        let replies =
            carry(&*clock, from_server, to_client, Vec::new(), Direction::Replies, link.clone());
        let mut cut = link.clone();
        tokio::select! {
            _ = async { tokio::join!(requests, replies) } => false,
            () = cut.until(|state| *state == LinkState::Cut) => false,
            () = link.reset() => true,
        }
    };
    if is_reset {
        // Without lingering, closing is a reset, to both sides.
        let _gone = client.set_zero_linger();
        let _gone = server.set_zero_linger();
    }
}

/// Waits until requests pass again, and keeps what comes meanwhile. `false` if the client gave up,
/// so that nobody has to be bothered.
async fn waits_held(client: &mut TcpStream, kept: &mut Vec<u8>, link: &mut Link) -> bool {
    loop {
        tokio::select! {
            () = link.until(|state| !state.holds(Direction::Requests)) => {
                return link.now() != LinkState::Cut;
            }
            read = client.read_buf(kept), if kept.len() < PIECE => {
                if !matches!(read, Ok(1..)) {
                    return false;
                }
            }
        }
    }
}

/// Carries one direction of a connection until it ends.
async fn carry(
    clock: &dyn Clock,
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    first: Vec<u8>,
    direction: Direction,
    mut link: Link,
) -> io::Result<()> {
    let (sender, mut receiver) = mpsc::channel::<(Time, Vec<u8>)>(PIECES_MAX);
    let delay = link.clone();
    let take_in = async move {
        let mut piece = first;
        loop {
            if !piece.is_empty() {
                let due = clock.now() + delay.now().delay(direction);
                if sender.send((due, piece)).await.is_err() {
                    return;
                }
            }
            piece = vec![0; PIECE];
            match from.read(&mut piece).await {
                Ok(read @ 1..) => piece.truncate(read),
                _ => return,
            }
        }
    };
    let hand_out = async move {
        while let Some((due, piece)) = receiver.recv().await {
            if clock.now() < due {
                clock.sleep_until(due).await;
            }
            link.until(|state| !state.holds(direction)).await;
            to.write_all(&piece).await?;
        }
        link.until(|state| !state.holds(direction)).await;
        to.shutdown().await
    };
    tokio::join!(take_in, hand_out).1
}

#[cfg(test)]
#[path = "proxy_tests.rs"]
mod tests;
