//! How many may be connected: all together, from one address, and a few more who ask for health.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tenure::core::sync::lock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::gate::Peer;
use crate::server::Limits;

/// Who is in. Clones share the same room.
#[derive(Clone)]
pub(crate) struct Room {
    ordinary: Arc<Semaphore>,
    reserve: Arc<Semaphore>,
    per_peer: usize,
    peers: Peers,
}

type Peers = Arc<Mutex<HashMap<IpAddr, usize>>>;

/// Somebody who came in.
pub(crate) struct Admitted {
    pub(crate) permit: Permit,
    /// On the reserve.
    pub(crate) health_only: bool,
}

/// A place, which is free again when this is dropped.
pub(crate) struct Permit {
    _place: OwnedSemaphorePermit,
    counted: Option<(IpAddr, Peers)>,
}

impl Room {
    pub(crate) fn new(limits: &Limits) -> Room {
        Room {
            ordinary: Arc::new(Semaphore::new(limits.connections)),
            reserve: Arc::new(Semaphore::new(limits.reserve)),
            per_peer: limits.per_peer,
            peers: Peers::default(),
        }
    }

    /// A place for this peer, if there is one.
    pub(crate) fn admit(&self, peer: Peer) -> Option<Admitted> {
        let ordinary = self.ordinary.clone().try_acquire_owned().ok();
        if let Some(place) = ordinary
            && let Ok(counted) = self.count(peer)
        {
            let permit = Permit { _place: place, counted };
            return Some(Admitted { permit, health_only: false });
        }
        let place = self.reserve.clone().try_acquire_owned().ok()?;
        Some(Admitted { permit: Permit { _place: place, counted: None }, health_only: true })
    }

    /// Counts one more of an address, unless it has all that it may have.
    fn count(&self, peer: Peer) -> Result<Option<(IpAddr, Peers)>, ()> {
        let Peer::Ip(address) = peer else { return Ok(None) };
        let mut peers = lock(&self.peers);
        let count = peers.entry(address).or_default();
        if *count >= self.per_peer {
            return Err(());
        }
        *count += 1;
        Ok(Some((address, self.peers.clone())))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some((address, peers)) = self.counted.take() else { return };
        let mut peers = lock(&peers);
        if let Some(count) = peers.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                peers.remove(&address);
            }
        }
    }
}
