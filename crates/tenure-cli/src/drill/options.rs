//! What was written on the command line, checked.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use tenure::Timing;
use tenure_core::parse_duration;
use tenure_drill::{CANDIDATES, Extent, Fault, Options};

use crate::args::DrillArgs;
use crate::exit::Failure;

/// What `drill` is to do.
#[derive(Clone, Debug)]
pub(crate) struct DrillOptions {
    pub(crate) drill: Options,
    /// Where to write the report.
    pub(crate) report: Option<PathBuf>,
}

/// Reads the name of a fault.
pub(crate) fn fault_values() -> impl TypedValueParser<Value = Fault> {
    let value = |fault: Fault| PossibleValue::new(fault.name()).help(fault.description());
    PossibleValuesParser::new(Fault::ALL.map(value))
        .try_map(|name| Fault::from_name(&name).ok_or("no such fault"))
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
        let drill = Options { candidates, extent, faults, seed, restart_cmd, timing };
        Ok(DrillOptions { drill, report })
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
        let options = parsed(&[]).unwrap().drill;
        assert_eq!(options.extent, Extent::For(Duration::from_secs(60)));
        assert_eq!((options.candidates, options.faults), (5, None));
        assert_eq!(parsed(&["--rounds", "7"]).unwrap().drill.extent, Extent::Rounds(7));
        assert_eq!(parsed(&["--seed", "42"]).unwrap().drill.seed, 42);
        let faults = parsed(&["--faults", "resign,kill,kill"]).unwrap().drill.faults;
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
