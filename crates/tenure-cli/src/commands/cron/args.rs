//! What can be written behind `tenure cron`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::args::CandidateArgs;
use crate::command_args::{ObserveArgs, StopArgs};

/// Run a command by a schedule, each tick once in the whole cluster
///
/// Start the same line on every machine. The leader claims each tick in the store before it runs
/// the command, so that no other instance runs it too, whatever is killed or frozen. The command
/// runs as under `tenure run`: in a process group of its own, which is ended before anybody else
/// can lead.
///
/// A schedule has five fields (minute, hour, day of month, month, weekday), or six with the second
/// first, or is one of @hourly, @daily, @weekly, @monthly, @yearly. A schedule whose minute and
/// hour do not start with * runs exactly once on the days on which clocks change.
///
/// The command finds what `tenure run` gives it, and TENURE_JOB, TENURE_ATTEMPT and
/// TENURE_SCHEDULED_AT (RFC 3339, UTC) in its environment.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = EXAMPLES
)]
pub(crate) struct CronArgs {
    #[command(subcommand)]
    pub(crate) what: Option<CronCommand>,

    #[command(flatten)]
    pub(crate) run: CronRunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CronRunArgs {
    /// The job, and its election unless --election names another
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    pub(crate) name: Option<String>,

    /// When it is due, as in cron
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    pub(crate) schedule: Option<String>,

    /// Many jobs from a TOML file, read again on HUP
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "tz", "timeout", "missed",
        "overlap", "delivery", "jitter", "grace", "retries", "backoff"])]
    pub(crate) file: Option<PathBuf>,

    /// The time zone of the schedule, as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE")]
    pub(crate) tz: Option<String>,

    /// How long a run may take; then it gets TERM, and KILL five seconds later
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,

    /// What to do with ticks missed while nobody led: skip, run-once, run-all, run-all(N)
    /// [default: skip]
    #[arg(long, value_name = "WHAT")]
    pub(crate) missed: Option<String>,

    /// What to do with a tick while the one before it runs: skip, queue, allow (100 at a time at
    /// most), allow(N) [default: skip, with run-all queue]
    #[arg(long, value_name = "WHAT")]
    pub(crate) overlap: Option<String>,

    /// at-most-once, at-least-once or transactional [default: at-most-once]
    #[arg(long, value_name = "PROMISE")]
    pub(crate) delivery: Option<String>,

    /// Run up to this much later, the same for each tick of a job
    #[arg(long, value_name = "DURATION")]
    pub(crate) jitter: Option<String>,

    /// How late a tick may run with --missed skip [default: twice the ttl]
    #[arg(long, value_name = "DURATION")]
    pub(crate) grace: Option<String>,

    /// How often a run that failed or took too long is tried again [default: 0]
    #[arg(long, value_name = "N")]
    pub(crate) retries: Option<u32>,

    /// How long the first retry waits; each further one waits twice as long, up to an hour
    /// [default: 10s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) backoff: Option<String>,

    /// The election [default: that of the file, else the job's name, with a file `cron`]
    #[arg(long, value_name = "NAME")]
    pub(crate) election: Option<String>,

    #[command(flatten)]
    pub(crate) stop: StopArgs,

    #[command(flatten)]
    pub(crate) observe: ObserveArgs,

    #[command(flatten)]
    pub(crate) candidate: CandidateArgs,

    /// The command and its arguments
    #[arg(last = true, num_args = 1.., value_name = "COMMAND",
        required_unless_present = "file")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CronCommand {
    History(HistoryArgs),
    Next(NextArgs),
    Trigger(TriggerArgs),
    Pause(PauseArgs),
    Resume(ResumeArgs),
    FromNow(FromNowArgs),
    Status(StatusArgs),
}

/// Which job.
#[derive(Debug, Args)]
pub(crate) struct OneJob {
    /// The job
    pub(crate) name: String,

    /// The election [default: the job's name or `cron`, whichever was led]
    #[arg(long, value_name = "NAME")]
    pub(crate) election: Option<String>,
}

/// Keep a job from running, on any instance, until it is resumed
///
/// When this returns, no run of its schedule begins any more, and no retry. What runs goes on, and
/// `tenure cron trigger` still works. What comes due meanwhile is left out.
#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    pub(crate) job: OneJob,
}

/// Let a paused job go on, with what comes due from now on
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    pub(crate) job: OneJob,
}

/// Have a job count from now on, after a clock was ahead
///
/// A leader whose clock was ahead has claimed ticks that are still to come, and the job is silent
/// until then. Set the clocks first. Then this forgets those ticks, so that they run when they are
/// due. It does nothing where the job is less than a minute ahead.
#[derive(Debug, Args)]
pub(crate) struct FromNowArgs {
    #[command(flatten)]
    pub(crate) job: OneJob,
}

/// Tell how far jobs have got, and which are paused
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The job [default: all]
    pub(crate) name: Option<String>,

    /// The election [default: the job's name or `cron`, whichever was led; without a job all]
    #[arg(long, value_name = "NAME")]
    pub(crate) election: Option<String>,
}

/// Tell what happened to the ticks of jobs, the latest first
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// The job [default: all]
    pub(crate) name: Option<String>,

    /// The election [default: the job's name or `cron`, whichever was led]
    #[arg(long, value_name = "NAME")]
    pub(crate) election: Option<String>,

    /// How many ticks of each election
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    pub(crate) limit: usize,
}

/// Tell when a schedule, or the jobs of a file, are due next
#[derive(Debug, Args)]
pub(crate) struct NextArgs {
    /// The schedule, as in cron
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    pub(crate) schedule: Option<String>,

    /// The jobs of this file
    #[arg(long, value_name = "FILE", conflicts_with = "tz")]
    pub(crate) file: Option<PathBuf>,

    /// The time zone of the schedule, as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE")]
    pub(crate) tz: Option<String>,

    /// From this instant on, as 2026-03-29T00:00:00 in that zone [default: now]
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<String>,

    /// How many instants
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10)]
    pub(crate) count: usize,
}

/// Have the leader run a job now
///
/// Returns when it has begun. Exit code 1 if the leader does not know the job, or nobody has
/// begun it when the time is over; then it stays asked for, and the next leader begins it.
#[derive(Debug, Args)]
pub(crate) struct TriggerArgs {
    /// The job
    pub(crate) name: String,

    /// The election [default: the job's name or `cron`, whichever was led]
    #[arg(long, value_name = "NAME")]
    pub(crate) election: Option<String>,

    /// How long to wait
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub(crate) timeout: String,
}

const EXAMPLES: &str = "\
Examples:
  tenure cron report '30 3 * * *' --tz Europe/Berlin -- ./send-report.sh
  tenure cron poll '*/10 * * * * *' --overlap skip --timeout 30s -- ./poll
  tenure cron --file jobs.toml
  tenure cron next '30 2 * * *' --tz Europe/Berlin
  tenure cron history report
  tenure cron trigger report
  tenure cron pause report

A file of jobs:
  [[job]]
  name = \"report\"
  schedule = \"30 3 * * *\"
  tz = \"Europe/Berlin\"
  command = [\"./send-report.sh\", \"--all\"]
  timeout = \"10m\"
  missed = \"run-once\"";
