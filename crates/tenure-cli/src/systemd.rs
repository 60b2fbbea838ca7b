//! What systemd wants to know. Without systemd all of this does nothing.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tenure::{BootClock, Clock as _, Election};

/// How long a driver may take to answer before this process counts as hanging.
const DRIVER_WITHIN: Duration = Duration::from_secs(2);

/// A way to tell systemd something, if it listens.
pub(crate) struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// As the environment says.
    pub(crate) fn from_env() -> Notifier {
        let address = env::var("NOTIFY_SOCKET").ok().and_then(|name| address(&name));
        let socket = address.and_then(|address| Some((unblocking().ok()?, address)));
        let pid = env::var("WATCHDOG_PID").ok();
        let mine = pid.is_none_or(|pid| pid.parse() == Ok(std::process::id()));
        let usec = env::var("WATCHDOG_USEC").ok().and_then(|usec| usec.parse().ok());
        let watchdog = usec.filter(|_| mine && socket.is_some()).map(Duration::from_micros);
        Notifier { socket, watchdog }
    }

    /// One that tells this socket.
    #[cfg(test)]
    pub(crate) fn to(path: &std::path::Path, watchdog: Duration) -> Notifier {
        let address = SocketAddr::from_pathname(path).expect("a path of a test is short");
        let socket = UnixDatagram::unbound().expect("there are sockets");
        Notifier { socket: Some((socket, address)), watchdog: Some(watchdog) }
    }

    /// Tells it; that nobody listens is no failure.
    pub(crate) fn tell(&self, state: &str) {
        if let Some((socket, address)) = &self.socket
            && let Err(error) = socket.send_to_addr(state.as_bytes(), address)
        {
            tracing::debug!(%error, "systemd was not told");
        }
    }

    /// Gives systemd one sign of life, if it wants any and this process deserves it.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost but this sign.
    pub(crate) async fn alive(&self, elections: &[Election]) {
        let Some(every) = self.alive_every() else { return std::future::pending().await };
        pause(every).await;
        let overdue = |election: &&Election| {
            election.overdue().is_some_and(|overdue| overdue.by > election.timing().margin)
        };
        if elections.iter().find(overdue).is_some() {
            return;
        }
        if let Some(election) = elections.first() {
            tokio::select! {
                () = election.driver_answers() => {}
                () = pause(DRIVER_WITHIN) => return,
            }
        }
        self.tell("WATCHDOG=1");
    }

    /// How often it wants a sign of life; half of what it allows.
    fn alive_every(&self) -> Option<Duration> {
        self.watchdog.map(|span| span / 2).filter(|span| !span.is_zero())
    }
}

/// A queue that nobody reads must not hold up a candidate: what does not fit is not told.
fn unblocking() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn address(name: &str) -> Option<SocketAddr> {
    match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name.as_bytes()).ok(),
        None => SocketAddr::from_pathname(name).ok(),
    }
}

async fn pause(span: Duration) {
    BootClock.sleep_until(BootClock::time() + span).await;
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::sync::Arc;

    use tenure::MemoryStore;

    use super::*;

    #[tokio::test]
    async fn systemd_gets_no_sign_of_life_while_work_goes_on_after_trust_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let told = || socket.recv(&mut [0; 64]).is_ok();
        let notifier = Notifier::to(&path, Duration::from_millis(20));
        let election = Election::builder("job", Arc::new(MemoryStore::new()));
        let election = election.ttl(Duration::from_millis(600)).build().unwrap();
        let elections = [election.clone()];
        let tenure = election.campaign().await.unwrap();
        notifier.alive(&elections).await;
        assert!(told(), "it is well");
        election.ask_to_resign(None).await.unwrap();
        let late = || election.overdue().is_some_and(|late| late.by > election.timing().margin);
        // Read at once: a socket whose queue is full holds up whoever tells it something.
        while !late() {
            notifier.alive(&elections).await;
            told();
        }
        while told() {}
        notifier.alive(&elections).await;
        assert!(!told(), "it ought to have stepped down");
        drop(tenure);
        while election.overdue().is_some() {
            notifier.alive(&elections).await;
            told();
        }
        notifier.alive(&elections).await;
        assert!(told(), "it is well again");
    }
}
