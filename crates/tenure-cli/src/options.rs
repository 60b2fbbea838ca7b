//! What was written on the command line, checked as a whole before anything is done.

use std::ffi::OsString;
use std::time::Duration;

use tenure::{CandidateId, Error, Metadata, Name, Timing};
use tenure_core::{check_once_key, parse_duration};

use crate::args::{CampaignArgs, CandidateArgs, OnExit, OnceArgs, ResignArgs, RunArgs};
use crate::command_args::{Observe, WaitArgs};
use crate::exit::Failure;
use crate::process::StopBy;
use crate::store::StoreChoice;

/// Who takes part in what, and how.
#[derive(Clone, Debug)]
pub(crate) struct Candidacy {
    pub(crate) name: Name,
    pub(crate) label: Option<String>,
    pub(crate) timing: Timing,
    pub(crate) metadata: Option<Metadata>,
    /// Nobody works on when this is told to end.
    pub(crate) at_once: bool,
}

/// What `run` is to do.
#[derive(Clone, Debug)]
pub(crate) struct RunOptions {
    pub(crate) candidacy: Candidacy,
    /// `None`: after exit code 0 stop, else restart.
    pub(crate) on_exit: Option<OnExit>,
    pub(crate) once: bool,
    /// How long to wait for the first turn to lead; `None`: as long as it takes.
    pub(crate) wait: Option<Duration>,
    pub(crate) stop: StopBy,
    pub(crate) observe: Option<Observe>,
    pub(crate) command: Vec<OsString>,
}

/// What `once` is to do.
#[derive(Clone, Debug)]
pub(crate) struct OnceOptions {
    pub(crate) candidacy: Candidacy,
    pub(crate) key: String,
    pub(crate) tries: u32,
    /// How long to wait while another leads; `None`: as long as it takes.
    pub(crate) wait: Option<Duration>,
    pub(crate) stop: StopBy,
    pub(crate) command: Vec<OsString>,
}

impl OnceOptions {
    /// The same for the library.
    pub(crate) fn to_claim(&self) -> tenure::OnceOptions {
        let options = tenure::OnceOptions::new().tries(self.tries);
        self.wait.map_or(options, |wait| options.wait(wait))
    }
}

/// What `resign` is to do.
#[derive(Clone, Debug)]
pub(crate) struct ResignOptions {
    pub(crate) name: Name,
    /// `None`: the ttl of the lease.
    pub(crate) timeout: Option<Duration>,
}

impl Candidacy {
    pub(crate) fn new(name: &str, args: CandidateArgs) -> Result<Candidacy, Failure> {
        let name = election_name(name)?;
        if let Some(label) = &args.id {
            CandidateId::new(label, 0).map_err(|error| about("--id", error))?;
        }
        let timing = timing(&args)?;
        let metadata = args.metadata.as_deref().map(Metadata::new).transpose()?;
        Ok(Candidacy { name, label: args.id, timing, metadata, at_once: false })
    }
}

impl TryFrom<RunArgs> for RunOptions {
    type Error = Failure;

    fn try_from(args: RunArgs) -> Result<RunOptions, Failure> {
        let RunArgs { name, on_exit, once, wait, stop, observe, candidate, command } = args;
        let candidacy = Candidacy::new(&name, candidate)?;
        let on_exit = if once { Some(OnExit::Stop) } else { on_exit };
        let (wait, stop, observe) = (how_long(&wait)?, (&stop).try_into()?, observe.checked()?);
        Ok(RunOptions { candidacy, on_exit, once, wait, stop, observe, command })
    }
}

impl TryFrom<OnceArgs> for OnceOptions {
    type Error = Failure;

    fn try_from(args: OnceArgs) -> Result<OnceOptions, Failure> {
        let OnceArgs { name, key, tries, wait, stop, candidate, command } = args;
        check_once_key(&key).map_err(|error| about("--key", error))?;
        let candidacy = Candidacy::new(&name, candidate)?;
        let (wait, stop) = (how_long(&wait)?, (&stop).try_into()?);
        Ok(OnceOptions { candidacy, key, tries, wait, stop, command })
    }
}

impl TryFrom<CampaignArgs> for Candidacy {
    type Error = Failure;

    fn try_from(args: CampaignArgs) -> Result<Candidacy, Failure> {
        let candidacy = Candidacy::new(&args.name, args.candidate)?;
        Ok(Candidacy { at_once: args.at_once, ..candidacy })
    }
}

impl TryFrom<ResignArgs> for ResignOptions {
    type Error = Failure;

    fn try_from(args: ResignArgs) -> Result<ResignOptions, Failure> {
        let name = election_name(&args.name)?;
        Ok(ResignOptions { name, timeout: duration("--timeout", args.timeout.as_deref())? })
    }
}

/// Names of elections, each once.
pub(crate) fn names(given: &[String]) -> Result<Vec<Name>, Failure> {
    let mut names: Vec<Name> = Vec::with_capacity(given.len());
    for name in given {
        let name = election_name(name)?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// The name of an election. The URL of a store in its place is a mistake that would show the
/// password in every answer about that election.
pub(crate) fn election_name(given: &str) -> Result<Name, Failure> {
    if StoreChoice::is_url(given) {
        return Err(Failure::usage(
            "the URL of a store stands where the name of an election belongs; give it with --store \
             or TENURE_STORE",
        ));
    }
    Ok(Name::new(given)?)
}

/// Explicit durations over the profile over the defaults.
fn timing(args: &CandidateArgs) -> Result<Timing, Failure> {
    let base = match &args.profile {
        Some(profile) => Timing::profile(profile)?,
        None => Timing::default(),
    };
    let mut timing = duration("--ttl", args.ttl.as_deref())?.map_or(base, Timing::new);
    for (flag, given, part) in [
        ("--renew-every", &args.renew_every, &mut timing.renew_every),
        ("--margin", &args.margin, &mut timing.margin),
        ("--drain", &args.drain, &mut timing.drain),
    ] {
        *part = duration(flag, given.as_deref())?.unwrap_or(*part);
    }
    timing.check()?;
    Ok(timing)
}

fn how_long(args: &WaitArgs) -> Result<Option<Duration>, Failure> {
    if args.no_wait {
        return Ok(Some(Duration::ZERO));
    }
    duration("--wait", args.wait.as_deref())
}

fn duration(flag: &str, given: Option<&str>) -> Result<Option<Duration>, Failure> {
    given.map(parse_duration).transpose().map_err(|error| about(flag, error))
}

fn about(flag: &str, error: Error) -> Failure {
    Failure::from(error).about(flag)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, CommandArgs};

    fn parsed(args: &[&str]) -> Result<RunOptions, String> {
        let all = ["tenure", "run"].iter().chain(args).chain(&["--", "true"]);
        let cli = Cli::try_parse_from(all).map_err(|error| error.to_string())?;
        let CommandArgs::Run(run) = cli.command else { panic!("run was parsed") };
        RunOptions::try_from(run).map_err(|failure| failure.error.to_string())
    }

    #[test]
    fn explicit_durations_override_the_profile() {
        let run = parsed(&["x", "--profile", "fast", "--drain", "1s"]).unwrap();
        assert_eq!(run.candidacy.timing.ttl, Duration::from_secs(15));
        assert_eq!(run.candidacy.timing.drain, Duration::from_secs(1));
        let run = parsed(&["x", "--profile", "fast", "--ttl", "3s"]).unwrap();
        assert_eq!(run.candidacy.timing, Timing::new(Duration::from_secs(3)));
    }

    #[test]
    fn bad_input_is_refused_with_a_sentence() {
        let long = "x".repeat(256);
        let big = format!("{{\"a\": \"{}\"}}", "x".repeat(5000));
        for (args, says) in [
            (&["x", "--ttl", "30"][..], "--ttl: \"30\" has no unit; did you mean 30s or 30ms?"),
            (&["x", "--ttl", "3s", "--renew-every", "2s"], "renew_every is 2s, more than 1s"),
            (&["x", "--ttl", "3s", "--drain", "2s"], "margin + drain is 2s150ms, more than 1s"),
            (&["x", "--ttl", "0s"], "ttl is 0s"),
            (&["x", "--profile", "slow"], "choose one of fast, normal, unreliable-network"),
            (&[""], "the name of an election is empty"),
            (&[&long], "has 256 bytes, at most 255"),
            (&["x", "--id", ""], "--id: the label of a candidate is empty"),
            (&["x", "--id", &long[..201]], "has 201 bytes, at most 200"),
            (&["x", "--metadata", "{"], "metadata is not JSON"),
            (&["x", "--metadata", "7"], "metadata must be a JSON object"),
            (&["x", "--metadata", &big], "at most 4096 are kept"),
        ] {
            let error = parsed(args).unwrap_err();
            assert!(error.contains(says), "{args:?}: {error}");
        }
    }

    #[test]
    fn once_means_stop_and_goes_with_no_other_wish() {
        assert_eq!(parsed(&["x", "--once"]).unwrap().on_exit, Some(OnExit::Stop));
        assert_eq!(parsed(&["x"]).unwrap().on_exit, None);
        assert!(parsed(&["x", "--once", "--on-exit", "restart"]).is_err());
    }

    #[test]
    fn patience_is_unlimited_none_or_so_long() {
        assert_eq!(parsed(&["x"]).unwrap().wait, None);
        assert_eq!(parsed(&["x", "--no-wait"]).unwrap().wait, Some(Duration::ZERO));
        assert_eq!(parsed(&["x", "--wait", "30s"]).unwrap().wait, Some(Duration::from_secs(30)));
        assert!(parsed(&["x", "--wait", "30"]).unwrap_err().contains("--wait: \"30\" has no unit"));
        assert!(parsed(&["x", "--wait", "30s", "--no-wait"]).is_err());
    }

    #[test]
    fn each_name_counts_once() {
        let given = ["a", "b", "a"].map(str::to_owned);
        assert_eq!(names(&given).unwrap().len(), 2);
    }
}
