//! `tenure listen`: handles messages while leading, by printing them or by a command for each.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tenure::{Election, ElectionBuilder, Error, Message, Name, Tenure};
use tenure_core::{parse_duration, show_duration};
use tokio::sync::{Mutex, mpsc, watch};

use super::command_set::{CommandSet, CommandSpec, NotRun};
use super::presence::Presence;
use super::{Narration, builder, note_default_store, open_or_end, stop};
use crate::args::CandidateArgs;
use crate::command_args::{Observe, ObserveArgs, StopArgs};
use crate::exit::{Exit, Failure};
use crate::options::Candidacy;
use crate::output::{self, Output, boot_now};
use crate::process::{CannotStart, End, OnLoss, ReleaseNote, Signal, StopBy};
use crate::signals::Signals;
use crate::store::{Opened, StoreChoice};

/// What a command is told when leadership is lost: nothing. A message that is handled to its end
/// does not come again, so it may finish within the drain.
const ON_LOSS: OnLoss = OnLoss::LetFinish;

/// Handle messages while this instance leads
///
/// Takes part in the election. While it leads, it prints each message of the channels as a line of
/// JSON on stdout; or it runs a command for each, with the payload on stdin, one command at a time
/// for each channel. A post is acknowledged once its line is written or its command has ended with
/// 0; else it comes again, after a pause, and is set aside as a dead letter after so many tries.
///
/// The command finds TENURE_CHANNEL, TENURE_ATTEMPT (1 for the first) and, of a post, TENURE_KEY
/// and TENURE_MESSAGE (its number) in its environment, beside what `run` gives it. When leadership
/// ends, or tenure is told to end, it may finish within the drain, and is killed then.
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

    /// How long a command may take: then TERM, and KILL five seconds later; a post comes again
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub(crate) timeout: String,

    #[command(flatten)]
    pub(crate) stop: StopArgs,

    #[command(flatten)]
    pub(crate) observe: ObserveArgs,

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
    stop: StopBy,
    observe: Option<Observe>,
    command: Vec<OsString>,
}

impl TryFrom<ListenArgs> for ListenOptions {
    type Error = Failure;

    fn try_from(args: ListenArgs) -> Result<ListenOptions, Failure> {
        let ListenArgs { name, mut channels, tries, timeout, stop, observe, candidate, command } =
            args;
        let candidacy = Candidacy::new(&name, candidate)?;
        let about = |error: Error| Failure::from(error).about("--timeout");
        let timeout = parse_duration(&timeout).map_err(about)?;
        if timeout.is_zero() {
            return Err(about(Error::config("a command needs more time than none; allow 1ms")));
        }
        channels.sort();
        channels.dedup();
        let (stop, observe) = ((&stop).try_into()?, observe.checked()?);
        Ok(ListenOptions { candidacy, channels, tries, timeout, stop, observe, command })
    }
}

impl ListenOptions {
    /// Those who read what is printed work on after our death: then it proves nothing (D1).
    fn release_note(
        &self,
        election: &Election,
        opened: &Opened,
    ) -> Result<Option<ReleaseNote>, Failure> {
        match self.command.is_empty() {
            true => Ok(None),
            false => Ok(opened.release_note(election, self.stop.linger)?),
        }
    }
}

/// Handles messages until a signal asks to end.
pub(crate) async fn run(
    options: &ListenOptions,
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    let mut signals = Signals::of_candidate(out)?;
    note_default_store(choice, out);
    let mut presence = Presence::new(options.observe.as_ref())?;
    let Ok(opened) = open_or_end(choice, None, &mut signals, out).await? else {
        return Ok(Exit::DONE);
    };
    let (over, mut fatal) = mpsc::channel(1);
    let handler = Arc::new(MessageHandler {
        election: options.candidacy.name.clone(),
        command: options.command.clone(),
        timeout: options.timeout,
        out: out.clone(),
        over,
        commands: OnceLock::new(),
        reign: watch::Sender::default(),
        lanes: options.channels.iter().map(|name| (name.clone(), Mutex::default())).collect(),
    });
    let builder = builder(&options.candidacy, &opened).post_tries(options.tries);
    // A command that takes too long is killed here, and waited for, before its post comes again.
    let mut builder = builder.post_timeout(Duration::MAX);
    for channel in &options.channels {
        builder = handled(builder, channel, &handler);
    }
    let election = builder.build()?;
    let told = (ON_LOSS, options.stop);
    let note = options.release_note(&election, &opened)?;
    let commands = CommandSet::new(&election, told, (choice, note), out)?;
    let _set_once = handler.commands.set(commands.clone());
    presence.show(&election, out)?;
    let mut narration = Narration::new();
    narration.follow(&election, out, output::sentence);
    let starting = tokio::select! {
        started = election.start() => started.map(|()| None)?,
        signal = signals.end() => Some(signal),
    };
    let end = match starting {
        // It may have been elected before that is known here: what it holds is given back.
        Some(signal) => Ok(commands.wind_up(signal, &mut signals, stop(&election, out)).await),
        None => {
            let mut leading = std::pin::pin!(handler.lead(&election));
            let (signal, end) = tokio::select! {
                led = leading.as_mut() => (None, led.map_err(Failure::from)),
                signal = signals.end() => (Some(signal), Ok(())),
                Some(failure) = fatal.recv() => (Some(Signal::TERM), Err(failure)),
            };
            presence.stopping();
            let stopping = async {
                // What has ended by itself must not be asked again.
                match signal {
                    Some(_) => drop(tokio::join!(stop(&election, out), leading)),
                    None => stop(&election, out).await,
                }
            };
            let signal = signal.unwrap_or(Signal::TERM);
            let exit = commands.wind_up(signal, &mut signals, stopping).await;
            end.map(|()| exit)
        }
    };
    drop((election, commands, handler, presence));
    narration.finish().await;
    end
}

fn handled(
    builder: ElectionBuilder,
    channel: &str,
    handler: &Arc<MessageHandler>,
) -> ElectionBuilder {
    let (notices, posts) = (handler.clone(), handler.clone());
    builder
        .on_notify(channel, move |message| {
            let handler = notices.clone();
            async move {
                if let Err(error) = handler.handle(message).await {
                    handler.out.warn(&error);
                }
            }
        })
        .on_post(channel, move |message| {
            let handler = posts.clone();
            async move {
                let handled = handler.handle(message).await;
                handled.inspect_err(|error| handler.out.warn(error))
            }
        })
}

/// Where messages are handled.
struct MessageHandler {
    election: Name,
    command: Vec<OsString>,
    timeout: Duration,
    out: Output,
    /// Told when there is no point in going on.
    over: mpsc::Sender<Failure>,
    /// Known once the election is built, which is before anything is handled.
    commands: OnceLock<Arc<CommandSet>>,
    /// The handle of the reign, for the commands that run in it.
    reign: watch::Sender<Option<Arc<Tenure>>>,
    /// Held by the command that runs: one at a time on each channel, its notices included.
    lanes: HashMap<String, Mutex<()>>,
}

/// Takes the handle of a reign away when that is over.
struct Shown<'a>(&'a MessageHandler);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.0.reign.send_replace(None);
    }
}

impl MessageHandler {
    /// Has the handle of each reign at hand, until the election is stopped.
    async fn lead(&self, election: &Election) -> Result<(), Error> {
        let show = |tenure: Arc<Tenure>| async move {
            self.reign.send_replace(Some(tenure.clone()));
            let _shown = Shown(self);
            tenure.lost().await;
            Ok(())
        };
        election.lead_each(show).await
    }

    /// The handle of the reign that a message came in; `None` if that is over.
    async fn reign_of(&self, message: &Message) -> Option<Arc<Tenure>> {
        let mut reigns = self.reign.subscribe();
        let is_it = |tenure: &Option<Arc<Tenure>>| {
            tenure.as_ref().is_some_and(|it| it.term() == message.term)
        };
        let reign = async { reigns.wait_for(is_it).await.ok().and_then(|reign| reign.clone()) };
        tokio::select! {
            biased;
            _ = message.lost() => None,
            reign = reign => reign,
        }
    }

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
            let _told_before = self.over.try_send(gone);
        }
        written.map_err(|error| error.to_string())
    }

    fn line(&self, message: &Message) -> String {
        let candidate = self.commands.get().map(|commands| commands.election.candidate().as_str());
        let fields = vec![
            ("candidate", json!(candidate)),
            ("term", json!(message.term.get())),
            ("channel", json!(message.channel)),
            ("attempt", json!(message.attempt)),
            ("id", json!(message.id)),
            ("key", json!(message.key)),
        ];
        let object = output::object(boot_now(), "message", Some(&self.election), fields);
        // As it was sent, number by number. A line break in JSON is white space: a string has none.
        let payload = message.payload.replace(['\n', '\r'], " ");
        let open = object.strip_suffix('}').unwrap_or(&object);
        format!("{open},\"payload\":{payload}}}\n")
    }

    /// Runs the command, which is killed before trust ends.
    async fn execute(&self, message: &Message) -> Result<(), String> {
        const LOST: &str = "leadership was lost before the command could start";
        let lane = self.lanes.get(&message.channel).ok_or("nobody listens on this channel")?;
        let _lane = lane.lock().await;
        let commands = self.commands.get().ok_or("nothing can be run yet")?;
        let reign = self.reign_of(message).await.ok_or(LOST)?;
        let stdin = stdin_of(&message.payload).map_err(|error| error.to_string())?;
        let command = CommandSpec {
            label: message.channel.clone(),
            argv: self.command.clone(),
            envs: environment(message),
            stdin: Some(stdin.into()),
            timeout: Some(self.timeout),
        };
        match commands.run(reign, command).await {
            Ok(End::Gone { code: 0, .. }) => Ok(()),
            Ok(End::Gone { timed_out: true, .. }) => {
                let (limit, channel) = (show_duration(self.timeout), &message.channel);
                Err(format!("the command on {channel} took longer than {limit} and was killed"))
            }
            Ok(End::Gone { code, .. }) => {
                Err(format!("the command ended with {code} on {}", message.channel))
            }
            Ok(End::Stuck) => Err(format!("the command on {} can't be killed", message.channel)),
            Err(NotRun::Cannot(cannot)) => Err(self.cannot_start(&cannot)),
            Err(NotRun::Lost) => Err(LOST.to_owned()),
        }
    }

    /// A command that can't be executed would only fill the dead letters.
    fn cannot_start(&self, error: &CannotStart) -> String {
        let exit = Exit(error.code());
        let failure = Failure { exit, error: anyhow::anyhow!("{error}") };
        let _told_before = self.over.try_send(failure);
        error.to_string()
    }
}

/// What a command finds in its environment about its message.
fn environment(message: &Message) -> Vec<(&'static str, String)> {
    let mut environment = vec![
        ("TENURE_CHANNEL", message.channel.clone()),
        ("TENURE_ATTEMPT", message.attempt.to_string()),
    ];
    environment.extend(message.key.clone().map(|key| ("TENURE_KEY", key)));
    environment.extend(message.id.map(|id| ("TENURE_MESSAGE", id.to_string())));
    environment
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
