//! What was written on the command line, checked.

use std::path::PathBuf;
use std::time::Duration;

use tenure::Timing;
use tenure_core::parse_duration;

use super::plan::Fault;
use crate::args::DrillArgs;
use crate::exit::Failure;

/// Fewer than two have nobody to hand over to; more than this is no drill but a load test.
const CANDIDATES: std::ops::RangeInclusive<usize> = 2..=50;

/// How long a drill goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Rounds(usize),
    For(Duration),
}

/// What `drill` is to do.
#[derive(Clone, Debug)]
pub(crate) struct DrillOptions {
    pub(crate) candidates: usize,
    pub(crate) extent: Extent,
    /// `None`: all that the store can have.
    pub(crate) faults: Option<Vec<Fault>>,
    pub(crate) seed: u64,
    pub(crate) report: Option<PathBuf>,
    /// Restarts the store.
    pub(crate) restart_cmd: Option<String>,
    pub(crate) timing: Timing,
}

impl TryFrom<DrillArgs> for DrillOptions {
    type Error = Failure;

    fn try_from(args: DrillArgs) -> Result<DrillOptions, Failure> {
        let DrillArgs { candidates, rounds, duration, faults, seed, report, restart_cmd, ttl } =
            args;
        if !CANDIDATES.contains(&candidates) {
            let (least, most) = CANDIDATES.into_inner();
            return Err(Failure::usage(format!(
                "--candidates {candidates} is out of range, it takes {least} to {most}"
            )));
        }
        let extent = match rounds {
            Some(0) => return Err(Failure::usage("--rounds 0 would show nothing; give some")),
            Some(rounds) => Extent::Rounds(rounds),
            None => match time("--for", &duration)? {
                Duration::ZERO => {
                    return Err(Failure::usage("--for 0s would show nothing; give it some time"));
                }
                time => Extent::For(time),
            },
        };
        let timing = Timing::new(time("--ttl", &ttl)?);
        timing.check()?;
        let faults = (!faults.is_empty()).then(|| each_once(faults));
        // Short enough to be typed again.
        let seed = seed.unwrap_or_else(|| fastrand::Rng::new().u64(..1_000_000));
        Ok(DrillOptions { candidates, extent, faults, seed, report, restart_cmd, timing })
    }
}

fn each_once(mut faults: Vec<Fault>) -> Vec<Fault> {
    faults.sort_unstable();
    faults.dedup();
    faults
}

fn time(flag: &str, text: &str) -> Result<Duration, Failure> {
    parse_duration(text).map_err(|error| Failure::from(error).about(flag))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, CommandArgs};

    fn parsed(words: &[&str]) -> Result<DrillOptions, String> {
        let cli = Cli::try_parse_from(["tenure", "drill"].iter().chain(words))
            .map_err(|error| error.to_string())?;
        let CommandArgs::Drill(args) = cli.command else { panic!("another command") };
        DrillOptions::try_from(args).map_err(|failure| failure.error.to_string())
    }

    #[test]
    fn a_drill_lasts_a_minute_unless_told_otherwise() {
        let options = parsed(&[]).unwrap();
        assert_eq!(options.extent, Extent::For(Duration::from_secs(60)));
        assert_eq!((options.candidates, options.faults), (5, None));
        assert_eq!(parsed(&["--rounds", "7"]).unwrap().extent, Extent::Rounds(7));
        assert_eq!(parsed(&["--seed", "42"]).unwrap().seed, 42);
        let faults = parsed(&["--faults", "resign,kill,kill"]).unwrap().faults;
        assert_eq!(faults, Some(vec![Fault::Kill, Fault::Resign]));
    }

    #[test]
    fn what_can_not_be_is_refused_with_a_sentence() {
        for (words, says) in [
            (&["--candidates", "1"][..], "2 to 50"),
            (&["--rounds", "0"], "show nothing"),
            (&["--for", "0s"], "show nothing"),
            (&["--for", "60"], "--for"),
            (&["--ttl", "1"], "--ttl"),
            (&["--rounds", "1", "--for", "1s"], "cannot be used with"),
            (&["--faults", "flood"], "freeze"),
        ] {
            let error = parsed(words).unwrap_err();
            assert!(error.contains(says), "{words:?}: {error}");
        }
    }
}
