//! What systemd wants to know, and the sockets it may have opened. Without systemd all of this does
//! nothing.

use std::env;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use listenfd::ListenFd;
use tenure::Error;
use tenure_http::Listener;

/// A way to tell systemd something, if it listens.
pub(super) struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// As the environment says.
    pub(super) fn from_env() -> Notifier {
        let address = env::var("NOTIFY_SOCKET").ok().and_then(|name| address(&name));
        let socket = address.and_then(|address| Some((UnixDatagram::unbound().ok()?, address)));
        let pid = env::var("WATCHDOG_PID").ok();
        let mine = pid.is_none_or(|pid| pid.parse() == Ok(std::process::id()));
        let usec = env::var("WATCHDOG_USEC").ok().and_then(|usec| usec.parse().ok());
        let watchdog = usec.filter(|_| mine && socket.is_some()).map(Duration::from_micros);
        Notifier { socket, watchdog }
    }

    /// One that tells this socket.
    #[cfg(test)]
    pub(super) fn to(path: &std::path::Path, watchdog: Duration) -> Notifier {
        let address = SocketAddr::from_pathname(path).expect("a path of a test is short");
        let socket = UnixDatagram::unbound().expect("there are sockets");
        Notifier { socket: Some((socket, address)), watchdog: Some(watchdog) }
    }

    /// Tells it; that nobody listens is no failure.
    pub(super) fn tell(&self, state: &str) {
        if let Some((socket, address)) = &self.socket
            && let Err(error) = socket.send_to_addr(state.as_bytes(), address)
        {
            tracing::debug!(%error, "systemd was not told");
        }
    }

    /// How often it wants a sign of life; half of what it allows.
    pub(super) fn alive_every(&self) -> Option<Duration> {
        self.watchdog.map(|span| span / 2).filter(|span| !span.is_zero())
    }
}

fn address(name: &str) -> Option<SocketAddr> {
    match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name.as_bytes()).ok(),
        None => SocketAddr::from_pathname(name).ok(),
    }
}

/// The sockets that were opened for this process.
pub(super) fn sockets() -> Result<Vec<Listener>, Error> {
    let mut given = ListenFd::from_env();
    let mut listeners = Vec::with_capacity(given.len());
    for number in 0..given.len() {
        let odd = |error| {
            Error::config(format!("socket {number} of systemd is no stream that listens: {error}"))
        };
        // Each says by an error, and not by taking it, that the socket is of another kind.
        let listener = match given.take_tcp_listener(number) {
            Ok(Some(socket)) => Listener::from_tcp(socket)?,
            Ok(None) => continue,
            Err(_) => match given.take_unix_listener(number).map_err(odd)? {
                Some(socket) => Listener::from_unix(socket)?,
                None => continue,
            },
        };
        listeners.push(listener);
    }
    Ok(listeners)
}
