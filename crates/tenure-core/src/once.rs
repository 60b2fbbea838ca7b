//! Work that is to be done once for a key: what the ledger keeps of it, and how it decides.
//!
//! ```text
//!                        ┌── end: ok ─────▶ ok (final)
//!   leader ─ claim ─▶ running ── end: failed ──▶ failed ─┐
//!              ▲         ├── end: lost ────▶ lost ───────┤ claim, attempt + 1,
//!              │         └── its term is over ───────────┤ while there are tries left
//!              └─────────────────────────────────────────┘
//! ```
//!
//! There is one record for each election and key. It is never trimmed.

use crate::{Error, Term};

/// How the work for a key ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnceEnd {
    /// It did what it should. Nobody runs it again.
    Ok,
    /// It ended with this code.
    Failed(i32),
    /// It was given up before it had ended: leadership was lost, or somebody asked it to stop.
    Lost,
}

/// Where the work for a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnceState {
    /// It runs under its term. Once that term is over, its leader has died or was lost.
    Running,
    /// It has ended.
    Ended(OnceEnd),
}

impl OnceState {
    /// One word for it.
    pub fn as_str(&self) -> &'static str {
        match self {
            OnceState::Running => "running",
            OnceState::Ended(OnceEnd::Ok) => "ok",
            OnceState::Ended(OnceEnd::Failed(_)) => "failed",
            OnceState::Ended(OnceEnd::Lost) => "lost",
        }
    }

    /// The state that columns tell: the word for it, and its code where the word has one. `None`
    /// for what no ledger writes.
    pub fn from_columns(word: &str, code: Option<i32>) -> Option<OnceState> {
        Some(match word {
            "running" => OnceState::Running,
            "ok" => OnceState::Ended(OnceEnd::Ok),
            "failed" => OnceState::Ended(OnceEnd::Failed(code?)),
            "lost" => OnceState::Ended(OnceEnd::Lost),
            _ => return None,
        })
    }

    /// The code that goes with the word.
    pub fn code(&self) -> Option<i32> {
        match self {
            OnceState::Ended(OnceEnd::Failed(code)) => Some(*code),
            _ => None,
        }
    }
}

/// What the ledger knows of the work for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OnceRecord {
    /// The key.
    pub key: String,
    /// Where it stands.
    pub state: OnceState,
    /// The term under which it was claimed last.
    pub term: Term,
    /// How often it was claimed.
    pub attempt: u32,
    /// Who claimed it last: a number drawn for that one run.
    pub run: u64,
    /// When it was claimed last, by the store's wall clock, for people to read.
    pub claimed_unix_ms: Option<i64>,
    /// When it ended.
    pub ended_unix_ms: Option<i64>,
}

impl OnceRecord {
    /// A record of a run that begins.
    pub fn new(key: impl Into<String>, term: Term, attempt: u32, run: u64) -> OnceRecord {
        OnceRecord {
            key: key.into(),
            state: OnceState::Running,
            term,
            attempt,
            run,
            claimed_unix_ms: None,
            ended_unix_ms: None,
        }
    }

    /// Whether a success is recorded. That is final.
    pub fn is_done(&self) -> bool {
        self.state == OnceState::Ended(OnceEnd::Ok)
    }

    /// Whether it has ended without success, and this many tries are used up.
    pub fn is_spent(&self, tries: u32) -> bool {
        let failed = matches!(self.state, OnceState::Ended(end) if end != OnceEnd::Ok);
        failed && self.attempt >= tries
    }
}

/// What a leader does about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnceStep {
    /// Takes it, to run its work.
    Claim {
        /// The key.
        key: String,
        /// A number drawn for this one run, so that a claim whose answer was lost is known again.
        run: u64,
        /// How often it may be claimed in all, by anybody.
        tries: u32,
    },
    /// Its work has ended.
    End {
        /// The key.
        key: String,
        /// As the claim told.
        attempt: u32,
        /// How.
        end: OnceEnd,
    },
}

impl OnceStep {
    /// The key that it is about.
    pub fn key(&self) -> &str {
        match self {
            OnceStep::Claim { key, .. } | OnceStep::End { key, .. } => key,
        }
    }
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnceMark {
    /// It is in the ledger, durably.
    Done {
        /// How often the key was claimed by now.
        attempt: u32,
    },
    /// A success is recorded for this key: there is nothing to run.
    Already,
    /// Another run of this same term has it.
    Running,
    /// All tries are used up, without success.
    Spent {
        /// How often it was claimed.
        attempt: u32,
    },
    /// The key does not stand where this end begins: another attempt, another term, ended.
    Refused,
    /// The term is over. Nothing was changed.
    Stale,
    /// A transaction of somebody else's is at this key. Nothing was changed; ask again.
    Busy,
}

/// Decides about a step of a term that holds: the answer, and the record to write if it changes.
/// Stores that can't call this decide the same.
pub fn decide_once(
    found: Option<&OnceRecord>,
    term: Term,
    now_unix_ms: Option<i64>,
    step: &OnceStep,
) -> (OnceMark, Option<OnceRecord>) {
    match step {
        OnceStep::Claim { key, run, tries } => {
            let attempt = match found {
                None => 1,
                Some(found) if found.is_done() => return (OnceMark::Already, None),
                Some(found) if found.state == OnceState::Running && found.term == term => {
                    let healed = OnceMark::Done { attempt: found.attempt };
                    return (if found.run == *run { healed } else { OnceMark::Running }, None);
                }
                Some(found) if found.attempt >= *tries => {
                    let spent = OnceMark::Spent { attempt: found.attempt };
                    let died = found.state == OnceState::Running;
                    return (spent, died.then(|| ended(found, OnceEnd::Lost, now_unix_ms)));
                }
                Some(found) => found.attempt + 1,
            };
            let mut record = OnceRecord::new(key.clone(), term, attempt, *run);
            record.claimed_unix_ms = now_unix_ms;
            (OnceMark::Done { attempt }, Some(record))
        }
        OnceStep::End { attempt, end, .. } => match found {
            Some(found) if found.term == term && found.attempt == *attempt => match found.state {
                OnceState::Running => {
                    (OnceMark::Done { attempt: *attempt }, Some(ended(found, *end, now_unix_ms)))
                }
                OnceState::Ended(before) if before == *end => {
                    (OnceMark::Done { attempt: *attempt }, None)
                }
                OnceState::Ended(_) => (OnceMark::Refused, None),
            },
            _ => (OnceMark::Refused, None),
        },
    }
}

fn ended(found: &OnceRecord, end: OnceEnd, now_unix_ms: Option<i64>) -> OnceRecord {
    let mut record = found.clone();
    record.state = OnceState::Ended(end);
    record.ended_unix_ms = now_unix_ms;
    record
}

/// Checks a key: 1 to 255 bytes without control characters.
///
/// # Errors
/// `Config`, with what is wrong about it.
pub fn check_once_key(key: &str) -> Result<(), Error> {
    if key.is_empty() {
        return Err(Error::config("the key is empty; name what is to be done once, as in v42"));
    }
    if key.len() > 255 {
        return Err(Error::config(format!(
            "the key has {} bytes, at most 255 are allowed",
            key.len()
        )));
    }
    if key.chars().any(char::is_control) {
        return Err(Error::config(format!(
            "the key {key:?} has a control character in it; leave that out"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_leads_back_from_its_columns() {
        for state in [
            OnceState::Running,
            OnceState::Ended(OnceEnd::Ok),
            OnceState::Ended(OnceEnd::Failed(3)),
            OnceState::Ended(OnceEnd::Lost),
        ] {
            assert_eq!(OnceState::from_columns(state.as_str(), state.code()), Some(state));
        }
        assert_eq!(OnceState::from_columns("odd", None), None);
        assert_eq!(OnceState::from_columns("failed", None), None);
    }

    #[test]
    fn a_key_is_checked() {
        assert!(check_once_key("v42 of the schema").is_ok());
        for (key, says) in
            [("", "is empty"), ("a\nb", "control character"), (&*"x".repeat(256), "256 bytes")]
        {
            assert!(check_once_key(key).unwrap_err().message().contains(says));
        }
    }
}
