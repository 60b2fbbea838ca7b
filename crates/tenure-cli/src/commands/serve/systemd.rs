//! The sockets that systemd may have opened.

use listenfd::ListenFd;
use tenure::Error;
use tenure_http::Listener;

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
