//! How many may be connected: all together, from one address, and a few more who ask for health.
//!
//! The reserve is for those who ask at once. When it is full, a newcomer takes the place of the one
//! that has been there longest: idle connections can't keep a probe out.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tenure::core::sync::lock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use crate::gate::Peer;
use crate::server::Limits;

/// Who is in. Clones share the same room.
#[derive(Clone)]
pub(crate) struct Room {
    ordinary: Arc<Semaphore>,
    per_peer: usize,
    peers: Peers,
    reserve: usize,
    /// Those on the reserve, the longest there first.
    reserved: Arc<Mutex<VecDeque<AbortHandle>>>,
}

type Peers = Arc<Mutex<HashMap<IpAddr, usize>>>;

/// How somebody comes in.
pub(crate) enum Admission {
    Ordinary(Permit),
    /// To ask for health, and with [`Room::reserved_for`].
    Reserve,
    Refused,
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
            per_peer: limits.per_peer,
            peers: Peers::default(),
            reserve: limits.reserve,
            reserved: Arc::default(),
        }
    }

    /// Whether there is a place for this peer.
    pub(crate) fn admit(&self, peer: Peer) -> Admission {
        let ordinary = self.ordinary.clone().try_acquire_owned().ok();
        if let Some(place) = ordinary
            && let Ok(counted) = self.count(peer)
        {
            return Admission::Ordinary(Permit { _place: place, counted });
        }
        if self.reserve == 0 { Admission::Refused } else { Admission::Reserve }
    }

    /// This connection came in on the reserve.
    pub(crate) fn reserved_for(&self, connection: AbortHandle) {
        let mut reserved = lock(&self.reserved);
        reserved.retain(|connection| !connection.is_finished());
        if reserved.len() >= self.reserve
            && let Some(longest) = reserved.pop_front()
        {
            longest.abort();
        }
        reserved.push_back(connection);
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
