//! How far a drill is.

use std::fmt;
use std::time::Duration;

use tenure_core::{show_duration, show_rounded};

use crate::drill::Extent;
use crate::plan::Fault;

/// How far a drill is, at the beginning of a round. `Display` writes it as a line for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// How many rounds are over.
    pub done: usize,
    /// How long the drill goes on.
    pub extent: Extent,
    /// How long it has been going on.
    pub elapsed: Duration,
    /// The fault of the round that begins now.
    pub fault: Fault,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Progress { done, extent, elapsed, fault } = *self;
        write!(f, "round {}", done + 1)?;
        match extent {
            Extent::Rounds(rounds) => write!(f, " of {rounds}")?,
            Extent::For(time) => {
                let left = Duration::from_secs(time.saturating_sub(elapsed).as_secs());
                write!(f, ", {} left", show_duration(left))?;
            }
        }
        write!(f, ": {} ({} so far)", fault.name(), show_rounded(elapsed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_one_line_for_people() {
        let (elapsed, fault) = (Duration::from_millis(2_345), Fault::Kill);
        let progress = Progress { done: 2, extent: Extent::Rounds(9), elapsed, fault };
        assert_eq!(progress.to_string(), "round 3 of 9: kill (2s300ms so far)");
        let extent = Extent::For(Duration::from_secs(60));
        let says = Progress { extent, ..progress }.to_string();
        assert_eq!(says, "round 3, 57s left: kill (2s300ms so far)");
    }
}
