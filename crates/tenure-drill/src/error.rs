//! Why a drill could not be done.

use std::fmt;

use tenure_core::Error;

/// Why a drill could not be done, or not be brought to its end.
///
/// A broken promise is none of these: it is what a drill is there to find, and stands in the
/// [`Judgement`](crate::judge::Judgement).
#[derive(Debug)]
#[non_exhaustive]
pub enum DrillError {
    /// What was asked for can't be done; the sentence says what to do instead.
    Refused(String),
    /// The store refused, or did not answer.
    Store(Error),
    /// Something else that the drill needs has failed: a file, a process.
    Failed(String),
}

impl DrillError {
    /// What was asked for can't be done.
    pub fn refused(sentence: impl Into<String>) -> DrillError {
        DrillError::Refused(sentence.into())
    }

    /// Something that the drill needs has failed.
    pub fn failed(sentence: impl Into<String>) -> DrillError {
        DrillError::Failed(sentence.into())
    }

    /// For `map_err`: the error, and what could not be done because of it.
    pub(crate) fn because<E: fmt::Display>(
        what: impl Into<String>,
    ) -> impl FnOnce(E) -> DrillError {
        let what = what.into();
        move |error| DrillError::Failed(format!("{what}: {error}"))
    }
}

impl fmt::Display for DrillError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DrillError::Refused(sentence) | DrillError::Failed(sentence) => f.write_str(sentence),
            DrillError::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DrillError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            DrillError::Store(error) => error.source(),
            DrillError::Refused(_) | DrillError::Failed(_) => None,
        }
    }
}

impl From<Error> for DrillError {
    fn from(error: Error) -> DrillError {
        DrillError::Store(error)
    }
}

impl From<std::io::Error> for DrillError {
    fn from(error: std::io::Error) -> DrillError {
        DrillError::Failed(error.to_string())
    }
}
