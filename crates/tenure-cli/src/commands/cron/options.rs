//! Jobs, from the command line or from a file: checked as a whole before anything starts.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::getegid;
use serde::Deserialize;
use tenure::Error;
use tenure_core::{check_job_name, parse_duration};
use tenure_cron::{Delivery, Missed, Overlap, Schedule};
use toml::Spanned;

use super::args::CronRunArgs;
use crate::args::CandidateArgs;
use crate::command_args::Observe;
use crate::exit::Failure;
use crate::options::Candidacy;
use crate::process::StopBy;

/// The election of a file that names none.
pub(super) const ELECTION: &str = "cron";

/// A job that runs a command.
#[derive(Clone, Debug)]
pub(crate) struct CommandJob {
    pub(super) name: String,
    pub(super) schedule: Schedule,
    pub(super) command: Vec<OsString>,
    pub(super) timeout: Option<Duration>,
    pub(super) missed: Missed,
    pub(super) overlap: Option<Overlap>,
    pub(super) delivery: Delivery,
    pub(super) jitter: Duration,
    pub(super) grace: Option<Duration>,
    pub(super) keep: Option<u32>,
    pub(super) retries: u32,
    pub(super) backoff: Option<Duration>,
}

/// What `cron` is to do.
#[derive(Clone, Debug)]
pub(crate) struct CronOptions {
    pub(crate) candidacy: Candidacy,
    pub(super) stop: StopBy,
    pub(super) observe: Option<Observe>,
    pub(super) jobs: Vec<CommandJob>,
    /// Where they come from, to be read again.
    pub(super) file: Option<PathBuf>,
    /// The election was named by a flag, whatever the file says.
    pub(super) is_named: bool,
}

impl TryFrom<CronRunArgs> for CronOptions {
    type Error = Failure;

    fn try_from(args: CronRunArgs) -> Result<CronOptions, Failure> {
        let (stop, observe) = ((&args.stop).try_into()?, args.observe.checked()?);
        match (&args.file, &args.name, &args.schedule) {
            (Some(file), ..) => {
                let given = args.election.clone();
                let read = JobFile::read(file)?;
                let election = given.or(read.election).unwrap_or_else(|| ELECTION.to_owned());
                let candidacy = candidacy(&election, args.candidate)?;
                let (jobs, file, is_named) =
                    (read.jobs, Some(file.clone()), args.election.is_some());
                Ok(CronOptions { candidacy, stop, observe, jobs, file, is_named })
            }
            (None, Some(name), Some(schedule)) => {
                check_job_name(name)?;
                let job = CommandJob {
                    name: name.clone(),
                    schedule: Schedule::new(schedule, args.tz.as_deref().unwrap_or("UTC"))?,
                    command: args.command.clone(),
                    timeout: args
                        .timeout
                        .as_deref()
                        .map(read_timeout)
                        .transpose()
                        .map_err(|error| Failure::from(error).about("--timeout"))?,
                    missed: word("--missed", args.missed.as_deref())?.unwrap_or_default(),
                    overlap: word("--overlap", args.overlap.as_deref())?,
                    delivery: word("--delivery", args.delivery.as_deref())?.unwrap_or_default(),
                    jitter: duration("--jitter", args.jitter.as_deref())?.unwrap_or_default(),
                    grace: duration("--grace", args.grace.as_deref())?,
                    keep: None,
                    retries: args.retries.unwrap_or(0),
                    backoff: duration("--backoff", args.backoff.as_deref())?,
                };
                let election = args.election.as_deref().unwrap_or(name).to_owned();
                let candidacy = candidacy(&election, args.candidate)?;
                let (jobs, file, is_named) = (vec![job], None, true);
                Ok(CronOptions { candidacy, stop, observe, jobs, file, is_named })
            }
            _ => Err(Failure::usage("give a job and its schedule, or a file with --file")),
        }
    }
}

fn candidacy(election: &str, args: CandidateArgs) -> Result<Candidacy, Failure> {
    Candidacy::new(election, args)
}

fn duration(flag: &str, given: Option<&str>) -> Result<Option<Duration>, Failure> {
    let about = |error| Failure::from(error).about(flag);
    given.map(parse_duration).transpose().map_err(about)
}

fn word<T: std::str::FromStr<Err = Error>>(
    flag: &str,
    given: Option<&str>,
) -> Result<Option<T>, Failure> {
    let about = |error| Failure::from(error).about(flag);
    given.map(str::parse).transpose().map_err(about)
}

/// A time within which nothing can be done would end every run before it begins.
fn read_timeout(text: &str) -> Result<Duration, Error> {
    match parse_duration(text)? {
        Duration::ZERO => {
            Err(Error::config(format!("{text:?} is no time at all; leave it out for no limit")))
        }
        timeout => Ok(timeout),
    }
}

/// The jobs of a file.
#[derive(Debug)]
pub(super) struct JobFile {
    pub(super) election: Option<String>,
    pub(super) jobs: Vec<CommandJob>,
}

/// A file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    election: Option<Spanned<String>>,
    #[serde(default)]
    job: Vec<WrittenJob>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenJob {
    name: Spanned<String>,
    schedule: Spanned<String>,
    tz: Option<Spanned<String>>,
    command: Spanned<WrittenCommand>,
    timeout: Option<Spanned<String>>,
    missed: Option<Spanned<String>>,
    overlap: Option<Spanned<String>>,
    delivery: Option<Spanned<String>>,
    jitter: Option<Spanned<String>>,
    grace: Option<Spanned<String>>,
    keep: Option<u32>,
    retries: Option<u32>,
    backoff: Option<Spanned<String>>,
}

/// A command: a list of words, or a line for the shell.
#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenCommand {
    Words(Vec<String>),
    Line(String),
}

impl JobFile {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// What is wrong with it, with line and column.
    pub(super) fn read(path: &Path) -> Result<JobFile, Failure> {
        let shown = path.display();
        let cannot =
            |error: io::Error| Failure::usage(format!("the file {shown} can't be read: {error}"));
        let mut file = File::open(path).map_err(cannot)?;
        let found = file.metadata().map_err(cannot)?;
        if let Some(who) = other_writers(found.mode(), found.gid(), getegid().as_raw()) {
            return Err(Failure::usage(format!(
                "{who} may write to the file {shown}, and so run commands as this user; take that \
                 away with `chmod go-w {shown}`"
            )));
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(cannot)?;
        JobFile::parse(&shown, &text)
    }

    fn parse(path: &dyn fmt::Display, text: &str) -> Result<JobFile, Failure> {
        let place = Place { path, text };
        let written: Written = toml::from_str(text).map_err(|error| {
            let span = error.span().unwrap_or_default();
            place.wrong(span.start, error.message())
        })?;
        if written.job.is_empty() {
            return Err(place.wrong(0, "there is no job in it; add one with [[job]]"));
        }
        let mut jobs: Vec<CommandJob> = Vec::with_capacity(written.job.len());
        for job in written.job {
            let at = job.name.span().start;
            let job = place.job(job)?;
            if jobs.iter().any(|other| other.name == job.name) {
                let what = format!("there is another job {:?} before this one", job.name);
                return Err(place.wrong(at, &what));
            }
            jobs.push(job);
        }
        let election = match written.election {
            Some(name) => {
                let at = name.span().start;
                tenure::Name::new(name.get_ref()).map_err(|e| place.wrong(at, e.message()))?;
                Some(name.into_inner())
            }
            None => None,
        };
        Ok(JobFile { election, jobs })
    }
}

/// Who else may write to a file of this mode and group. The group of this process is a user's own
/// on most systems, and its members have been trusted by somebody.
fn other_writers(mode: u32, group: u32, own_group: u32) -> Option<&'static str> {
    match (mode & 0o002 != 0, mode & 0o020 != 0) {
        (true, _) => Some("everybody"),
        (false, true) if group != own_group => Some("another group"),
        _ => None,
    }
}

/// A file, to point into.
struct Place<'a> {
    path: &'a dyn fmt::Display,
    text: &'a str,
}

impl Place<'_> {
    fn job(&self, job: WrittenJob) -> Result<CommandJob, Failure> {
        self.of(&job.name, check_job_name)?;
        let zone = job.tz.as_ref().map_or("UTC", |tz| tz.get_ref());
        // A schedule in UTC tells whether it is the zone that is wrong.
        let schedule = self.of(&job.schedule, |schedule| Schedule::new(schedule, "UTC"))?;
        let schedule = match &job.tz {
            Some(tz) => self.of(tz, |_| Schedule::new(schedule.as_str(), zone))?,
            None => schedule,
        };
        let at = job.command.span().start;
        let command = match job.command.into_inner() {
            WrittenCommand::Words(words) => words.into_iter().map(OsString::from).collect(),
            WrittenCommand::Line(line) if line.trim().is_empty() => Vec::new(),
            WrittenCommand::Line(line) => {
                ["sh", "-c", &line].into_iter().map(OsString::from).collect()
            }
        };
        if command.first().is_none_or(|program: &OsString| program.is_empty()) {
            return Err(self.wrong(at, "the command is empty; write the program and its words"));
        }
        Ok(CommandJob {
            name: job.name.into_inner(),
            schedule,
            command,
            timeout: self.each(job.timeout, read_timeout)?,
            missed: self.each(job.missed, str::parse)?.unwrap_or_default(),
            overlap: self.each(job.overlap, str::parse)?,
            delivery: self.each(job.delivery, str::parse)?.unwrap_or_default(),
            jitter: self.each(job.jitter, parse_duration)?.unwrap_or_default(),
            grace: self.each(job.grace, parse_duration)?,
            keep: job.keep,
            retries: job.retries.unwrap_or(0),
            backoff: self.each(job.backoff, parse_duration)?,
        })
    }

    fn each<T>(
        &self,
        given: Option<Spanned<String>>,
        read: impl Fn(&str) -> Result<T, Error>,
    ) -> Result<Option<T>, Failure> {
        given.map(|given| self.of(&given, read)).transpose()
    }

    fn of<T>(
        &self,
        given: &Spanned<String>,
        read: impl Fn(&str) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        read(given.get_ref()).map_err(|error| self.wrong(given.span().start, error.message()))
    }

    /// What is wrong, with line and column.
    fn wrong(&self, at: usize, what: &str) -> Failure {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or(before).chars().count() + 1;
        Failure::usage(format!("{}:{line}:{column}: {what}", self.path))
    }
}

/// What the fuzz targets may reach.
#[cfg(test)]
pub(crate) mod fuzz {
    use super::JobFile;

    pub(crate) fn read_job_file(text: &str) {
        match JobFile::parse(&"jobs.toml", text) {
            Ok(file) => assert!(!file.jobs.is_empty()),
            Err(failure) => {
                let says = failure.error.to_string();
                assert!(says.starts_with("jobs.toml:"), "{text:?}: {says}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "election = \"nightly\"\n[[job]]\nname = \"a\"\nschedule = \"@daily\"\n\
        tz = \"Europe/Berlin\"\ncommand = [\"true\"]\ntimeout = \"10m\"\nmissed = \"run-all(7)\"\n\
        overlap = \"queue\"\ndelivery = \"at-least-once\"\njitter = \"5s\"\nkeep = 9\n\
        retries = 3\nbackoff = \"30s\"\n\
        [[job]]\nname = \"b\"\nschedule = \"* * * * *\"\ncommand = \"echo $HOME\"\n";

    fn parsed(text: &str) -> Result<JobFile, String> {
        JobFile::parse(&"jobs.toml", text).map_err(|failure| failure.error.to_string())
    }

    #[test]
    fn a_file_is_read_as_it_is_written() {
        let file = parsed(GOOD).unwrap();
        assert_eq!(file.election.as_deref(), Some("nightly"));
        let [a, b] = &file.jobs[..] else { panic!("two jobs") };
        assert_eq!((a.timeout, a.keep), (Some(Duration::from_secs(600)), Some(9)));
        assert_eq!((a.retries, a.backoff), (3, Some(Duration::from_secs(30))));
        assert_eq!((b.retries, b.backoff), (0, None));
        assert_eq!(a.schedule.zone(), "Europe/Berlin");
        assert_eq!((a.missed, a.overlap), (Missed::RunAll { most: 7 }, Some(Overlap::Queue)));
        assert_eq!(b.overlap, None);
        assert_eq!(b.command, ["sh", "-c", "echo $HOME"]);
        assert_eq!((b.missed, b.delivery), (Missed::Skip, Delivery::AtMostOnce));
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        let job = |more: &str| {
            format!("[[job]]\nname = \"a\"\nschedule = \"@daily\"\ncommand = [\"true\"]\n{more}")
        };
        let twice = job(&job(""));
        for (text, says) in [
            ("", "jobs.toml:1:1: there is no job in it"),
            ("[[job]\n", "jobs.toml:1:"),
            (&job("comand = 1\n"), "jobs.toml:5:1: unknown field `comand`"),
            (&job("timeout = 5\n"), "jobs.toml:5:11: invalid type"),
            (&job("timeout = \"5\"\n"), "jobs.toml:5:11: \"5\" has no unit"),
            (&job("timeout = \"0s\"\n"), "jobs.toml:5:11: \"0s\" is no time at all"),
            (&job("missed = \"run-all(99999)\"\n"), "jobs.toml:5:10: run-all(99999) can't be kept"),
            (&job("tz = \"Europe/Berln\"\n"), "jobs.toml:5:6: there is no time zone"),
            (&job("missed = \"never\"\n"), "jobs.toml:5:10: missed is \"never\""),
            (&twice, "jobs.toml:6:8: there is another job \"a\" before this one"),
            ("[[job]]\nname = \"a\"\n", "missing field `schedule`"),
            (
                "[[job]]\nname = \"a\"\nschedule = \"61 * * * *\"\ncommand = [\"true\"]\n",
                "jobs.toml:3:12: the schedule \"61 * * * *\" is not understood: field 1 (minute)",
            ),
            (
                "[[job]]\nname = \"\"\nschedule = \"@daily\"\ncommand = [\"true\"]\n",
                "jobs.toml:2:8: the name of a job is empty",
            ),
            (
                "[[job]]\nname = \"a\"\nschedule = \"@daily\"\ncommand = []\n",
                "jobs.toml:4:11: the command is empty",
            ),
            ("elections = \"x\"\n", "jobs.toml:1:1: unknown field `elections`"),
            (
                "election = \"\"\n[[job]]\nname = \"a\"\nschedule = \"@daily\"\ncommand = \"x\"",
                ":1:12",
            ),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }
}
