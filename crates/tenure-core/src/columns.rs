//! The ledger's steps and answers as columns, the form in which stores send and keep them.

use crate::{LedgerStep, Marked, OnceMark, OnceState, OnceStep, TickEnd, TickState};

/// A [`LedgerStep`] as a store writes it down: a verb, a job, and what goes with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepColumns<'a> {
    /// `claim`, `start`, `end`, `retry`, `confirm`, `skip`, `follow`, `abandon` or `trim`.
    pub verb: &'static str,
    /// The job.
    pub job: &'a str,
    /// The instant of the tick, or the one that a job is followed from; a trim has none.
    pub at_unix_ms: Option<i64>,
    /// Which attempt starts, ends, is to be followed by another, or is confirmed.
    pub attempt: Option<u32>,
    /// `again` for a claim that may repeat; the state that an end leads to; the schedule to follow.
    pub word: Option<&'a str>,
    /// The code that an end or a retry failed with.
    pub code: Option<i32>,
    /// The last instant that a skip stands for.
    pub through_unix_ms: Option<i64>,
    /// How many ticks a skip stands for, or how many a trim keeps.
    pub count: Option<u64>,
}

impl LedgerStep {
    /// This step as columns. One function for all stores, so that they agree on every word.
    pub fn columns(&self) -> StepColumns<'_> {
        let (verb, at_unix_ms, attempt) = match self {
            LedgerStep::Claim { tick, .. } => ("claim", Some(tick.scheduled_unix_ms), None),
            LedgerStep::Start { tick, attempt } => {
                ("start", Some(tick.scheduled_unix_ms), Some(*attempt))
            }
            LedgerStep::End { tick, attempt, .. } => {
                ("end", Some(tick.scheduled_unix_ms), Some(*attempt))
            }
            LedgerStep::Retry { tick, attempt, .. } => {
                ("retry", Some(tick.scheduled_unix_ms), Some(*attempt))
            }
            LedgerStep::Confirm { tick, attempt } => {
                ("confirm", Some(tick.scheduled_unix_ms), Some(*attempt))
            }
            LedgerStep::Skip { tick, .. } => ("skip", Some(tick.scheduled_unix_ms), None),
            LedgerStep::Follow { from_unix_ms, .. } => ("follow", Some(*from_unix_ms), None),
            LedgerStep::Abandon { tick } => ("abandon", Some(tick.scheduled_unix_ms), None),
            LedgerStep::Trim { .. } => ("trim", None, None),
        };
        let (word, code) = match self {
            LedgerStep::Claim { again, .. } => (again.then_some("again"), None),
            LedgerStep::End { end, .. } => {
                let state = TickState::Finished(*end);
                (Some(state.as_str()), state.code())
            }
            LedgerStep::Retry { code, .. } => (None, *code),
            LedgerStep::Follow { schedule, .. } => (Some(schedule.as_str()), None),
            _ => (None, None),
        };
        let (through_unix_ms, count) = match self {
            LedgerStep::Skip { through_unix_ms, count, .. } => {
                (Some(*through_unix_ms), Some(*count))
            }
            LedgerStep::Trim { keep, .. } => (None, Some(u64::from(*keep))),
            _ => (None, None),
        };
        let job = self.job();
        StepColumns { verb, job, at_unix_ms, attempt, word, code, through_unix_ms, count }
    }
}

impl TickState {
    /// The code that goes with the word.
    pub fn code(&self) -> Option<i32> {
        match self {
            TickState::Finished(TickEnd::Failed(code)) => Some(*code),
            TickState::Retrying { code } => *code,
            _ => None,
        }
    }
}

impl Marked {
    /// The answer that columns tell; `None` for what no ledger answers.
    pub fn from_columns(word: &str, attempt: u32) -> Option<Marked> {
        Some(match word {
            "done" => Marked::Done { attempt },
            "refused" => Marked::Refused,
            "stale" => Marked::Stale,
            "busy" => Marked::Busy,
            "paused" => Marked::Paused,
            _ => return None,
        })
    }
}

/// A [`OnceStep`] as a store writes it down: a verb, a key, and what goes with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OnceColumns<'a> {
    /// `claim` or `end`.
    pub verb: &'static str,
    /// The key.
    pub key: &'a str,
    /// The number that a claim drew for its run.
    pub run: Option<u64>,
    /// How often the key may be claimed in all.
    pub tries: Option<u32>,
    /// Which attempt ends.
    pub attempt: Option<u32>,
    /// The state that an end leads to.
    pub word: Option<&'static str>,
    /// The code that an end failed with.
    pub code: Option<i32>,
}

impl OnceStep {
    /// This step as columns.
    pub fn columns(&self) -> OnceColumns<'_> {
        match self {
            OnceStep::Claim { key, run, tries } => OnceColumns {
                verb: "claim",
                key,
                run: Some(*run),
                tries: Some(*tries),
                attempt: None,
                word: None,
                code: None,
            },
            OnceStep::End { key, attempt, end } => {
                let state = OnceState::Ended(*end);
                OnceColumns {
                    verb: "end",
                    key,
                    run: None,
                    tries: None,
                    attempt: Some(*attempt),
                    word: Some(state.as_str()),
                    code: state.code(),
                }
            }
        }
    }
}

impl OnceMark {
    /// The answer that columns tell; `None` for what no ledger answers.
    pub fn from_columns(word: &str, attempt: u32) -> Option<OnceMark> {
        Some(match word {
            "done" => OnceMark::Done { attempt },
            "already" => OnceMark::Already,
            "running" => OnceMark::Running,
            "spent" => OnceMark::Spent { attempt },
            "refused" => OnceMark::Refused,
            "stale" => OnceMark::Stale,
            "busy" => OnceMark::Busy,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OnceEnd, Tick};

    /// What is not said otherwise.
    const PLAIN: StepColumns<'static> = StepColumns {
        verb: "",
        job: "j",
        at_unix_ms: Some(7),
        attempt: None,
        word: None,
        code: None,
        through_unix_ms: None,
        count: None,
    };

    #[test]
    fn each_step_has_its_columns() {
        let tick = || Tick::new("j", 7);
        let end = |end| LedgerStep::End { tick: tick(), attempt: 2, end };
        let ended = StepColumns { verb: "end", attempt: Some(2), ..PLAIN };
        let (job, schedule) = ("j".to_owned(), "0 5 * * *".to_owned());
        for (step, columns) in [
            (
                LedgerStep::Claim { tick: tick(), again: false },
                StepColumns { verb: "claim", ..PLAIN },
            ),
            (
                LedgerStep::Claim { tick: tick(), again: true },
                StepColumns { verb: "claim", word: Some("again"), ..PLAIN },
            ),
            (
                LedgerStep::Start { tick: tick(), attempt: 2 },
                StepColumns { verb: "start", attempt: Some(2), ..PLAIN },
            ),
            (end(TickEnd::Ok), StepColumns { word: Some("ok"), ..ended }),
            (end(TickEnd::Failed(3)), StepColumns { word: Some("failed"), code: Some(3), ..ended }),
            (end(TickEnd::TimedOut), StepColumns { word: Some("timed_out"), ..ended }),
            (end(TickEnd::Lost), StepColumns { word: Some("abandoned"), ..ended }),
            (
                LedgerStep::Retry { tick: tick(), attempt: 2, code: Some(9) },
                StepColumns { verb: "retry", attempt: Some(2), code: Some(9), ..PLAIN },
            ),
            (
                LedgerStep::Confirm { tick: tick(), attempt: 2 },
                StepColumns { verb: "confirm", attempt: Some(2), ..PLAIN },
            ),
            (
                LedgerStep::Skip { tick: tick(), through_unix_ms: 9, count: 3 },
                StepColumns { verb: "skip", through_unix_ms: Some(9), count: Some(3), ..PLAIN },
            ),
            (
                LedgerStep::Follow { job: job.clone(), schedule, from_unix_ms: 7 },
                StepColumns { verb: "follow", word: Some("0 5 * * *"), ..PLAIN },
            ),
            (LedgerStep::Abandon { tick: tick() }, StepColumns { verb: "abandon", ..PLAIN }),
            (
                LedgerStep::Trim { job, keep: 5 },
                StepColumns { verb: "trim", at_unix_ms: None, count: Some(5), ..PLAIN },
            ),
        ] {
            assert_eq!(step.columns(), columns, "{step:?}");
        }
    }

    #[test]
    fn each_step_about_a_key_has_its_columns() {
        let key = || "k".to_owned();
        let claim = OnceStep::Claim { key: key(), run: u64::MAX, tries: 3 };
        let columns = claim.columns();
        assert_eq!((columns.verb, columns.key), ("claim", "k"));
        assert_eq!((columns.run, columns.tries), (Some(u64::MAX), Some(3)));
        assert_eq!((columns.attempt, columns.word, columns.code), (None, None, None));
        let end = OnceStep::End { key: key(), attempt: 2, end: OnceEnd::Failed(4) };
        let columns = end.columns();
        assert_eq!((columns.verb, columns.run, columns.tries), ("end", None, None));
        let what = (columns.attempt, columns.word, columns.code);
        assert_eq!(what, (Some(2), Some("failed"), Some(4)));
    }

    #[test]
    fn answers_are_known_by_their_words_and_nothing_else_is_one() {
        assert_eq!(Marked::from_columns("done", 2), Some(Marked::Done { attempt: 2 }));
        assert_eq!(Marked::from_columns("busy", 0), Some(Marked::Busy));
        assert_eq!(Marked::from_columns("spent", 0), None);
        assert_eq!(OnceMark::from_columns("spent", 2), Some(OnceMark::Spent { attempt: 2 }));
        assert_eq!(OnceMark::from_columns("stale", 0), Some(OnceMark::Stale));
        assert_eq!(OnceMark::from_columns("Done", 0), None);
    }
}
