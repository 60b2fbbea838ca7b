//! Leases that may be given back for a holder that is proven dead.

use crate::Secret;

/// For stores where a lease may be given back as soon as its holder, and everything that worked for
/// it, is proven dead (D1).
///
/// The proof is found by another process on the same host, which then sends a release that names
/// the dead incarnation alone (D3). A store has this face only if nothing of the holder's can act
/// after its death. A server that goes on with what was sent has not (D4).
pub trait Witness: Send + Sync {
    /// The URL under which another process on this host reaches this very store; `None` if it can't
    /// be written down.
    fn url(&self) -> Option<Secret>;
}
