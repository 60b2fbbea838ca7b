//! The candidates as processes, and what they tell.
//!
//! A candidate writes one JSON object a line to its stdout; other lines are passed over. Each has
//! `boot_ns`, the instant on the clock that all of them share, and `event`; most have `candidate`
//! (the whole identity) and `term`. These are the events that a drill knows:
//!
//! | event | what it says |
//! |---|---|
//! | `campaigning` | it takes part |
//! | `elected` | it leads |
//! | `trusts` | it leads and trusts itself until `until_ns`; again whenever that has moved |
//! | `working` | its work has begun, with the write of `counter` |
//! | `acknowledged` | the store has told it that the write of `counter` is done |
//! | `draining` | it was told to stop, for `reason` |
//! | `stepped_down` | its work has ended, and it leads no more |
//! | `write_refused` | the fence has stopped a write of its term |
//! | `write_withheld` | it saw by its own clock that it may not write any more |
//!
//! `tenure campaign --json` and `tenure run --json` tell `elected`, `draining` and `stepped_down`
//! in the same way.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};
use tenure_core::{Clock, Time, show_duration};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::drill::Interrupt;
use crate::error::DrillError;
pub use crate::event::{Acknowledged, CandidateEvent};
use crate::member::Member;

/// How long the witnesses of those who have ended may take: they try for 2 s at most.
const WITNESS_ENDS_WITHIN: Duration = Duration::from_secs(4);

/// Why a drill does not go on.
#[derive(Debug)]
pub enum Halt {
    /// Somebody asked for the end, by the signal of this number.
    Asked(i32),
    /// The candidates did not do what they should: this is what the drill is there to find.
    Found(String),
    /// The drill itself can't go on.
    Broken(DrillError),
}

impl From<DrillError> for Halt {
    fn from(error: DrillError) -> Halt {
        Halt::Broken(error)
    }
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Halt::Asked(signal) => write!(f, "ended by signal {signal}"),
            Halt::Found(sentence) => f.write_str(sentence),
            Halt::Broken(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Halt {}

/// The command that starts a candidate in a lane.
type Launch<'a> = Box<dyn Fn(usize) -> io::Result<Command> + 'a>;

/// How many lines that nobody understands are kept.
const UNREAD_MAX: usize = 100;

enum Message {
    Unread(String),
    Event(CandidateEvent),
    Ended { process: usize },
}

/// The candidates. All are killed when this is dropped.
///
/// # Examples
/// ```
/// use std::process::Command;
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tenure_drill::fleet::{Fleet, Halt};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Halt> {
/// let script = r#"echo '{"boot_ns":1,"event":"elected","term":7}'; exec sleep 60"#;
/// let mut fleet = Fleet::new(Arc::new(tenure::BootClock), |_lane| {
///     let mut command = Command::new("sh");
///     command.args(["-c", script]);
///     Ok(command)
/// });
/// fleet.start(0)?;
/// let leader = fleet.wait_for("a leader", Duration::from_secs(10), |told| told.is("elected"));
/// assert_eq!(leader.await?.term, 7);
/// # Ok(()) }
/// ```
pub struct Fleet<'a> {
    clock: Arc<dyn Clock>,
    launch: Launch<'a>,
    interrupt: Option<&'a mut dyn Interrupt>,
    members: Vec<Member>,
    sender: UnboundedSender<Message>,
    receiver: UnboundedReceiver<Message>,
    started: usize,
    /// When processes were killed.
    pub killed: BTreeMap<usize, Time>,
    /// Everything that was told so far, in the order of arrival, but for single writes.
    pub events: Vec<CandidateEvent>,
    /// The first lines that are no events.
    pub unread: Vec<String>,
    /// Which writes were acknowledged, by candidate and term.
    pub acknowledged: BTreeMap<(String, u64), Acknowledged>,
}

impl<'a> Fleet<'a> {
    /// No candidate yet; `launch` makes the command for one in a lane.
    pub fn new(
        clock: Arc<dyn Clock>,
        launch: impl Fn(usize) -> io::Result<Command> + 'a,
    ) -> Fleet<'a> {
        let (sender, receiver) = unbounded_channel();
        Fleet {
            clock,
            launch: Box::new(launch),
            interrupt: None,
            members: Vec::new(),
            sender,
            receiver,
            started: 0,
            killed: BTreeMap::new(),
            events: Vec::new(),
            unread: Vec::new(),
            acknowledged: BTreeMap::new(),
        }
    }

    /// The same, with somebody who may ask for the end of whatever it waits for.
    #[must_use]
    pub fn with_interrupt(self, interrupt: &'a mut dyn Interrupt) -> Fleet<'a> {
        Fleet { interrupt: Some(interrupt), ..self }
    }

    /// Starts a candidate in this lane. Tells the number of its process.
    ///
    /// # Errors
    /// A sentence if it can't be started.
    pub fn start(&mut self, lane: usize) -> Result<usize, DrillError> {
        let process = self.started;
        self.started += 1;
        let cannot = "no candidate can be started";
        let mut command = (self.launch)(lane).map_err(DrillError::because(cannot))?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // A Ctrl-C at the terminal is for the drill, which tells them to end in its own time.
            .process_group(0)
            .spawn()
            .map_err(DrillError::because(cannot))?;
        let output = child.stdout.take();
        let output = output.ok_or_else(|| DrillError::failed("a candidate has no output"))?;
        let (has_ended, may_end, with_group) = (false, false, true);
        self.members.push(Member { process, lane, child, has_ended, may_end, with_group });
        let sender = self.sender.clone();
        let read = move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let read = CandidateEvent::read(process, lane, &line);
                let message = read.map_or_else(|| Message::Unread(line), Message::Event);
                let _nobody_listens = sender.send(message);
            }
            let _nobody_listens = sender.send(Message::Ended { process });
        };
        std::thread::Builder::new().name(label(lane)).spawn(read)?;
        Ok(process)
    }

    /// Waits until `look` sees what it looks for in what was told so far.
    ///
    /// # Errors
    /// [`Halt::Found`] if it does not come in time, or if a candidate ends by itself.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing that was told is lost.
    pub async fn wait<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut look: impl FnMut(&[CandidateEvent]) -> Option<T>,
    ) -> Result<T, Halt> {
        let end = self.clock.now() + limit;
        loop {
            if let Some(seen) = look(&self.events) {
                return Ok(seen);
            }
            if self.clock.now() >= end {
                let limit = show_duration(limit);
                return Err(Halt::Found(format!("{what} did not come within {limit}")));
            }
            self.next(end).await?;
        }
    }

    /// Waits for an event that is told from now on.
    ///
    /// # Errors
    /// As [`wait`](Fleet::wait).
    ///
    /// # Cancel safety
    /// Cancel safe: nothing that was told is lost.
    pub async fn wait_for(
        &mut self,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&CandidateEvent) -> bool,
    ) -> Result<CandidateEvent, Halt> {
        let seen = self.events.len();
        let look = |events: &[CandidateEvent]| events[seen..].iter().find(|e| wanted(e)).cloned();
        self.wait(what, limit, look).await
    }

    /// Waits for the next election, under a higher term than this one.
    ///
    /// # Errors
    /// As [`wait`](Fleet::wait).
    ///
    /// # Cancel safety
    /// Cancel safe: nothing that was told is lost.
    pub async fn successor(
        &mut self,
        of: &CandidateEvent,
        limit: Duration,
    ) -> Result<CandidateEvent, Halt> {
        let term = of.term;
        self.wait_for("a successor", limit, |told| told.is("elected") && told.term > term).await
    }

    /// The last election that was told.
    pub fn leader(&self) -> Option<&CandidateEvent> {
        self.events.iter().rev().find(|told| told.is("elected"))
    }

    /// Takes in what is told for so long.
    ///
    /// # Errors
    /// [`Halt::Found`] if a candidate ends by itself.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing that was told is lost.
    pub async fn listen(&mut self, time: Duration) -> Result<(), Halt> {
        let end = self.clock.now() + time;
        while self.clock.now() < end {
            self.next(end).await?;
        }
        Ok(())
    }

    async fn next(&mut self, end: Time) -> Result<(), Halt> {
        let interrupt = &mut self.interrupt;
        let asked = async move {
            match interrupt {
                Some(interrupt) => interrupt.asked().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // A wish for the end is heard before what comes of it.
            biased;
            signal = asked => Err(Halt::Asked(signal)),
            message = self.receiver.recv() => self.take_in(message),
            () = self.clock.sleep_until(end) => Ok(()),
        }
    }

    fn take_in(&mut self, message: Option<Message>) -> Result<(), Halt> {
        match message {
            Some(Message::Event(told)) if told.is("acknowledged") => self.acknowledge(told),
            Some(Message::Event(told)) => self.events.push(told),
            Some(Message::Unread(line)) if self.unread.len() < UNREAD_MAX => self.unread.push(line),
            Some(Message::Unread(_)) | None => {}
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
        }
        Ok(())
    }

    fn acknowledge(&mut self, told: CandidateEvent) {
        let (Some(counter), at) = (told.counter, told.at) else { return };
        let new = Acknowledged { first: counter, last: counter, from: at, until: at };
        let known = self.acknowledged.entry((told.candidate, told.term)).or_insert(new);
        (known.last, known.until) = (known.last.max(counter), at);
    }

    fn member(&self, process: usize) -> Result<&Member, DrillError> {
        let member = self.members.iter().find(|member| member.process == process);
        member.ok_or_else(|| DrillError::failed("there is no such candidate any more"))
    }

    /// Sends a signal to a process, and tells the instant just before.
    fn signal(&self, process: usize, signal: Signal) -> Result<Time, DrillError> {
        let pid = Pid::from_child(&self.member(process)?.child);
        let at = self.clock.now();
        kill_process(pid, signal).map_err(DrillError::because("a candidate can't be signalled"))?;
        Ok(at)
    }

    /// The number by which the system knows a process.
    ///
    /// # Errors
    /// A sentence if there is no such process.
    pub fn pid(&self, process: usize) -> Result<u32, DrillError> {
        Ok(self.member(process)?.child.id())
    }

    /// Asks a process to end. Tells the instant just before.
    ///
    /// # Errors
    /// A sentence if there is no such process.
    pub fn dismiss(&mut self, process: usize) -> Result<Time, DrillError> {
        let member = self.members.iter_mut().find(|member| member.process == process);
        if let Some(member) = member {
            member.may_end = true;
        }
        self.signal(process, Signal::TERM)
    }

    /// Waits until a process that was asked to end has ended.
    ///
    /// # Errors
    /// [`Halt::Found`] if it does not end in time.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ended(&mut self, process: usize, limit: Duration) -> Result<(), Halt> {
        let end = self.clock.now() + limit;
        while let Some(at) = self.members.iter().position(|member| member.process == process) {
            if self.members[at].child.try_wait().map_err(DrillError::from)?.is_some() {
                self.members[at].with_group = false;
                self.members.remove(at);
            } else if self.clock.now() >= end {
                return Err(Halt::Found("a candidate did not end".to_owned()));
            } else {
                self.listen(Duration::from_millis(1)).await?;
            }
        }
        Ok(())
    }

    /// Has a process that was stopped go on. Tells the instant just before.
    ///
    /// # Errors
    /// A sentence if there is no such process.
    pub fn go_on(&self, process: usize) -> Result<Time, DrillError> {
        self.signal(process, Signal::CONT)
    }

    /// Stops a process and waits until it stands still, which is later: one of its threads takes
    /// the signal when it gets to run, and the others go on until then. Tells the instant just
    /// before.
    ///
    /// # Errors
    /// What [`listen`](Fleet::listen) says meanwhile, or that there is no such process.
    ///
    /// # Cancel safety
    /// Not cancel safe: the process may be stopped or not.
    pub async fn stop(&mut self, process: usize) -> Result<Time, Halt> {
        let at = self.signal(process, Signal::STOP)?;
        while !self.is_stopped(process)? {
            self.listen(Duration::from_millis(1)).await?;
        }
        Ok(at)
    }

    fn is_stopped(&self, process: usize) -> Result<bool, DrillError> {
        let pid = Pid::from_child(&self.member(process)?.child);
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let stopped = waitid(WaitId::Pid(pid), options);
        let cannot = DrillError::because("a candidate can't be waited for");
        Ok(stopped.map_err(cannot)?.is_some())
    }

    /// Kills a process with all of its group, its witness for one, and waits for its end. Tells the
    /// instant just before the kill.
    ///
    /// # Errors
    /// A sentence if there is no such process.
    pub fn kill(&mut self, process: usize) -> Result<Time, DrillError> {
        let group = Pid::from_child(&self.member(process)?.child);
        let at = self.clock.now();
        kill_process_group(group, Signal::KILL)
            .map_err(DrillError::because("a candidate can't be signalled"))?;
        Ok(self.killed_at(process, at))
    }

    /// Kills a process alone, and waits for its end. Tells the instant just before the kill.
    ///
    /// # Errors
    /// A sentence if there is no such process.
    pub fn die(&mut self, process: usize) -> Result<Time, DrillError> {
        let at = self.signal(process, Signal::KILL)?;
        if let Some(member) = self.members.iter_mut().find(|member| member.process == process) {
            member.with_group = false;
        }
        Ok(self.killed_at(process, at))
    }

    fn killed_at(&mut self, process: usize, at: Time) -> Time {
        self.killed.insert(process, at);
        // Dropping it reaps it.
        self.members.retain(|member| member.process != process);
        at
    }

    /// Asks all to end, and waits; those that do not are killed.
    ///
    /// # Cancel safety
    /// Not cancel safe: some may have ended. Those that have not are killed with the fleet.
    pub async fn finish(&mut self, limit: Duration) {
        for member in &mut self.members {
            member.may_end = true;
            let pid = Pid::from_child(&member.child);
            for signal in [Signal::TERM, Signal::CONT] {
                let _gone = kill_process(pid, signal);
            }
        }
        let end = self.clock.now() + limit;
        while self.members.iter().any(|member| !member.has_ended) && self.clock.now() < end {
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
        // A witness may have something to give back; who cleans up comes after it.
        let end = self.clock.now() + WITNESS_ENDS_WITHIN;
        while self.clock.now() < end && self.members.iter().any(Member::has_company) {
            self.clock.sleep_until(self.clock.now() + Duration::from_millis(5)).await;
        }
        self.members.clear();
        while let Ok(message) = self.receiver.try_recv() {
            let _nothing_is_left = self.take_in(Some(message));
        }
    }
}

/// What a candidate is called.
pub fn label(lane: usize) -> String {
    format!("c{}", lane + 1)
}

#[cfg(test)]
#[path = "fleet_tests.rs"]
mod tests;
