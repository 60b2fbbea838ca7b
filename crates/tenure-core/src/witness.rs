//! Leases that may be given back for a holder that is proven dead.

use crate::Secret;

/// For stores where a lease may be given back as soon as its holder, and everything that worked for
/// it, is proven dead (D1).
///
/// The proof is found by a witness, another process on the same host, which then sends a release
/// that names the dead incarnation alone and has the highest number (D3). After it the store grants
/// nothing to that incarnation any more, so that whatever the dead process had sent before changes
/// nothing, however late it comes.
///
/// A store has this face only if a release may come over another connection than the acquire did.
/// One whose leases end with a connection needs none.
///
/// It says nothing about requests that the dead process had sent to other servers, or to this one
/// for its work: those are carried out all the same (D4).
pub trait Witness: Send + Sync {
    /// The URL under which another process on this host reaches this very store; `None` if it can't
    /// be written down.
    fn url(&self) -> Option<Secret>;
}
