//! A piece of network that can be cut.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};

/// Forwards connections to a port, until told to swallow what comes.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    /// Connections with a number below this one are swallowed, in both directions.
    swallow_below: Arc<AtomicUsize>,
    accepted: Arc<AtomicUsize>,
    /// New connections are taken and forwarded.
    open: Arc<AtomicBool>,
    /// Where new connections lead.
    to: Arc<AtomicU16>,
}

impl Proxy {
    pub(crate) fn start(to: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy {
            port: listener.local_addr().unwrap().port(),
            swallow_below: Arc::default(),
            accepted: Arc::default(),
            open: Arc::new(AtomicBool::new(true)),
            to: Arc::new(AtomicU16::new(to)),
        };
        let (below, accepted) = (proxy.swallow_below.clone(), proxy.accepted.clone());
        let (open, to) = (proxy.open.clone(), proxy.to.clone());
        std::thread::spawn(move || {
            let mut swallowed = Vec::new();
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let number = accepted.fetch_add(1, Ordering::SeqCst);
                if !open.load(Ordering::SeqCst) {
                    // Taken by the kernel, and never answered.
                    swallowed.push(client);
                    continue;
                }
                let port = to.load(Ordering::SeqCst);
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                for (from, to) in
                    [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
                {
                    let below = below.clone();
                    std::thread::spawn(move || forward(from, to, number, &below));
                }
            }
        });
        proxy
    }

    /// The connections that are open now hang; new ones work.
    pub(crate) fn swallow_open_ones(&self) {
        self.swallow_below.store(self.accepted.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// New connections lead to another port.
    pub(crate) fn lead_to(&self, port: u16) {
        self.to.store(port, Ordering::SeqCst);
    }

    /// Everything hangs from now on, new connections too.
    pub(crate) fn black_hole(&self) {
        self.open.store(false, Ordering::SeqCst);
        self.swallow_below.store(usize::MAX, Ordering::SeqCst);
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, number: usize, below: &AtomicUsize) {
    let mut bytes = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        let swallowed = number < below.load(Ordering::SeqCst);
        if !swallowed && to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    if number >= below.load(Ordering::SeqCst) {
        let _ = to.shutdown(std::net::Shutdown::Both);
    }
}
