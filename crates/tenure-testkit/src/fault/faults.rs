//! Which faults, how often, and how often they happened.

use std::fmt;
use std::str::FromStr;

use tenure_core::Error;

/// How likely each fault is, from 0 to 1, and the seed they are drawn from.
///
/// The text form says all of it, so that a failing run can be replayed from one line.
///
/// # Examples
/// ```
/// use tenure_testkit::Faults;
///
/// let faults = Faults { lose_reply: 0.25, ..Faults::none(7) };
/// let line = faults.to_string();
/// assert!(line.starts_with("seed=7,lose_request=0,lose_reply=0.25,"), "{line}");
/// assert_eq!(line.parse::<Faults>()?, faults);
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// The same seed and the same calls give the same faults.
    pub seed: u64,
    /// An op is not done; its outcome is unknown.
    pub lose_request: f64,
    /// An op is done; its outcome is unknown.
    pub lose_reply: f64,
    /// An op is held up: its outcome is unknown, and it is done during a later call.
    pub late: f64,
    /// An op is done, and done again during a later call.
    pub echo: f64,
    /// An op is done twice in a row; the second reply counts.
    pub repeat: f64,
    /// A call makes others wait: it is pending for a while before or after its work.
    pub delay: f64,
    /// A hint is swallowed.
    pub lose_hint: f64,
    /// A hint is made up.
    pub extra_hint: f64,
}

impl Faults {
    /// No faults at all: the wrapper only forwards.
    pub fn none(seed: u64) -> Faults {
        Faults {
            seed,
            lose_request: 0.0,
            lose_reply: 0.0,
            late: 0.0,
            echo: 0.0,
            repeat: 0.0,
            delay: 0.0,
            lose_hint: 0.0,
            extra_hint: 0.0,
        }
    }

    /// Some of everything: about every third op meets a fault.
    pub fn mixed(seed: u64) -> Faults {
        Faults {
            seed,
            lose_request: 0.06,
            lose_reply: 0.08,
            late: 0.06,
            echo: 0.08,
            repeat: 0.05,
            delay: 0.2,
            lose_hint: 0.3,
            extra_hint: 0.1,
        }
    }

    fn fields(&self) -> [(&'static str, f64); 8] {
        [
            ("lose_request", self.lose_request),
            ("lose_reply", self.lose_reply),
            ("late", self.late),
            ("echo", self.echo),
            ("repeat", self.repeat),
            ("delay", self.delay),
            ("lose_hint", self.lose_hint),
            ("extra_hint", self.extra_hint),
        ]
    }

    fn field_mut(&mut self, name: &str) -> Option<&mut f64> {
        Some(match name {
            "lose_request" => &mut self.lose_request,
            "lose_reply" => &mut self.lose_reply,
            "late" => &mut self.late,
            "echo" => &mut self.echo,
            "repeat" => &mut self.repeat,
            "delay" => &mut self.delay,
            "lose_hint" => &mut self.lose_hint,
            "extra_hint" => &mut self.extra_hint,
            _ => return None,
        })
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed={}", self.seed)?;
        self.fields().iter().try_for_each(|(name, chance)| write!(f, ",{name}={chance}"))
    }
}

impl FromStr for Faults {
    type Err = Error;

    /// Reads what `Display` writes; what is left out is 0.
    fn from_str(text: &str) -> Result<Faults, Error> {
        let mut faults = Faults::none(0);
        for part in text.split(',') {
            let bad = || Error::config(format!("{part:?} is not a fault such as lose_reply=0.1"));
            let (name, value) = part.split_once('=').ok_or_else(bad)?;
            if name == "seed" {
                faults.seed = value.parse().map_err(|_| bad())?;
                continue;
            }
            let chance: f64 = value.parse().map_err(|_| bad())?;
            if !(0.0..=1.0).contains(&chance) {
                return Err(bad());
            }
            *faults.field_mut(name).ok_or_else(bad)? = chance;
        }
        Ok(faults)
    }
}

/// What a [`FaultStore`](crate::FaultStore) has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Calls of `apply`.
    pub calls: u64,
    /// Ops in them.
    pub ops: u64,
    /// Ops that were never done.
    pub lost_requests: u64,
    /// Ops that were done, and nobody was told.
    pub lost_replies: u64,
    /// Ops that were held up.
    pub late: u64,
    /// Ops that came again later.
    pub echoes: u64,
    /// Ops that were done twice in a row.
    pub repeats: u64,
    /// Calls that were delayed.
    pub delays: u64,
    /// Hints that were swallowed.
    pub lost_hints: u64,
    /// Hints that were made up.
    pub extra_hints: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ops in {} calls: {} requests and {} replies lost, {} late, {} echoed, \
             {} repeated; {} calls delayed; {} hints lost, {} made up",
            self.ops,
            self.calls,
            self.lost_requests,
            self.lost_replies,
            self.late,
            self.echoes,
            self.repeats,
            self.delays,
            self.lost_hints,
            self.extra_hints
        )
    }
}
