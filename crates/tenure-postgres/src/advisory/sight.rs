//! Who holds an election, read from the locks of the server.

use std::time::Duration;

use tenure_core::{CandidateId, Error, ErrorKind, Holder, Lease, Sight, Term};
use tokio_postgres::Row;

use super::key;
use crate::error;

/// How soon to look again at a holder of ours that has no liveness lock: it is ending this instant.
const ENDING: Duration = Duration::from_millis(20);

/// How often a foreign holder is polled for by those who only watch.
const POLL: Duration = Duration::from_secs(5);

/// How long a session may be silent beyond its ttl on a server that ends such sessions.
const OVERDUE_MAX: Duration = Duration::from_secs(1);

/// One row of `tried` or `looked`.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) place: usize,
    pub(super) won: bool,
    pub(super) clock: Duration,
    pub(super) holder: Option<Held>,
}

/// The session that holds a lock.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) pid: i32,
    pub(super) term: Option<Term>,
    application: Option<String>,
    /// It has a liveness lock: it is ours, and those who wait for that lock learn of its end.
    pub(super) live: bool,
    ttl: Option<Duration>,
    idle: Option<Duration>,
}

impl Seen {
    /// Reads a row; `keys` are those that were asked about.
    pub(super) fn from_row(row: &Row, keys: &[i64]) -> Result<Seen, Error> {
        let broken = |error: tokio_postgres::Error| {
            error::new(ErrorKind::Corrupt, "the server shows its locks in another shape")
                .caused_by(error)
        };
        if row.try_get::<_, bool>(10).map_err(broken)? {
            return Err(standby());
        }
        let place: i64 = row.try_get(0).map_err(broken)?;
        let place = usize::try_from(place - 1).unwrap_or(usize::MAX);
        let Some(key) = keys.get(place) else {
            return Err(error::new(ErrorKind::Corrupt, "the server answers what was not asked"));
        };
        let pid: Option<i32> = row.try_get(3).map_err(broken)?;
        let holder = match pid {
            None => None,
            Some(pid) => {
                let hi: Option<i64> = row.try_get(8).map_err(broken)?;
                let lo: Option<i64> = row.try_get(9).map_err(broken)?;
                let ttl_ms: Option<i64> = row.try_get(6).map_err(broken)?;
                let idle_us: Option<i64> = row.try_get(7).map_err(broken)?;
                Some(Held {
                    pid,
                    term: hi.zip(lo).and_then(|(hi, lo)| key::unmask(*key, hi, lo)),
                    application: row.try_get(4).map_err(broken)?,
                    live: row.try_get(5).map_err(broken)?,
                    ttl: ttl_ms.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis),
                    idle: idle_us.map(|us| Duration::from_micros(us.try_into().unwrap_or(0))),
                })
            }
        };
        let clock: i64 = row.try_get(2).map_err(broken)?;
        let clock = Duration::from_micros(u64::try_from(clock).unwrap_or(0));
        Ok(Seen { place, won: row.try_get(1).map_err(broken)?, clock, holder })
    }

    /// What an op is answered with; `known` names candidates of this process in full.
    pub(super) fn sight(
        &self,
        caller_ttl: Option<Duration>,
        last_term: Option<Term>,
        watched: bool,
        known: impl Fn(&str) -> Option<CandidateId>,
    ) -> Sight {
        let lease = self.holder.as_ref().map(|held| held.lease(caller_ttl, watched, known));
        let of_lease = lease.as_ref().and_then(|lease| lease.term);
        Sight {
            lease,
            last_term: last_term.max(of_lease),
            store_clock: Some(self.clock),
            ..Sight::default()
        }
    }
}

impl Held {
    /// It calls itself as sessions of ours do, and its liveness lock is gone: so is it, nearly.
    pub(super) fn is_ending(&self) -> bool {
        let name = self.application.as_deref().unwrap_or_default();
        !self.live && Holder::new(name).label() != name
    }

    fn lease(
        &self,
        caller_ttl: Option<Duration>,
        watched: bool,
        known: impl Fn(&str) -> Option<CandidateId>,
    ) -> Lease {
        let name = self.application.as_deref().unwrap_or_default();
        let holder = match known(name) {
            Some(candidate) => Holder::from(&candidate),
            None if name.is_empty() => Holder::new(format!("backend {}", self.pid)),
            None => Holder::new(name),
        };
        // One without a liveness lock is a client of another kind, and is asked after as often
        // as a leader would renew.
        let poll = caller_ttl.map_or(POLL, |ttl| ttl / 3);
        let remaining = match self.ttl.filter(|_| self.live) {
            Some(ttl) => {
                let idle = self.idle.unwrap_or_default();
                let left = ttl.saturating_sub(idle);
                let left = if watched { left } else { left.min(poll) };
                // One that the server lets stay must not be asked after without end.
                let stays = idle > ttl + OVERDUE_MAX;
                left.max(if stays { poll } else { Duration::from_millis(1) })
            }
            None if self.is_ending() => ENDING,
            None => poll,
        };
        Lease {
            holder,
            term: self.term,
            remaining,
            ttl: self.ttl.filter(|_| self.live),
            since_unix_ms: None,
            metadata: None,
        }
    }
}

/// Locks of a standby are not those of its primary.
pub(super) fn standby() -> Error {
    error::new(
        ErrorKind::Unavailable,
        "the server is read-only, a standby perhaps, and its locks are not those of the primary; \
         name all servers in the URL, or the primary",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frozen_leader_that_the_server_lets_stay_is_polled_for_and_no_oftener() {
        let (ttl, second) = (Duration::from_secs(9), Duration::from_secs(1));
        let remaining = |idle: Duration, watched: bool| {
            let held = Held {
                pid: 1,
                term: None,
                application: None,
                live: true,
                ttl: Some(ttl),
                idle: Some(idle),
            };
            held.lease(Some(ttl), watched, |_| None).remaining
        };
        for watched in [false, true] {
            assert_eq!(remaining(ttl - second, watched), second);
            // The server is about to end it.
            assert_eq!(remaining(ttl + second / 2, watched), Duration::from_millis(1));
            for late in [ttl * 2, ttl * 1_000] {
                assert_eq!(remaining(late, watched), ttl / 3);
            }
        }
    }
}
