//! The part of a candidate: this very binary, started again by the drill.
//!
//! It takes part as any user's process would, and while it leads it writes. Between the question
//! whether it may and the write itself some time goes by, as it does in real work: a process that
//! is frozen there writes late, and only the fence can stop that.

use std::cell::Cell;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::event::{Timespec, poll};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde_json::{Value, json};
use tenure::{BootClock, CandidateId, Election, Events, Name, Tenure, Time, WitnessConfig};
use tenure_core::Secret;
use tenure_drill::{Refusal, Row, Site, Workload, find_ground};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::args::{Color, GlobalArgs, LogFormat};
use crate::exit::{Exit, Failure};
use crate::output::{Fields, Output};
use crate::registry::registry;
use crate::signals::Signals;
use crate::sink::Sink;
use crate::store::{Opened, StoreChoice};

/// The hidden first argument that makes this binary a candidate of a drill.
pub(crate) const CANDIDATE: &str = "__drill-candidate";

/// How long one piece of work takes, from the question to the write. It bounds the load too.
const THINK: Duration = Duration::from_millis(10);

/// How long to leave a store alone that did not do as it was told.
const REST: Duration = Duration::from_millis(50);

/// How long the work goes on after it was told to stop.
const WIND_UP: Duration = Duration::from_millis(30);

/// What the drill tells its candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Brief {
    pub(crate) election: Name,
    pub(crate) ttl: Duration,
    pub(crate) directory: PathBuf,
}

impl Brief {
    /// As it is passed on. The label stands beside it, for people who look at `ps`.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "election": self.election.as_str(),
            "ttl_ms": u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX),
            "directory": self.directory,
            "parent": std::process::id(),
        })
    }
}

/// Plays the part, if the command line asks for it.
pub(crate) fn dispatch() -> Option<ExitCode> {
    let mut args = std::env::args().skip(1);
    (args.next()? == CANDIDATE).then(|| {
        let global = GlobalArgs {
            store: None,
            no_default_store: false,
            json: true,
            log_format: LogFormat::Text,
            verbose: 0,
            quiet: true,
            color: Color::Never,
        };
        let sink = Sink::queued().unwrap_or(Sink::Direct);
        let out = Output::new(&global, sink.clone());
        let label = args.next().unwrap_or_default();
        let brief = args.next().unwrap_or_default();
        let exit = perform(&label, &brief, &out).unwrap_or_else(|failure| {
            out.error(&format!("candidate {label}: {:#}", failure.error));
            failure.exit
        });
        sink.finish();
        ExitCode::from(exit.0)
    })
}

fn perform(label: &str, brief: &str, out: &Output) -> Result<Exit, Failure> {
    let brief: Value = serde_json::from_str(brief)
        .map_err(|_| Failure::usage("only a drill of tenure can call this"))?;
    // Whatever ends the drill ends its candidates, even one that is frozen.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(std::io::Error::from)?;
    let parent = getppid().map(|pid| u64::from(pid.as_raw_nonzero().get().unsigned_abs()));
    if parent != brief["parent"].as_u64() {
        return Ok(Exit::DONE);
    }
    let text = |key: &str| brief[key].as_str().unwrap_or_default();
    let election = Name::new(text("election"))?;
    let ttl = Duration::from_millis(brief["ttl_ms"].as_u64().unwrap_or(0));
    let url = std::env::var("TENURE_STORE").ok().map(Secret::new);
    // All that a candidate does because it leads, it does itself.
    let store = StoreChoice::new(url.as_ref())?.childless();
    let opened = store.open()?;
    let kind = find_ground(&registry().grounds, &store.url)?;
    let work = (kind.workload)(Site {
        url: store.url.clone(),
        election: election.clone(),
        ttl,
        directory: text("directory").into(),
        clock: Arc::new(BootClock),
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(take_part(&election, ttl, label, &opened, work, out));
    runtime.shutdown_background();
    done
}

async fn take_part(
    name: &Name,
    ttl: Duration,
    label: &str,
    opened: &Opened,
    mut work: Box<dyn Workload>,
    out: &Output,
) -> Result<Exit, Failure> {
    let store = opened.store.clone();
    #[cfg(feature = "sabotage")]
    let store = super::sabotage::store(store);
    // It does all its work itself, as it says of its store, too.
    let witness = WitnessConfig::childless().program("/proc/self/exe");
    let builder = Election::builder(name.as_str(), store).ttl(ttl).label(label).witness(witness);
    #[cfg(feature = "sabotage")]
    let builder = super::sabotage::candidate(builder)?;
    let election = builder.build()?;
    let mut signals = Signals::listen()?;
    let mut narration = JoinSet::new();
    // Before it takes part: an event that comes earlier is told to nobody.
    let (candidate, events) = (election.candidate().clone(), election.peek_events());
    narration.spawn(narrate(election.name().clone(), candidate, events, out.clone()));
    election.start().await?;
    let is_ending = Cell::new(false);
    let leading = async {
        while let Ok(tenure) = election.campaign().await {
            work = reign(Arc::new(tenure), work, out).await?;
            if is_ending.get() {
                // Another campaign would undo the end that is under way.
                std::future::pending::<()>().await;
            }
        }
        Some(())
    };
    tokio::select! {
        _ = leading => {}
        () = async {
            signals.end().await;
            is_ending.set(true);
            if let Err(error) = election.stop().await {
                out.warn(&error.to_string());
            }
        } => {}
    }
    drop(election);
    let soon = BootClock::time() + Duration::from_millis(200);
    tokio::select! {
        () = async { while narration.join_next().await.is_some() {} } => {}
        () = tenure::Clock::sleep_until(&BootClock, soon) => {}
    }
    Ok(Exit::DONE)
}

async fn narrate(name: Name, candidate: CandidateId, mut events: Events, out: Output) {
    while let Some((at, event)) = events.next_at().await {
        out.event(at, &name, &candidate, &event);
    }
}

/// Writes while the reign lasts, and tells how long it is trusted. `None` if the writer is gone.
async fn reign(
    tenure: Arc<Tenure>,
    work: Box<dyn Workload>,
    out: &Output,
) -> Option<Box<dyn Workload>> {
    let stop = Arc::new(AtomicBool::new(false));
    let (done, mut ended) = oneshot::channel();
    let writer = Writer { tenure: tenure.clone(), work, stop: stop.clone(), out: out.clone() };
    thread::Builder::new()
        .name("workload".to_owned())
        .spawn(move || done.send(writer.run()))
        .ok()?;
    let mut known = tenure.trusted_until();
    tell_trust(&tenure, known, out);
    let mut lost = pin!(tenure.lost());
    loop {
        tokio::select! {
            work = &mut ended => return work.ok(),
            _ = &mut lost, if !stop.load(Ordering::Relaxed) => stop.store(true, Ordering::Relaxed),
            until = tenure.deadline_moved(known) => {
                if until > known {
                    tell_trust(&tenure, until, out);
                }
                known = until;
            }
        }
    }
}

/// Tells until when the leader trusts itself, unless that is over already.
fn tell_trust(tenure: &Tenure, until: Time, out: &Output) {
    let now = BootClock::time();
    if now < until {
        tell(tenure, now, "trusts", vec![("until_ns", json!(until.as_nanos()))], out);
    }
}

fn tell(tenure: &Tenure, at: Time, event: &str, rest: Fields, out: &Output) {
    let mut fields = vec![
        ("candidate", json!(tenure.candidate().as_str())),
        ("term", json!(tenure.term().get())),
    ];
    fields.extend(rest);
    out.object(at, event, tenure.election(), fields);
}

/// The work of one reign, on a thread of its own.
struct Writer {
    tenure: Arc<Tenure>,
    work: Box<dyn Workload>,
    stop: Arc<AtomicBool>,
    out: Output,
}

impl Writer {
    fn run(mut self) -> Box<dyn Workload> {
        if let Some(counter) = self.begin() {
            self.write_on(counter);
        }
        self.work
    }

    fn begin(&mut self) -> Option<u64> {
        loop {
            match self.work.begin(self.tenure.term()) {
                Ok(counter) => return Some(counter),
                Err(Refusal::Stale(why)) => {
                    self.tell("write_refused", vec![("why", json!(why))]);
                    return None;
                }
                Err(Refusal::Failed(why)) => self.tell("write_failed", vec![("why", json!(why))]),
            }
            pause(REST);
            if !self.tenure.is_current() {
                return None;
            }
        }
    }

    fn write_on(&mut self, mut counter: u64) {
        let (term, candidate) = (self.tenure.term(), self.tenure.candidate().to_string());
        let mut end = None;
        let mut is_first = true;
        while end.is_none_or(|end| BootClock::time() < end) {
            let checked = BootClock::time();
            if !self.tenure.is_current() {
                self.tell("write_withheld", vec![]);
                return;
            }
            pause(THINK);
            let (candidate, counter_next) = (candidate.clone(), counter + 1);
            let (at, term_number) = (checked, term.get());
            let row = Row { checked, at, term: term_number, counter: counter_next, candidate };
            match self.work.append(row, term) {
                Ok(_) => {
                    counter = counter_next;
                    self.tell("acknowledged", vec![("counter", json!(counter))]);
                }
                Err(Refusal::Stale(why)) => {
                    self.tell("write_refused", vec![("why", json!(why))]);
                    return;
                }
                Err(Refusal::Failed(why)) => {
                    // Perhaps it was done: the same counter again, and the judge knows of both.
                    self.tell("write_failed", vec![("why", json!(why))]);
                    pause(REST);
                    continue;
                }
            }
            if std::mem::take(&mut is_first) {
                self.tell("working", vec![("counter", json!(counter))]);
            }
            if end.is_none() && self.stop.load(Ordering::Relaxed) {
                end = Some(BootClock::time() + WIND_UP);
            }
        }
    }

    fn tell(&self, event: &str, rest: Fields) {
        tell(&self.tenure, BootClock::time(), event, rest, &self.out);
    }
}

fn pause(time: Duration) {
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) as _ };
    let _ended = poll(&mut [], Some(&timeout));
}
