//! Whether a lease is held at an instant, and for how long: by its end, where that is on our own
//! clock; else by watching it.
//!
//! A lease under another boot id is of before a reboot, or of a container with a boot id of its
//! own (systemd-nspawn, LXC, Incus) that is alive and well (S2). Where both ids are the kernel's
//! own it was a reboot. Elsewhere its times mean nothing here, so it is watched on our own clock:
//! what has not changed for its whole ttl was not renewed (O1).

use std::collections::HashMap;

use tenure_core::{Name, Term};

use crate::host::Boot;

/// What a lease is worth at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nobody holds it.
    Vacant,
    /// It is held for so many nanoseconds more, unless it is renewed.
    Held { left_ns: i64 },
    /// It was not renewed in time.
    RanOut,
    /// The machine was booted since, so nobody is left who could hold it.
    BeforeReboot,
}

/// What only the holder of a lease changes, and with each renewal does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) holder: Option<String>,
    pub(crate) term: Term,
    pub(crate) seq: i64,
    pub(crate) expires_ns: i64,
    pub(crate) ttl_ns: i64,
    pub(crate) boot: Boot,
}

/// The leases that one handle watches, each since it was first seen as it is.
#[derive(Debug, Default)]
pub(crate) struct Watch(HashMap<Name, (Record, i64)>);

impl Watch {
    /// What the lease is worth now, under our own boot.
    pub(crate) fn standing(
        &mut self,
        election: &Name,
        record: &Record,
        now_ns: i64,
        boot: Boot,
    ) -> Standing {
        let left_ns = record.expires_ns.saturating_sub(now_ns);
        let standing = match record {
            record if record.holder.is_none() => Standing::Vacant,
            record if record.boot.is_before_reboot_to(boot) => Standing::BeforeReboot,
            record if record.boot == boot && left_ns <= 0 => Standing::RanOut,
            // It can't last longer than its ttl: else the clock began anew under the same id.
            record if record.boot == boot && left_ns <= record.ttl_ns => Standing::Held { left_ns },
            record => return self.watched(election, record, now_ns),
        };
        self.0.remove(election);
        standing
    }

    fn watched(&mut self, election: &Name, record: &Record, now_ns: i64) -> Standing {
        // Two clocks may differ by 1 %, and the wait is where that is paid (O2).
        let enough = record.ttl_ns.saturating_add(record.ttl_ns / 100);
        let since = match self.0.get(election) {
            Some((seen, since)) if seen == record => *since,
            seen => {
                if seen.is_none() {
                    warn(election, record);
                }
                self.0.insert(election.clone(), (record.clone(), now_ns));
                now_ns
            }
        };
        match enough.saturating_sub(now_ns.saturating_sub(since)) {
            left_ns if left_ns > 0 => Standing::Held { left_ns },
            _ => Standing::RanOut,
        }
    }
}

fn warn(election: &Name, record: &Record) {
    tracing::warn!(
        %election,
        holder = record.holder.as_deref().unwrap_or_default(),
        "the lease was written under another boot id, and one of the two may be a container's: \
         it is taken over only when it has not changed for its whole ttl, and no death is seen; \
         let all candidates see the kernel's own boot id, or elect with a server"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;

    const TTL: i64 = 1_000;

    fn record(expires_ns: i64, boot: Boot) -> Record {
        let (holder, term) = (Some("a#1".to_owned()), Term::new(1).unwrap());
        Record { holder, term, seq: 1, expires_ns, ttl_ns: TTL, boot }
    }

    fn boots() -> (Boot, Boot) {
        let host = Host::detect().unwrap().with_boot_id("the kernel's");
        (host.boot(), host.with_boot_id_of_container("made up").boot())
    }

    #[test]
    fn a_first_look_never_takes_over_and_each_change_begins_anew() {
        let (ours, theirs) = boots();
        let (mut watch, name) = (Watch::default(), Name::new("e").unwrap());
        // Far in our past and far in our future: neither means anything here.
        for expires in [5, 1_000_000] {
            let record = record(expires, theirs);
            assert_eq!(
                watch.standing(&name, &record, 100, ours),
                Standing::Held { left_ns: 1_010 }
            );
            let held = watch.standing(&name, &record, 1_109, ours);
            assert_eq!(held, Standing::Held { left_ns: 1 });
        }
        let renewed = record(1_000_001, theirs);
        assert_eq!(watch.standing(&name, &renewed, 1_110, ours), Standing::Held { left_ns: 1_010 });
        assert_eq!(watch.standing(&name, &renewed, 2_120, ours), Standing::RanOut);
    }

    #[test]
    fn an_end_on_our_own_clock_is_believed_unless_it_is_too_far_away() {
        let (ours, _) = boots();
        let (mut watch, name) = (Watch::default(), Name::new("e").unwrap());
        let mut at = |expires, now| watch.standing(&name, &record(expires, ours), now, ours);
        assert_eq!(at(1_500, 600), Standing::Held { left_ns: 900 });
        assert_eq!(at(1_500, 1_500), Standing::RanOut);
        assert_eq!(at(9_000, 10), Standing::Held { left_ns: 1_010 }, "the clock began anew");
        assert_eq!(at(9_000, 1_020), Standing::RanOut);
    }
}
