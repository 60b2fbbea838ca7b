//! The one error type that every store and the facade speak.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// What kind of trouble an [`Error`] is. Losing an election is never one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// What was asked for cannot be: a name, a duration, a URL. Fix the input.
    Config,
    /// The store did not answer, or answered that it cannot now. Try again.
    Unavailable,
    /// The store knows us and says no: a missing privilege, a read-only file.
    Denied,
    /// This store, or this version of it, has no such thing.
    Unsupported,
    /// What the store holds is not what tenure wrote.
    Corrupt,
    /// The election was stopped while somebody waited for it.
    Stopped,
    /// What acts for the candidate has died: nobody campaigns any more. Build a new candidate.
    Crashed,
    /// The handle was made before this process was forked from the one that it belongs to, and
    /// does nothing here. Make a new one.
    Forked,
}

/// What went wrong, in which store, while doing what.
///
/// The message is a lower-case sentence without a full stop that says what to do. Cloning is
/// cheap: one failed call may be the reason of a thousand unknown outcomes.
///
/// # Examples
/// ```
/// use tenure_core::{Error, ErrorKind};
///
/// let error = Error::new(ErrorKind::Unavailable, "the server does not answer; is it running?")
///     .in_store("sqlite")
///     .during("renew");
/// assert!(error.is_retryable());
/// assert_eq!(error.to_string(), "sqlite: renew: the server does not answer; is it running?");
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    store: Option<&'static str>,
    operation: Option<&'static str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of this kind; `message` says what to do about it.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        let message = message.into();
        Error(Arc::new(Inner { kind, message, store: None, operation: None, source: None }))
    }

    /// Shorthand for an error of kind [`ErrorKind::Config`].
    pub fn config(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Config, message)
    }

    /// A batch of more ops than a store takes in one call.
    pub fn batch_too_large(given: usize, limit: usize) -> Error {
        Error::config(format!(
            "a batch of {given} ops is too large, at most {limit} are taken; split it"
        ))
    }

    /// The same error, naming the store that it came from.
    #[must_use]
    pub fn in_store(self, store: &'static str) -> Error {
        self.with(|inner| inner.store = Some(store))
    }

    /// The same error, naming the operation that failed.
    #[must_use]
    pub fn during(self, operation: &'static str) -> Error {
        self.with(|inner| inner.operation = Some(operation))
    }

    /// The same error, with what caused it.
    #[must_use]
    pub fn caused_by(self, source: impl StdError + Send + Sync + 'static) -> Error {
        self.with(|inner| inner.source = Some(Arc::new(source)))
    }

    /// What kind of trouble this is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        self.0.kind == ErrorKind::Unavailable
    }

    /// The sentence alone, without the store and the operation.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The store that the error came from, if it came from one.
    pub fn store(&self) -> Option<&'static str> {
        self.0.store
    }

    /// The operation that failed, if it was one.
    pub fn operation(&self) -> Option<&'static str> {
        self.0.operation
    }

    fn with(mut self, change: impl FnOnce(&mut Inner)) -> Error {
        change(Arc::make_mut(&mut self.0));
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [self.0.store, self.0.operation].into_iter().flatten() {
            write!(f, "{part}: ")?;
        }
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.to_string())
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}
