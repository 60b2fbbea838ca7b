//! Where the errors of the file system become those of tenure.

use std::io;
use std::path::Path;

use tenure_core::{Error, ErrorKind};

/// What the errors of this store are called.
pub(crate) const STORE: &str = "toy";

pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, message).in_store(STORE)
}

/// For `map_err`: `path` can't be used.
pub(crate) fn unusable(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.display().to_string();
    move |source| {
        let kind = match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                ErrorKind::Denied
            }
            _ => ErrorKind::Unavailable,
        };
        new(kind, format!("{path} can't be used: {source}")).caused_by(source)
    }
}

pub(crate) fn corrupt(path: &Path, why: impl std::fmt::Display) -> Error {
    let path = path.display();
    let message = format!("{path} is not what this store wrote: {why}; restore it or move it away");
    new(ErrorKind::Corrupt, message)
}
