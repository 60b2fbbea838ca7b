//! The proxy between the candidates and a store that is reached by a network.
//!
//! Each candidate has doors of its own on loopback, one for each host of the store. What goes
//! through them can be cut off, held back, slowed down or reset, for one candidate at a time. It
//! runs on a thread of its own, so that nothing that the drill waits for adds to the faults.
//!
//! What is held back is not lost: as in a network that heals, it arrives late.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::thread;
use std::time::Duration;

use tenure::{BootClock, Clock as _, Time};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::route::Host;
use crate::exit::Failure;

/// How many pieces may be under way in one direction, each of at most this size.
const PIECES_MAX: usize = 64;
const PIECE: usize = 16 * 1024;

/// How long to wait when nobody can be let in.
const ACCEPT_AGAIN: Duration = Duration::from_millis(20);

/// How long a connection to the store may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// What becomes of what a candidate sends and is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Way {
    /// It arrives.
    #[default]
    Open,
    /// Connections are closed, and new ones too.
    Cut,
    /// Nothing arrives in these directions, and nobody is told.
    Held { requests: bool, replies: bool },
    /// It arrives later.
    Slow { requests: Duration, replies: Duration },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Replies,
}

impl Way {
    fn holds(self, direction: Direction) -> bool {
        match (self, direction) {
            (Way::Held { requests, .. }, Direction::Requests) => requests,
            (Way::Held { replies, .. }, Direction::Replies) => replies,
            _ => false,
        }
    }

    fn delay(self, direction: Direction) -> Duration {
        match (self, direction) {
            (Way::Slow { requests, .. }, Direction::Requests) => requests,
            (Way::Slow { replies, .. }, Direction::Replies) => replies,
            _ => Duration::ZERO,
        }
    }
}

/// The proxy. It ends when it is dropped.
pub(crate) struct Proxy {
    lanes: Vec<Lane>,
    _ends_it: oneshot::Sender<()>,
}

struct Lane {
    doors: Vec<SocketAddr>,
    way: watch::Sender<Way>,
    /// Counts how often all connections were reset.
    resets: watch::Sender<u64>,
}

/// What a connection knows of its lane.
#[derive(Clone)]
struct View {
    way: watch::Receiver<Way>,
    resets: watch::Receiver<u64>,
}

impl Proxy {
    /// Opens doors to these hosts for so many candidates.
    pub(crate) fn start(candidates: usize, hosts: &[Host]) -> Result<Proxy, Failure> {
        let (mut lanes, mut entries) = (Vec::new(), Vec::new());
        for _ in 0..candidates {
            let (way, resets) = (watch::Sender::default(), watch::Sender::default());
            let mut doors = Vec::new();
            for host in hosts {
                let listener = StdListener::bind(("127.0.0.1", 0))?;
                listener.set_nonblocking(true)?;
                doors.push(listener.local_addr()?);
                let view = View { way: way.subscribe(), resets: resets.subscribe() };
                entries.push((listener, (host.address.clone(), host.port), view));
            }
            lanes.push(Lane { doors, way, resets });
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (ends_it, ended) = oneshot::channel::<()>();
        let serve = move || {
            runtime.block_on(async {
                let mut doors = JoinSet::new();
                for (listener, to, view) in entries {
                    doors.spawn(keep_door(listener, to, view));
                }
                let _dropped = ended.await;
            });
            runtime.shutdown_background();
        };
        thread::Builder::new().name("proxy".to_owned()).spawn(serve)?;
        Ok(Proxy { lanes, _ends_it: ends_it })
    }

    /// The addresses that a candidate is to use, one for each host.
    pub(crate) fn doors(&self, lane: usize) -> &[SocketAddr] {
        self.lanes.get(lane).map_or(&[], |lane| &lane.doors)
    }

    /// Changes the way of a candidate. Tells the instant just before.
    pub(crate) fn set(&self, lane: usize, way: Way) -> Time {
        let at = BootClock::time();
        if let Some(lane) = self.lanes.get(lane) {
            lane.way.send_replace(way);
        }
        at
    }

    /// Resets all connections of a candidate. Tells the instant just before.
    pub(crate) fn reset(&self, lane: usize) -> Time {
        let at = BootClock::time();
        if let Some(lane) = self.lanes.get(lane) {
            lane.resets.send_modify(|count| *count += 1);
        }
        at
    }
}

impl View {
    fn now(&self) -> Way {
        *self.way.borrow()
    }

    /// Waits until this is so; for ever if the proxy has ended.
    async fn until(&mut self, is_so: impl FnMut(&Way) -> bool) {
        if self.way.wait_for(is_so).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    async fn reset(&mut self) {
        if self.resets.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Takes in whoever comes to one door.
async fn keep_door(listener: StdListener, to: (String, u16), view: View) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else {
                    // No descriptor is left, perhaps: the next try fails just as fast.
                    BootClock.sleep_until(BootClock::time() + ACCEPT_AGAIN).await;
                    continue;
                };
                let mut view = view.clone();
                view.resets.mark_unchanged();
                connections.spawn(serve(client, to.clone(), view));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One connection, from its beginning to its end.
async fn serve(mut client: TcpStream, to: (String, u16), mut view: View) {
    if view.now() == Way::Cut {
        return;
    }
    let mut first = Vec::new();
    if view.now().holds(Direction::Requests)
        && !waits_held(&mut client, &mut first, &mut view).await
    {
        return;
    }
    let connect = TcpStream::connect((to.0.as_str(), to.1));
    let end = BootClock::time() + CONNECT_WITHIN;
    let server = tokio::select! {
        server = connect => server,
        () = BootClock.sleep_until(end) => return,
        () = view.until(|way| *way == Way::Cut) => return,
    };
    let Ok(mut server) = server else { return };
    if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
        return;
    }
    let is_reset = {
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        let requests = carry(from_client, to_server, first, Direction::Requests, view.clone());
        let replies = carry(from_server, to_client, Vec::new(), Direction::Replies, view.clone());
        let mut cut = view.clone();
        tokio::select! {
            _ = async { tokio::join!(requests, replies) } => false,
            () = cut.until(|way| *way == Way::Cut) => false,
            () = view.reset() => true,
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
async fn waits_held(client: &mut TcpStream, kept: &mut Vec<u8>, view: &mut View) -> bool {
    loop {
        tokio::select! {
            () = view.until(|way| !way.holds(Direction::Requests)) => {
                return view.now() != Way::Cut;
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
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    first: Vec<u8>,
    direction: Direction,
    mut view: View,
) -> io::Result<()> {
    let (sender, mut receiver) = mpsc::channel::<(Time, Vec<u8>)>(PIECES_MAX);
    let delay = view.clone();
    let take_in = async move {
        let mut piece = first;
        loop {
            if !piece.is_empty() {
                let due = BootClock::time() + delay.now().delay(direction);
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
            if BootClock::time() < due {
                BootClock.sleep_until(due).await;
            }
            view.until(|way| !way.holds(direction)).await;
            to.write_all(&piece).await?;
        }
        view.until(|way| !way.holds(direction)).await;
        to.shutdown().await
    };
    tokio::join!(take_in, hand_out).1
}

#[cfg(test)]
#[path = "proxy_tests.rs"]
mod tests;
