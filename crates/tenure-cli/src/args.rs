//! What can be written on the command line, as it stands there: nothing is checked yet.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use tenure_core::Secret;

use crate::command_args::{ObserveArgs, StopArgs, WaitArgs};
use crate::commands::cron::CronArgs;
use crate::commands::doctor::DoctorArgs;
use crate::commands::forget::ForgetArgs;
use crate::commands::letters::LettersArgs;
use crate::commands::listen::ListenArgs;
use crate::commands::migrate::MigrateArgs;
use crate::commands::notify::NotifyArgs;
use crate::commands::post::PostArgs;
use crate::commands::serve::ServeArgs;
use crate::drill::fault_values;

/// Elect one of many instances, tell it, take the job away in time
///
/// Many instances of a program run; exactly one of them must do the work. Put `tenure run NAME --`
/// in front of it, on every machine: the command runs on one of them, and nowhere else until that
/// one has stopped.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,

    #[command(subcommand)]
    pub(crate) command: CommandArgs,
}

/// What every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct GlobalArgs {
    /// Where the leases are kept, as a URL [default: a file of this user]
    ///
    /// sqlite:PATH for the processes of one machine; postgres:// and postgres+advisory://;
    /// redis://, rediss://, redis+sentinel://HOSTS/NAME, redis+cluster://HOSTS.
    ///
    /// The default is $XDG_STATE_HOME/tenure/tenure.db, else ~/.local/state/tenure/tenure.db. A
    /// URL with a password belongs in TENURE_STORE: everybody on the machine can read the
    /// arguments of a process.
    #[arg(
        long,
        short = 's',
        global = true,
        value_name = "URL",
        env = "TENURE_STORE",
        hide_env_values = true
    )]
    pub(crate) store: Option<Secret>,

    /// Refuse to use the default store: --store or TENURE_STORE must name one
    #[arg(
        long,
        global = true,
        env = "TENURE_NO_DEFAULT_STORE",
        hide_env_values = true,
        action = ArgAction::SetTrue,
        value_parser = FalseyValueParser::new()
    )]
    pub(crate) no_default_store: bool,

    /// Data and events as JSON, one object per line, on stdout
    #[arg(
        long,
        global = true,
        env = "TENURE_JSON",
        hide_env_values = true,
        action = ArgAction::SetTrue,
        value_parser = FalseyValueParser::new()
    )]
    pub(crate) json: bool,

    /// How messages and the log are written to stderr
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        env = "TENURE_LOG_FORMAT",
        hide_env_values = true,
        default_value = "text"
    )]
    pub(crate) log_format: LogFormat,

    /// Log to stderr; twice for debugging, thrice for everything
    #[arg(long, short = 'v', global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Say nothing but errors
    #[arg(long, short = 'q', global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Whether to use colours; auto means on a terminal and without NO_COLOR
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        env = "TENURE_COLOR",
        hide_env_values = true,
        default_value = "auto"
    )]
    pub(crate) color: Color,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CommandArgs {
    Run(RunArgs),
    Once(OnceArgs),
    Campaign(CampaignArgs),
    Cron(Box<CronArgs>),
    Status(StatusArgs),
    Watch(WatchArgs),
    Resign(ResignArgs),
    Forget(ForgetArgs),
    Notify(NotifyArgs),
    Post(PostArgs),
    Listen(Box<ListenArgs>),
    DeadLetters(LettersArgs),
    Serve(Box<ServeArgs>),
    Doctor(DoctorArgs),
    Migrate(MigrateArgs),
    Drill(DrillArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// Run a command that stays, only while this instance leads
///
/// For work that goes on for as long as somebody leads: a queue consumer, a scheduler, a server. A
/// command that ends is run by the next instance too, once per instance: for a migration or a
/// report use `tenure once` or `tenure cron`.
///
/// The command runs in a process group of its own. When leadership ends, the group gets TERM, and
/// KILL before anybody else can lead, even if tenure itself is killed or frozen. Signals are passed
/// on; the second Ctrl-C kills at once. If stdin is a terminal, the command gets /dev/null instead.
///
/// The command finds TENURE_ELECTION, TENURE_CANDIDATE, TENURE_TERM and TENURE_STORE in its
/// environment. The term is the fencing token: send it with every write, and have the place where
/// the data lives refuse a lower one.
///
/// With --json the events share stdout with what the command writes there.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// The election: 1 to 255 bytes
    pub(crate) name: String,

    /// What to do when the command ends [default: after exit code 0 stop, else restart]
    ///
    /// stop: give leadership up and exit with the command's code. restart: keep leading and start
    /// it again, after 1s at first and at most 30s. resign: give leadership up, step back, campaign
    /// again.
    #[arg(long, value_name = "WHAT", hide_possible_values = true)]
    pub(crate) on_exit: Option<OnExit>,

    /// Run the command at most once on this instance: `--on-exit stop`, and exit code 75 if
    /// leadership was lost before the command ended
    ///
    /// The other instances run it in their turn. For once in all, use `tenure once`.
    #[arg(long, conflicts_with = "on_exit")]
    pub(crate) once: bool,

    #[command(flatten)]
    pub(crate) wait: WaitArgs,

    #[command(flatten)]
    pub(crate) stop: StopArgs,

    #[command(flatten)]
    pub(crate) observe: ObserveArgs,

    #[command(flatten)]
    pub(crate) candidate: CandidateArgs,

    /// The command and its arguments
    #[arg(last = true, required = true, num_args = 1.., value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnExit {
    Stop,
    Restart,
    Resign,
}

/// Run a command that ends, once for a key, on whichever instance
///
/// For a migration, a backfill, a report: one run at a time, across instances and restarts, until
/// a success is recorded for the key. The others wait, and exit with 0 once it is. A run that
/// fails, or whose instance dies, is tried again by another, up to --tries in all. No key is ever
/// forgotten: the next migration has a key of its own.
///
/// This is at least once: if an instance dies after the command has ended and before that is
/// recorded, the command is run again. If its effect must be there exactly once, have the command
/// record the success in the transaction of its effect: on PostgreSQL, SELECT tenure_once(election,
/// term, key, attempt) as its first statement. Elsewhere make it harmless to repeat, and fence it
/// with the term.
///
/// The command finds TENURE_ELECTION, TENURE_CANDIDATE, TENURE_TERM, TENURE_STORE, TENURE_KEY and
/// TENURE_ATTEMPT in its environment. It is told to stop, and killed, as under `tenure run`.
///
/// Exit code 0 if a success is recorded, by this instance or another; 75 if another instance leads
/// and is not waited for; if all tries are used up, the code of the last one, or 1 if that died.
#[derive(Debug, Args)]
#[command(after_help = ONCE_EXAMPLES)]
pub(crate) struct OnceArgs {
    /// The election: 1 to 255 bytes. Commands of one election never run at the same time
    pub(crate) name: String,

    /// What is to be done once: 1 to 255 bytes
    #[arg(long, short = 'k', value_name = "KEY")]
    pub(crate) key: String,

    /// How often the command may be begun in all, on whichever instance
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub(crate) tries: u32,

    #[command(flatten)]
    pub(crate) wait: WaitArgs,

    #[command(flatten)]
    pub(crate) stop: StopArgs,

    #[command(flatten)]
    pub(crate) candidate: CandidateArgs,

    /// The command and its arguments
    #[arg(last = true, required = true, num_args = 1.., value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// How a candidate takes part.
#[derive(Debug, Args)]
#[command(next_help_heading = "Candidate")]
pub(crate) struct CandidateArgs {
    /// The name that others see: 1 to 200 bytes [default: HOST:PID]
    #[arg(long, value_name = "LABEL", env = "TENURE_ID", hide_env_values = true)]
    pub(crate) id: Option<String>,

    /// A set of durations: fast (15s), normal (30s) or unreliable-network (90s) [default: normal]
    #[arg(long, value_name = "NAME", env = "TENURE_PROFILE", hide_env_values = true)]
    pub(crate) profile: Option<String>,

    /// How long a lease lasts without being renewed [default: that of the profile]
    #[arg(long, value_name = "DURATION", env = "TENURE_TTL", hide_env_values = true)]
    pub(crate) ttl: Option<String>,

    /// How often the lease is renewed [default and maximum: ttl/3]
    #[arg(long, value_name = "DURATION", env = "TENURE_RENEW_EVERY", hide_env_values = true)]
    pub(crate) renew_every: Option<String>,

    /// How long before the lease ends it is no longer trusted [default: ttl/20, 5ms to 2s]
    #[arg(long, value_name = "DURATION", env = "TENURE_MARGIN", hide_env_values = true)]
    pub(crate) margin: Option<String>,

    /// How long the work has to wind up [default: ttl/6]
    #[arg(long, value_name = "DURATION", env = "TENURE_DRAIN", hide_env_values = true)]
    pub(crate) drain: Option<String>,

    /// A JSON object that others see while this instance leads; at most 4 KiB
    #[arg(long, value_name = "JSON", env = "TENURE_METADATA", hide_env_values = true)]
    pub(crate) metadata: Option<String>,
}

/// Take part without a command, until TERM or Ctrl-C
///
/// Tenure can't see who acts on the `elected` that it prints. So when a reign ends, its lease is
/// kept for the drain at most, until a line `done TERM` on stdin says that all work of that term
/// has ended. The end of the input says nothing. For work that tenure itself starts and ends, use
/// `run`.
#[derive(Debug, Args)]
#[command(after_help = CAMPAIGN_EXAMPLES)]
pub(crate) struct CampaignArgs {
    /// The election: 1 to 255 bytes
    pub(crate) name: String,

    /// Give the lease back at once when told to end: for those who have stopped their work by then
    #[arg(long)]
    pub(crate) at_once: bool,

    #[command(flatten)]
    pub(crate) candidate: CandidateArgs,
}

/// Tell who leads
///
/// Exit code 1 if one of the named elections has no leader.
#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLES)]
pub(crate) struct StatusArgs {
    /// The elections [default: all that the store knows]
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
}

/// Follow who leads, live, until Ctrl-C
///
/// A table on a terminal, else one line per change. Watching takes no part in the election.
#[derive(Debug, Args)]
#[command(after_help = WATCH_EXAMPLES)]
pub(crate) struct WatchArgs {
    /// The elections
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
}

/// Ask the leader to resign, and wait until it has
///
/// The leader's work is told to stop and has its drain to wind up; then somebody else leads. The
/// one who resigned steps back before it campaigns again. Exit code 1 if nobody leads, or if the
/// leader still leads when the time is over.
#[derive(Debug, Args)]
#[command(after_help = RESIGN_EXAMPLES)]
pub(crate) struct ResignArgs {
    /// The election
    pub(crate) name: String,

    /// How long to wait [default: the ttl of the leader's lease]
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
}

/// Try failover on the store itself, with real processes and real faults
///
/// Candidates of this very binary take part in an election of the drill's own. The leader is
/// killed, frozen, cut off or asked to resign, again and again, while it writes under a fence. A
/// checker outside holds what happened against the promises: never two leaders at once, terms that
/// only rise, no stale write. It tells how long nobody led after each kind of fault.
///
/// Other elections in the store are not touched, and what the drill made is removed when it is
/// over, also after Ctrl-C: on Postgres a schema of its own (the role must be allowed to create
/// one), on Redis keys of its own. A SQLite file that did not exist is left behind, empty. Exit
/// code 1 if a promise was broken.
#[derive(Debug, Args)]
#[command(after_help = DRILL_EXAMPLES)]
pub(crate) struct DrillArgs {
    /// How many processes take part
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) candidates: usize,

    /// How many faults
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    pub(crate) rounds: Option<usize>,

    /// How long to go on with faults, if not for a number of rounds
    #[arg(long = "for", value_name = "DURATION", default_value = "60s")]
    pub(crate) duration: String,

    /// Which faults, separated by commas [default: all that the store can have]
    #[arg(
        long,
        value_name = "FAULTS",
        value_delimiter = ',',
        value_parser = fault_values(),
        hide_possible_values = true
    )]
    pub(crate) faults: Vec<tenure_drill::Fault>,

    /// The same seed gives the same faults in the same order [default: a new one, which is told]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Write history.jsonl, report.html and timeline.svg into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,

    /// What restarts the store, for the shell; without it the store is never restarted
    #[arg(long, value_name = "COMMAND")]
    pub(crate) restart_cmd: Option<String>,

    /// How long a lease lasts without being renewed; a freeze costs about that much
    #[arg(long, value_name = "DURATION", default_value = "3s")]
    pub(crate) ttl: String,
}

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Print the manual page
#[derive(Debug, Args)]
#[command(after_help = MAN_EXAMPLES)]
pub(crate) struct ManArgs {
    /// Write a page for each command into this directory instead
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  tenure run queue -- ./consume               what stays: on one instance at a time
  tenure once schema --key v42 -- ./migrate   what ends: until it succeeded once
  tenure cron reports '@daily' -- ./report    what comes again
  tenure status                               who leads what
  tenure resign reports                       hand over now

Exit codes:
  0 done; 1 a negative answer; 2 usage or configuration; 69 store unavailable; 75 leadership lost
  under --once, or another leads (--no-wait, --wait); 125 tenure failed; 126 the command can't be
  executed; 127 it is not found; 128+N ended by signal N";

const RUN_EXAMPLES: &str = "\
Examples:
  tenure run queue -- ./consume
  tenure run queue --ttl 10s --on-exit restart -- ./consume --all
  tenure run reindex --no-wait -- ./reindex
  tenure run api --id web-1 --metadata '{\"url\": \"http://10.0.0.7:8080\"}' -- ./serve";

const ONCE_EXAMPLES: &str = "\
Examples:
  tenure once schema --key v42 -- ./migrate.sh
  tenure once schema --key v42 --wait 10m -- ./migrate.sh
  tenure once backfill --key 2026-11 --tries 1 --no-wait -- ./backfill.sh";

const CAMPAIGN_EXAMPLES: &str = "\
Examples:
  tenure campaign reports
  tenure campaign reports --json --drain 2s
  coproc tenure campaign reports --json   # and when term 7 is done: echo done 7 >&${COPROC[1]}";

const STATUS_EXAMPLES: &str = "\
Examples:
  tenure status
  tenure status reports && echo somebody leads
  tenure status reports --json";

const WATCH_EXAMPLES: &str = "\
Examples:
  tenure watch reports queue
  tenure watch reports --json";

const RESIGN_EXAMPLES: &str = "\
Examples:
  tenure resign reports
  tenure resign reports --timeout 5s";

const DRILL_EXAMPLES: &str = "\
Faults:
  kill, freeze, resign     what can happen to a process, on every store
  cut, hole, reset, delay  what can happen to its connections: closed, silent, reset, slow; by a
                           proxy of the drill's own; not on SQLite, which has none
  restart                  the store is restarted; only with --restart-cmd, not on SQLite
  clock                    the wall clock is stepped; only if asked for, needs libfaketime

Examples:
  tenure drill
  tenure drill --for 5m --report drill/
  tenure drill --rounds 40 --faults kill,freeze --seed 7
  tenure drill --restart-cmd 'systemctl restart redis-server'
  tenure drill --json | jq .faults";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  tenure completions bash > ~/.local/share/bash-completion/completions/tenure
  tenure completions zsh > ~/.zfunc/_tenure
  tenure completions fish > ~/.config/fish/completions/tenure.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  tenure man | man -l -
  tenure man --dir ~/.local/share/man/man1";
