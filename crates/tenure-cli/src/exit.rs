//! How the command ends: codes, and what is said with them.

use std::fmt;

use tenure::{Error, ErrorKind};
use tenure_drill::DrillError;

/// The code that the process exits with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit(pub(crate) u8);

impl Exit {
    /// All done.
    pub(crate) const DONE: Exit = Exit(0);
    /// The answer is no.
    pub(crate) const NEGATIVE: Exit = Exit(1);
    /// The command line or the configuration is at fault.
    pub(crate) const USAGE: Exit = Exit(2);
    /// The store does not answer, and the command is not one that goes on trying.
    pub(crate) const UNAVAILABLE: Exit = Exit(69);
    /// Leadership was lost before the command ended, under `--once`.
    pub(crate) const LOST: Exit = Exit(75);
    /// Another instance leads, and is not waited for.
    pub(crate) const ELSEWHERE: Exit = Exit(75);
    /// Tenure itself failed.
    pub(crate) const FAILED: Exit = Exit(125);

    /// What a process exits with that a signal ended.
    pub(crate) fn by_signal(signal: crate::process::Signal) -> Exit {
        Exit::by_signal_number(signal.as_raw())
    }

    /// The same, by the number of the signal.
    pub(crate) fn by_signal_number(signal: i32) -> Exit {
        Exit::of_command(128 + signal)
    }

    /// The code of a command, as it was reported.
    pub(crate) fn of_command(code: i32) -> Exit {
        u8::try_from(code).map_or(Exit::FAILED, Exit)
    }
}

/// Why a command of tenure failed: one or two sentences, and the code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) error: anyhow::Error,
}

impl Failure {
    /// What was asked for can't be.
    pub(crate) fn usage(message: impl fmt::Display) -> Failure {
        Failure { exit: Exit::USAGE, error: anyhow::anyhow!("{message}") }
    }

    /// The same failure, saying what it is about.
    pub(crate) fn about(self, what: impl fmt::Display) -> Failure {
        Failure { exit: self.exit, error: anyhow::anyhow!("{what}: {:#}", self.error) }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let exit = match error.kind() {
            ErrorKind::Unavailable => Exit::UNAVAILABLE,
            ErrorKind::Stopped | ErrorKind::Crashed | ErrorKind::Forked => Exit::FAILED,
            _ => Exit::USAGE,
        };
        // Not the causes: the sentence says what to do, and they go to the log.
        tracing::debug!(?error, "failed");
        Failure { exit, error: anyhow::anyhow!("{error}") }
    }
}

impl From<DrillError> for Failure {
    fn from(error: DrillError) -> Failure {
        match error {
            DrillError::Refused(sentence) => Failure::usage(sentence),
            DrillError::Store(error) => Failure::from(error),
            other => Failure { exit: Exit::FAILED, error: anyhow::anyhow!("{other}") },
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure { exit: Exit::FAILED, error }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::from(anyhow::Error::from(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_error_has_its_code() {
        let code = |kind| Failure::from(Error::new(kind, "x")).exit;
        assert_eq!(code(ErrorKind::Unavailable), Exit::UNAVAILABLE);
        assert_eq!(code(ErrorKind::Stopped), Exit::FAILED);
        for kind in
            [ErrorKind::Config, ErrorKind::Denied, ErrorKind::Unsupported, ErrorKind::Corrupt]
        {
            assert_eq!(code(kind), Exit::USAGE);
        }
        assert_eq!(Exit::by_signal(crate::process::Signal::TERM), Exit(143));
        assert_eq!(Exit::of_command(7), Exit(7));
        assert_eq!(Exit::of_command(-1), Exit::FAILED);
    }
}
