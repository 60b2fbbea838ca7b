//! What a reply must be.

use tenure_core::{Error, Grant, Reply, Sight};

/// The grant, which this reply must be.
#[track_caller]
pub fn granted(reply: Reply) -> Grant {
    match reply {
        Reply::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

/// What was seen by a refusal, which this reply must be.
#[track_caller]
pub fn refused(reply: Reply) -> Sight {
    match reply {
        Reply::Refused(sight) => sight,
        other => panic!("not refused: {other:?}"),
    }
}

/// The error of an unknown outcome, which this reply must be.
#[track_caller]
pub fn unknown(reply: Reply) -> Error {
    match reply {
        Reply::Unknown(error) => error,
        other => panic!("not unknown: {other:?}"),
    }
}
