//! From an error of tenure to one that TypeScript makes a `TenureError` of.

use serde_json::{Value, json};
use tenure::{Error, ErrorKind};

/// The exception for an error. Its message is JSON, which TypeScript reads: an exception of the
/// native side has room for one string.
pub(crate) fn raise(error: &Error) -> napi::Error {
    napi::Error::from_reason(json!({ "tenure": describe(error) }).to_string())
}

/// What there is to know of an error.
pub(crate) fn describe(error: &Error) -> Value {
    json!({
        "kind": kind(error),
        "message": error.to_string(),
        "retryable": error.is_retryable(),
        "store": error.store(),
    })
}

fn kind(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::Config => "config",
        ErrorKind::Denied => "denied",
        ErrorKind::Unsupported => "unsupported",
        ErrorKind::Corrupt => "corrupt",
        ErrorKind::Stopped => "stopped",
        ErrorKind::Crashed => "crashed",
        ErrorKind::Forked => "forked",
        _ => "unavailable",
    }
}
