//! How far a drill is, on stderr: one line that changes on a terminal, else one now and then.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use tenure::{BootClock, Time};

use super::options::Extent;
use super::plan::Fault;
use crate::output::{Output, show_short};

/// How often to say something where lines stay.
const SAY_EVERY: Duration = Duration::from_secs(5);

pub(crate) struct Progress {
    out: Output,
    redraws: bool,
    said: Option<Time>,
}

impl Progress {
    pub(crate) fn new(out: &Output) -> Progress {
        let redraws = io::stderr().is_terminal() && out.is_for_people();
        Progress { out: out.clone(), redraws, said: None }
    }

    /// Tells which round comes now.
    pub(crate) fn show(&mut self, began: Time, extent: Extent, done: usize, fault: Fault) {
        let now = BootClock::time();
        let due = self.said.is_none_or(|said| now >= said + SAY_EVERY);
        if !self.redraws && !due {
            return;
        }
        let of = match extent {
            Extent::Rounds(rounds) => format!(" of {rounds}"),
            Extent::For(time) => {
                let left = Duration::from_secs((began + time - now).as_secs());
                format!(", {} left", tenure_core::show_duration(left))
            }
        };
        let elapsed = show_short(now - began);
        let line = format!("round {}{of}: {} ({elapsed} so far)", done + 1, fault.name());
        if self.redraws && self.said.is_some() {
            self.out.say_over(&line);
        } else {
            self.out.say(&line);
        }
        self.said = Some(now);
    }
}
