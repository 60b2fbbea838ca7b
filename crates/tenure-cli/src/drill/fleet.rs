//! The candidates as processes, and what they tell.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde_json::Value;
use tenure::{BootClock, Clock as _, Time};
use tenure_core::Secret;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::candidate::{Brief, CANDIDATE};
use crate::exit::Failure;
use crate::signals::Signals;

/// One line of JSON, and who said it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// Counted from the start of the drill; never used again.
    pub(crate) process: usize,
    /// The place that this process has among the candidates.
    pub(crate) lane: usize,
    pub(crate) at: Time,
    pub(crate) event: String,
    pub(crate) candidate: String,
    pub(crate) term: u64,
    pub(crate) reason: String,
    /// With `trusts`: how long.
    pub(crate) until: Option<Time>,
    /// With what is about a write: which.
    pub(crate) counter: Option<u64>,
    pub(crate) line: String,
}

impl Told {
    /// Reads a line; `None` if it is not one of ours.
    pub(crate) fn read(process: usize, lane: usize, line: &str) -> Option<Told> {
        let json: Value = serde_json::from_str(line).ok()?;
        let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
        Some(Told {
            process,
            lane,
            at: Time::from_nanos(json["boot_ns"].as_u64()?),
            event: json["event"].as_str()?.to_owned(),
            candidate: text("candidate"),
            term: json["term"].as_u64().unwrap_or(0),
            reason: text("reason"),
            until: json["until_ns"].as_u64().map(Time::from_nanos),
            counter: json["counter"].as_u64(),
            line: line.to_owned(),
        })
    }

    pub(crate) fn is(&self, event: &str) -> bool {
        self.event == event
    }
}

/// The writes of one reign that were acknowledged to the leader: every counter in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// When the first and the last were.
    pub(crate) from: Time,
    pub(crate) until: Time,
}

/// Why a drill does not go on.
#[derive(Debug)]
pub(crate) enum Halt {
    /// Somebody asked for the end.
    Asked(Signal),
    /// The candidates did not do what they should: this is what the drill is there to find.
    Found(String),
    /// The drill itself can't go on.
    Broken(Failure),
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Halt {
        Halt::Broken(failure)
    }
}

enum Message {
    Told(Told),
    Ended { process: usize },
}

/// The candidates. All are killed when this is dropped.
pub(crate) struct Fleet {
    brief: Brief,
    /// One for each lane.
    urls: Vec<Secret>,
    envs: Vec<(String, String)>,
    members: Vec<Member>,
    signals: Signals,
    sender: UnboundedSender<Message>,
    receiver: UnboundedReceiver<Message>,
    started: usize,
    /// When processes were killed.
    pub(crate) killed: BTreeMap<usize, Time>,
    /// Everything that was told so far, in the order of arrival, but for single writes.
    pub(crate) told: Vec<Told>,
    /// By candidate and term.
    pub(crate) acknowledged: BTreeMap<(String, u64), Acknowledged>,
}

struct Member {
    process: usize,
    lane: usize,
    child: Child,
    has_ended: bool,
    /// It may end: it was killed or told to.
    may_end: bool,
}

impl Drop for Member {
    fn drop(&mut self) {
        // Our own child, not waited for yet: the pid is still its own. A frozen one dies too.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Fleet {
    /// No candidate yet; `envs` are for them.
    pub(crate) fn new(
        brief: Brief,
        urls: Vec<Secret>,
        envs: Vec<(String, String)>,
        signals: Signals,
    ) -> Fleet {
        let (sender, receiver) = unbounded_channel();
        Fleet {
            brief,
            urls,
            envs,
            members: Vec::new(),
            signals,
            sender,
            receiver,
            started: 0,
            killed: BTreeMap::new(),
            told: Vec::new(),
            acknowledged: BTreeMap::new(),
        }
    }

    /// Starts a candidate in this place.
    pub(crate) fn start(&mut self, lane: usize) -> Result<(), Failure> {
        let process = self.started;
        self.started += 1;
        let mut child = Command::new(own_binary()?)
            .args([CANDIDATE, &label(lane), &self.brief.to_json().to_string()])
            // Not as an argument: there may be a password in it.
            .env("TENURE_STORE", self.urls.get(lane).map_or("", Secret::expose))
            .envs(self.envs.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // A Ctrl-C at the terminal is for the drill, which tells them to end in its own time.
            .process_group(0)
            .spawn()
            .context("no candidate can be started")?;
        let output = child.stdout.take().context("a candidate has no output")?;
        let (has_ended, may_end) = (false, false);
        self.members.push(Member { process, lane, child, has_ended, may_end });
        let sender = self.sender.clone();
        let read = move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some(told) = Told::read(process, lane, &line) {
                    let _nobody_listens = sender.send(Message::Told(told));
                }
            }
            let _nobody_listens = sender.send(Message::Ended { process });
        };
        std::thread::Builder::new().name(label(lane)).spawn(read)?;
        Ok(())
    }

    /// Waits until what was told so far makes sense to `look`.
    pub(crate) async fn wait<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut look: impl FnMut(&[Told]) -> Option<T>,
    ) -> Result<T, Halt> {
        let end = BootClock::time() + limit;
        loop {
            if let Some(seen) = look(&self.told) {
                return Ok(seen);
            }
            if BootClock::time() >= end {
                return Err(Halt::Found(format!(
                    "{what} did not come within {}",
                    tenure_core::show_duration(limit)
                )));
            }
            self.next(end).await?;
        }
    }

    /// Takes in what is told for so long.
    pub(crate) async fn listen(&mut self, time: Duration) -> Result<(), Halt> {
        let end = BootClock::time() + time;
        while BootClock::time() < end {
            self.next(end).await?;
        }
        Ok(())
    }

    async fn next(&mut self, end: Time) -> Result<(), Halt> {
        tokio::select! {
            // Who asks for the end is heard before what comes of it.
            biased;
            signal = self.signals.end() => Err(Halt::Asked(signal)),
            message = self.receiver.recv() => self.take_in(message),
            () = BootClock.sleep_until(end) => Ok(()),
        }
    }

    fn take_in(&mut self, message: Option<Message>) -> Result<(), Halt> {
        match message {
            Some(Message::Told(told)) if told.is("acknowledged") => self.acknowledge(told),
            Some(Message::Told(told)) => self.told.push(told),
            Some(Message::Ended { process }) => {
                let member = self.members.iter_mut().find(|member| member.process == process);
                if let Some(member) = member {
                    member.has_ended = true;
                    if !member.may_end {
                        let label = label(member.lane);
                        return Err(Halt::Found(format!("candidate {label} ended by itself")));
                    }
                }
            }
            None => {}
        }
        Ok(())
    }

    fn acknowledge(&mut self, told: Told) {
        let (Some(counter), at) = (told.counter, told.at) else { return };
        let new = Acknowledged { first: counter, last: counter, from: at, until: at };
        let known = self.acknowledged.entry((told.candidate, told.term)).or_insert(new);
        (known.last, known.until) = (known.last.max(counter), at);
    }

    /// Sends a signal to a process, and tells the instant just before.
    pub(crate) fn signal(&self, process: usize, signal: Signal) -> Result<Time, Failure> {
        let member = self.members.iter().find(|member| member.process == process);
        let member = member.context("there is no such candidate any more")?;
        let at = BootClock::time();
        kill_process(Pid::from_child(&member.child), signal)
            .context("a candidate can't be signalled")?;
        Ok(at)
    }

    /// Stops a process and waits until it stands still, which is later: one of its threads takes
    /// the signal when it gets to run, and the others go on until then. Tells the instant just
    /// before.
    pub(crate) async fn stop(&mut self, process: usize) -> Result<Time, Halt> {
        let at = self.signal(process, Signal::STOP)?;
        while !self.is_stopped(process)? {
            self.listen(Duration::from_millis(1)).await?;
        }
        Ok(at)
    }

    fn is_stopped(&self, process: usize) -> Result<bool, Failure> {
        let member = self.members.iter().find(|member| member.process == process);
        let member = member.context("there is no such candidate any more")?;
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let stopped = waitid(WaitId::Pid(Pid::from_child(&member.child)), options);
        Ok(stopped.context("a candidate can't be waited for")?.is_some())
    }

    /// Kills a process and waits for its end. Tells the instant just before the kill.
    pub(crate) fn kill(&mut self, process: usize) -> Result<Time, Failure> {
        let at = self.signal(process, Signal::KILL)?;
        self.killed.insert(process, at);
        // Dropping it reaps it.
        self.members.retain(|member| member.process != process);
        Ok(at)
    }

    /// Asks all to end, and waits; those that do not are killed.
    pub(crate) async fn finish(&mut self, limit: Duration) {
        for member in &mut self.members {
            member.may_end = true;
            let pid = Pid::from_child(&member.child);
            for signal in [Signal::TERM, Signal::CONT] {
                let _gone = kill_process(pid, signal);
            }
        }
        let end = BootClock::time() + limit;
        while self.members.iter().any(|member| !member.has_ended) && BootClock::time() < end {
            // A second Ctrl-C is immediate.
            if self.next(end).await.is_err() {
                break;
            }
        }
        let stuck: Vec<usize> =
            self.members.iter().filter(|m| !m.has_ended).map(|m| m.process).collect();
        for process in stuck {
            let _gone = self.kill(process);
        }
        self.members.clear();
        while let Ok(message) = self.receiver.try_recv() {
            let _nothing_is_left = self.take_in(Some(message));
        }
    }
}

/// What a candidate is called.
pub(crate) fn label(lane: usize) -> String {
    format!("c{}", lane + 1)
}

/// The binary that runs now, even if its file has been replaced meanwhile.
fn own_binary() -> Result<PathBuf, Failure> {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() { Ok(own) } else { Ok(std::env::current_exe()?) }
}
