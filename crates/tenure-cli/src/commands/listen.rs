//! `tenure listen`: handles messages while leading, by printing them or by a command for each.

use std::collections::HashMap;
use std::ffi::OsString;
use std::future::Future;
use std::io::{self, Write as _};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::Args;
use tenure::{ElectionBuilder, Error, Message, Name, Time};
use tenure_cli::process::{self, CannotStart};
use tenure_core::{Secret, parse_duration, show_duration};
use tokio::sync::{Mutex, mpsc, watch};

use super::guardians::Guardians;
use super::supervise::stopped_sentence;
use super::{Narration, builder, note_default_store, open_patiently, pause};
use crate::args::CandidateArgs;
use crate::exit::{Exit, Failure};
use crate::options::Candidacy;
use crate::output::{self, Output, boot_now};
use crate::signals::Signals;
use crate::store::StoreChoice;
use crate::wall;

/// How long before trust ends the command is killed at most. It has to arrive and to work.
const KILL_LEAD_MAX: Duration = Duration::from_millis(100);

/// Handle messages while this instance leads
///
/// Takes part in the election. While it leads, it prints each message of the channels as a line of
/// JSON on stdout; or it runs a command for each, with the payload on stdin, one command at a time
/// for each channel. A post is acknowledged once its line is written or its command has ended with
/// 0; else it comes again, after a pause, and is set aside as a dead letter after so many tries.
///
/// The command finds TENURE_CHANNEL, TENURE_ATTEMPT (1 for the first) and, of a post, TENURE_KEY
/// and TENURE_MESSAGE (its number) in its environment, beside what `run` gives it. It is killed
/// when leadership ends, and when it takes longer than `--timeout`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ListenArgs {
    /// The election
    pub(crate) name: String,

    /// The channels
    #[arg(required = true, num_args = 1.., value_name = "CHANNEL")]
    pub(crate) channels: Vec<String>,

    /// How often a post is delivered before it is a dead letter
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) tries: u32,

    /// How long a command may take; then it is killed, and a post comes again
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub(crate) timeout: String,

    #[command(flatten)]
    pub(crate) candidate: CandidateArgs,

    /// The command and its arguments
    #[arg(last = true, num_args = 1.., value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  tenure listen shop orders refunds
  tenure listen shop orders -- ./handle-order.sh
  tenure listen cache refresh --json | jq .payload";

/// What `listen` is to do.
#[derive(Debug)]
pub(crate) struct ListenOptions {
    candidacy: Candidacy,
    channels: Vec<String>,
    tries: u32,
    timeout: Duration,
    command: Vec<OsString>,
}

impl TryFrom<ListenArgs> for ListenOptions {
    type Error = Failure;

    fn try_from(args: ListenArgs) -> Result<ListenOptions, Failure> {
        let ListenArgs { name, mut channels, tries, timeout, candidate, command } = args;
        let candidacy = Candidacy::new(&name, candidate)?;
        let about = |error: Error| Failure::from(error).about("--timeout");
        let timeout = parse_duration(&timeout).map_err(about)?;
        if timeout.is_zero() {
            return Err(about(Error::config("a command needs more time than none; allow 1ms")));
        }
        channels.sort();
        channels.dedup();
        Ok(ListenOptions { candidacy, channels, tries, timeout, command })
    }
}

/// Handles messages until a signal asks to end.
///
/// # Cancel safety
/// Cancel safe: dropping it withdraws, and kills the command.
pub(crate) async fn run(
    options: &ListenOptions,
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    note_default_store(choice, out);
    let opened = open_patiently(choice, out).await?;
    let (over, mut fatal) = mpsc::channel(1);
    let deadline = watch::Sender::new(Time::ZERO);
    let desk = Arc::new(Desk {
        election: options.candidacy.name.clone(),
        command: options.command.clone(),
        timeout: options.timeout,
        store: choice.url.clone(),
        out: out.clone(),
        deadline: deadline.subscribe(),
        over,
        candidate: OnceLock::new(),
        guardians: Guardians::default(),
        lanes: options.channels.iter().map(|name| (name.clone(), Mutex::default())).collect(),
    });
    let builder = builder(&options.candidacy, &opened).post_tries(options.tries);
    // A command that takes too long is killed here, and waited for, before its post comes again.
    let mut builder = builder.post_timeout(Duration::MAX);
    for channel in &options.channels {
        builder = handled(builder, channel, &desk);
    }
    let election = builder.build()?;
    let _set_once = desk.candidate.set(election.candidate().to_string());
    desk.guardians.stand_by(opened.bequest(&election)?).await?;
    let mut signals = Signals::listen()?;
    let mut narration = Narration::new();
    narration.follow(&election, out, output::sentence);
    let mut events = election.peek_events();
    let tick = options.candidacy.timing.renew_every / 4;
    tokio::select! {
        started = election.start() => started?,
        _ = signals.end() => return Ok(Exit::DONE),
    }
    let end = loop {
        if let Some(standing) = election.peek() {
            deadline.send_replace(standing.trusted_until);
        }
        tokio::select! {
            _ = signals.end() => break Ok(Exit::DONE),
            Some(end) = fatal.recv() => break end,
            _ = events.next() => {}
            () = pause(tick) => {}
        }
    };
    tokio::select! {
        stopped = election.stop() => if let Err(error) = stopped {
            out.warn(&error.to_string());
        },
        _ = signals.end() => {}
    }
    drop((election, events));
    narration.finish().await;
    end
}

fn handled(builder: ElectionBuilder, channel: &str, desk: &Arc<Desk>) -> ElectionBuilder {
    let (notices, posts) = (desk.clone(), desk.clone());
    builder
        .on_notify(channel, move |message| {
            let desk = notices.clone();
            async move {
                if let Err(error) = desk.handle(message).await {
                    desk.out.warn(&error);
                }
            }
        })
        .on_post(channel, move |message| {
            let desk = posts.clone();
            async move { desk.handle(message).await.inspect_err(|error| desk.out.warn(error)) }
        })
}

/// Where messages are handled.
struct Desk {
    election: Name,
    command: Vec<OsString>,
    timeout: Duration,
    store: Secret,
    out: Output,
    /// When trust ends, as far as it is known.
    deadline: watch::Receiver<Time>,
    /// Told when there is no point in going on.
    over: mpsc::Sender<Result<Exit, Failure>>,
    /// Known once the election is built, which is before anything is handled.
    candidate: OnceLock<String>,
    guardians: Guardians,
    /// Held by the command that runs: one at a time on each channel, its notices included.
    lanes: HashMap<String, Mutex<()>>,
}

impl Desk {
    async fn handle(&self, message: Message) -> Result<(), String> {
        match self.command.is_empty() {
            true => self.print(&message).await,
            false => self.execute(&message).await,
        }
    }

    /// Written and flushed when this returns: nobody acknowledges what is in a buffer.
    async fn print(&self, message: &Message) -> Result<(), String> {
        let line = self.line(message);
        let written = tokio::task::spawn_blocking(move || {
            let mut stdout = io::stdout().lock();
            stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush())
        });
        let written = written.await.map_err(|error| error.to_string())?;
        if let Err(error) = &written {
            let gone = Failure::from(anyhow::anyhow!("stdout can't be written to: {error}"));
            let _told_before = self.over.try_send(Err(gone));
        }
        written.map_err(|error| error.to_string())
    }

    fn line(&self, message: &Message) -> String {
        let at = boot_now();
        let text = |text: &str| serde_json::Value::from(text).to_string();
        let optional = |value: Option<String>| value.unwrap_or_else(|| "null".to_owned());
        // A line break in JSON is white space: a string has none.
        let payload = message.payload.replace(['\n', '\r'], " ");
        format!(
            "{{\"at\":\"{}\",\"boot_ns\":{},\"event\":\"message\",\"election\":{},\"term\":{},\
             \"channel\":{},\"attempt\":{},\"id\":{},\"key\":{},\"payload\":{payload}}}\n",
            wall::rfc3339(wall::at(at)),
            at.as_nanos(),
            text(self.election.as_str()),
            message.term,
            text(&message.channel),
            message.attempt,
            optional(message.id.map(|id| id.to_string())),
            optional(message.key.as_deref().map(text)),
        )
    }

    /// Runs the command in a group of its own, which is killed before trust ends.
    async fn execute(&self, message: &Message) -> Result<(), String> {
        let lane = self.lanes.get(&message.channel).ok_or("nobody listens on this channel")?;
        let _lane = lane.lock().await;
        let keeper = &self.guardians.next().await?;
        let mut deadline = self.deadline.clone();
        let known = deadline.wait_for(|deadline| *deadline > Time::ZERO).await;
        let mut until = known.map(|until| *until).map_err(|error| error.to_string())?;
        if keeper.set_deadline(Some(until - KILL_LEAD_MAX)).is_err() {
            return Err("the guardian is gone".to_owned());
        }
        let stdin = stdin_of(&message.payload).map_err(|error| error.to_string())?;
        let started =
            process::start_with(&self.command, self.environment(message), keeper, stdin.into());
        let running = started.map_err(|error| self.cannot_start(&error))?;
        let time_out = pause(self.timeout);
        tokio::pin!(time_out);
        let mut timed_out = false;
        let code = loop {
            tokio::select! {
                code = running.gone() => break code,
                () = &mut time_out, if !timed_out => {
                    timed_out = true;
                    running.kill();
                }
                _ = deadline.changed() => {
                    until = *deadline.borrow_and_update();
                    if keeper.set_deadline(Some(until - KILL_LEAD_MAX)).is_err() {
                        running.kill();
                    }
                }
                () = keeper.gone() => running.kill(),
                signal = running.stopped() => {
                    self.out.warn(&stopped_sentence(signal, running.pid()));
                }
                () = until_killed(until) => running.kill(),
            }
        };
        match code {
            0 => Ok(()),
            _ if timed_out => {
                let (limit, channel) = (show_duration(self.timeout), &message.channel);
                Err(format!("the command on {channel} took longer than {limit} and was killed"))
            }
            code => Err(format!("the command ended with {code} on {}", message.channel)),
        }
    }

    fn environment(&self, message: &Message) -> Vec<(&'static str, String)> {
        let mut environment = vec![
            ("TENURE_ELECTION", self.election.to_string()),
            ("TENURE_CANDIDATE", self.candidate.get().cloned().unwrap_or_default()),
            ("TENURE_TERM", message.term.to_string()),
            ("TENURE_STORE", self.store.expose().to_owned()),
            ("TENURE_CHANNEL", message.channel.clone()),
            ("TENURE_ATTEMPT", message.attempt.to_string()),
        ];
        environment.extend(message.key.clone().map(|key| ("TENURE_KEY", key)));
        environment.extend(message.id.map(|id| ("TENURE_MESSAGE", id.to_string())));
        environment
    }

    /// A command that can't be executed would only fill the dead letters.
    fn cannot_start(&self, error: &CannotStart) -> String {
        let exit = Exit(error.code());
        let failure = Failure { exit, error: anyhow::anyhow!("{error}") };
        let _told_before = self.over.try_send(Err(failure));
        error.to_string()
    }
}

fn until_killed(until: Time) -> impl Future<Output = ()> {
    use tenure::Clock as _;
    tenure::BootClock.sleep_until(until - KILL_LEAD_MAX)
}

/// A pipe with the payload in it. A thread writes it, because a command need not read.
fn stdin_of(payload: &str) -> io::Result<io::PipeReader> {
    let (reader, mut writer) = io::pipe()?;
    let payload = payload.to_owned();
    std::thread::Builder::new().name("payload".to_owned()).spawn(move || {
        // A command that does not want it has closed its end.
        let _not_wanted = writer.write_all(payload.as_bytes());
    })?;
    Ok(reader)
}
