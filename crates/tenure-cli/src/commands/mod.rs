//! One file for each command, and what they share.

pub(crate) mod campaign;
mod command_set;
pub(crate) mod completions;
pub(crate) mod cron;
pub(crate) mod doctor;
pub(crate) mod forget;
mod input;
pub(crate) mod letters;
pub(crate) mod listen;
pub(crate) mod man;
pub(crate) mod migrate;
pub(crate) mod notify;
pub(crate) mod once;
pub(crate) mod post;
mod presence;
pub(crate) mod resign;
pub(crate) mod run;
mod runner;
mod screen;
pub(crate) mod serve;
pub(crate) mod status;
mod terms;
pub(crate) mod watch;

use std::future::Future;
use std::time::Duration;

use tenure::{
    BootClock, CandidateId, Clock as _, Election, ElectionBuilder, Error, ErrorKind, Event, Events,
    Leader, Name, Tenure, Time,
};
use tenure_core::{Op, Reply, Secret, Sight, Store};
use tokio::task::JoinSet;

use crate::container;
use crate::exit::{Exit, Failure};
use crate::options::Candidacy;
use crate::output::{self, Output};
use crate::process::Signal;
use crate::signals::Signals;
use crate::store::{Opened, StoreChoice};

/// How often a store that can't be opened is tried again.
const OPEN_AGAIN: Duration = Duration::from_secs(1);

/// How long a one-shot command waits for the store.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// How often people are told that something goes on: a store settles, or fails again and again.
const STILL: Duration = Duration::from_secs(60);

/// A store that fails so soon after it was back was not back.
const FLAPS_WITHIN: Duration = Duration::from_secs(10);

/// How long the end waits for the last events to be told.
const LAST_EVENTS: Duration = Duration::from_millis(500);

/// How long a former leader stays after it has given that up.
const MAKE_WAY: Duration = Duration::from_millis(30);

/// Opens the store beside whatever else is going on: that may block for some seconds.
async fn open_aside(choice: &StoreChoice) -> Result<Opened, Error> {
    let choice = choice.clone();
    let opened = tokio::task::spawn_blocking(move || choice.open()).await;
    opened.unwrap_or_else(|error| {
        let message = "the store can't be opened; this is a bug, please report it";
        Err(Error::new(ErrorKind::Corrupt, message).caused_by(error))
    })
}

/// Opens the store for a command that goes on trying, for as long as it takes or as it is waited
/// for; or tells the signal that asked to end before. It has to be listened to: process 1 of a
/// container gets no signal that it does not handle.
async fn open_or_end(
    choice: &StoreChoice,
    wait: Option<Duration>,
    signals: &mut Signals,
    out: &Output,
) -> Result<Result<Opened, Signal>, Failure> {
    tokio::select! {
        biased;
        signal = signals.end() => Ok(Err(signal)),
        opened = open_within(choice, wait, out) => Ok(Ok(opened?)),
    }
}

/// Opens the store for a command that goes on trying.
async fn open_patiently(choice: &StoreChoice, out: &Output) -> Result<Opened, Failure> {
    let mut told = false;
    loop {
        match open_aside(choice).await {
            Err(error) if error.is_retryable() => {
                if !told {
                    out.warn(&format!("the store can't be used, trying again: {error}"));
                    told = true;
                }
                pause(OPEN_AGAIN).await;
            }
            opened => return Ok(opened?),
        }
    }
}

/// Opens the store for a command that waits so long at most, or for as long as it takes.
async fn open_within(
    choice: &StoreChoice,
    wait: Option<Duration>,
    out: &Output,
) -> Result<Opened, Failure> {
    match wait {
        None => open_patiently(choice, out).await,
        Some(wait) => tokio::select! {
            biased;
            opened = open_patiently(choice, out) => opened,
            () = pause(wait) => Ok(open_aside(choice).await?),
        },
    }
}

/// What a command ends with that waits no longer for its turn to lead.
async fn not_waited_for(election: &Election, out: &Output) -> Result<Exit, Failure> {
    let name = election.name();
    match in_time(election.current_leader()).await?? {
        Some(_) => out.say(&format!("another instance leads {name}")),
        None => out.say(&format!("{name} could not be led in time")),
    }
    Ok(Exit::ELSEWHERE)
}

/// Says how far the default store reaches: to this machine at most.
fn note_default_store(choice: &StoreChoice, out: &Output) {
    if choice.is_default {
        let address = choice.address();
        out.say(&match container::is_inside() {
            true => format!(
                "electing inside this container only, unless others share its file ({address}); \
                 use --store to elect across containers"
            ),
            false => format!(
                "electing on this machine, this user only ({address}); use --store to elect \
                 across machines"
            ),
        });
    }
}

/// Makes the election; it takes no part yet.
fn build(candidacy: &Candidacy, opened: &Opened) -> Result<Election, Failure> {
    Ok(builder(candidacy, opened).build()?)
}

/// Sets the election up; nothing is checked yet.
fn builder(candidacy: &Candidacy, opened: &Opened) -> ElectionBuilder {
    let Candidacy { name, label, timing, metadata, at_once } = candidacy;
    let mut builder = Election::builder(name.as_str(), opened.store.clone())
        .ttl(timing.ttl)
        .renew_every(timing.renew_every)
        .margin(timing.margin)
        .drain(timing.drain);
    if let Some(label) = label {
        builder = builder.label(label);
    }
    if let Some(metadata) = metadata {
        builder = builder.metadata(metadata.as_str());
    }
    if *at_once {
        builder = builder.at_once();
    }
    builder
}

/// What every command finds in its environment.
fn environment(tenure: &Tenure, url: &Secret) -> Vec<(&'static str, String)> {
    vec![
        ("TENURE_ELECTION", tenure.election().to_string()),
        ("TENURE_CANDIDATE", tenure.candidate().to_string()),
        ("TENURE_TERM", tenure.term().to_string()),
        ("TENURE_STORE", url.expose().to_owned()),
    ]
}

/// The payload of a message, as it was given; `-` is stdin.
fn payload(given: Option<&str>) -> Result<String, Failure> {
    match given {
        None => Ok("{}".to_owned()),
        Some("-") => Ok(std::io::read_to_string(std::io::stdin())?.trim().to_owned()),
        Some(json) => Ok(json.to_owned()),
    }
}

/// Takes no further part, and gives back what is held; if that fails, it is said.
async fn stop(election: &Election, out: &Output) {
    if let Err(error) = election.stop().await {
        out.warn(&error.to_string());
    }
}

/// Tells what happens in elections, beside whatever else is going on.
struct Narration {
    tasks: JoinSet<()>,
}

impl Narration {
    fn new() -> Narration {
        Narration { tasks: JoinSet::new() }
    }

    /// From now on, for showing it: nobody is to act on what is told. `sentence` is for people, and
    /// not used with `--json`.
    fn follow(
        &mut self,
        election: &Election,
        out: &Output,
        sentence: impl Fn(&Event) -> Option<String> + Send + 'static,
    ) {
        self.tell(election, election.peek_events(), out, sentence);
    }

    /// The same for those who act on it: a reign that is told of is relied upon (I8).
    fn vouch(
        &mut self,
        election: &Election,
        out: &Output,
        sentence: impl Fn(&Event) -> Option<String> + Send + 'static,
    ) {
        self.tell(election, election.events(), out, sentence);
    }

    fn tell(
        &mut self,
        election: &Election,
        events: Events,
        out: &Output,
        sentence: impl Fn(&Event) -> Option<String> + Send + 'static,
    ) {
        let (name, candidate) = (election.name().clone(), election.candidate().clone());
        self.tasks.spawn(narrate(events, name, candidate, out.clone(), sentence));
    }

    /// Waits for the last events of elections that are gone.
    async fn finish(mut self) {
        tokio::select! {
            () = async { while self.tasks.join_next().await.is_some() {} } => {}
            () = pause(LAST_EVENTS) => {}
        }
    }
}

async fn narrate(
    mut events: Events,
    name: Name,
    candidate: CandidateId,
    out: Output,
    sentence: impl Fn(&Event) -> Option<String>,
) {
    let (mut last, mut settling) = (String::new(), SettlingNews::default());
    let (mut store, mut answered) = (StoreNews::default(), false);
    while let Some((at, event)) = events.next_at().await {
        // What no waiting can fix ends a command that the store has never answered, which says so.
        let is_final = matches!(&event, Event::StoreLost { error } if !error.is_retryable());
        answered |= !matches!(event, Event::Campaigning | Event::StoreLost { .. });
        if out.json {
            out.event(at, &name, &candidate, &event);
            continue;
        }
        let is_news = settling.is_news(at, &event) & store.is_news(at, &event);
        if !is_news || is_final && !answered || is_us(&event, &candidate) {
            continue;
        }
        if let Some(sentence) = sentence(&event).filter(|sentence| *sentence != last) {
            // People need not be told the same thing at each try.
            if output::is_worrying(&event) {
                out.warn(&sentence)
            } else {
                out.say(&sentence)
            }
            last = sentence;
        }
    }
}

/// Tells people rarely of a store that answers, and fails again at once: on a full disk reads
/// succeed and writes do not, several times a second.
#[derive(Default)]
struct StoreNews {
    back: Option<Time>,
    /// What was last told of a loss, and when.
    told: Option<(Time, String)>,
    flaps: bool,
}

impl StoreNews {
    fn is_news(&mut self, at: Time, event: &Event) -> bool {
        match event {
            Event::StoreLost { error } => {
                self.flaps |= self.back.is_some_and(|back| at < back + FLAPS_WITHIN);
                let text = error.to_string();
                let known = |(told, known): &(Time, String)| {
                    self.flaps && *known == text && at < *told + STILL
                };
                let is_news = !self.told.as_ref().is_some_and(known);
                if is_news {
                    self.told = Some((at, text));
                }
                is_news
            }
            Event::StoreBack => {
                self.back = Some(at);
                !self.flaps
            }
            // It does what it is for.
            Event::Elected { .. } | Event::LeaderChanged { leader: Some(_) } => {
                *self = StoreNews::default();
                true
            }
            _ => true,
        }
    }
}

/// Whether the one who is said to lead is this very candidate. It learns so before it leads if the
/// answer to its acquire was lost; the next one tells it that it leads.
fn is_us(event: &Event, candidate: &CandidateId) -> bool {
    matches!(event, Event::LeaderChanged { leader: Some(leader) } if leader.holder.is(candidate))
}

/// Tells people once that a store settles, and rarely again: it says so at each try, and what else
/// happens in between (nobody leads, a new campaign begins) does not end it.
#[derive(Default)]
struct SettlingNews {
    told: Option<Time>,
}

impl SettlingNews {
    fn is_news(&mut self, at: Time, event: &Event) -> bool {
        match event {
            Event::Settling { .. } => {
                let is_news = self.told.is_none_or(|told| at >= told + STILL);
                if is_news {
                    self.told = Some(at);
                }
                return is_news;
            }
            Event::Elected { .. } | Event::LeaderChanged { leader: Some(_) } => self.told = None,
            _ => {}
        }
        true
    }
}

/// Who leads each of these elections: as few calls to the store as it allows.
async fn read_all(store: &dyn Store, names: &[Name]) -> Result<Vec<Option<Leader>>, Error> {
    let sights = see_all(store, names).await?;
    Ok(sights.into_iter().map(|sight| sight.lease.map(Leader::from)).collect())
}

/// What the store knows of each of these elections.
async fn see_all(store: &dyn Store, names: &[Name]) -> Result<Vec<Sight>, Error> {
    let mut sights = Vec::with_capacity(names.len());
    for names in names.chunks(store.info().batch_limit.max(1)) {
        let ops: Vec<Op> = names.iter().map(|name| Op::Read { election: name.clone() }).collect();
        for reply in in_time(store.apply(&ops)).await? {
            match reply {
                Reply::Seen(sight) | Reply::Refused(sight) => sights.push(sight),
                Reply::Unknown(error) => return Err(error),
                Reply::Granted(_) => return Err(odd_answer()),
            }
        }
    }
    if sights.len() == names.len() { Ok(sights) } else { Err(odd_answer()) }
}

/// The answer of a store, if it comes in time.
async fn in_time<T>(answer: impl Future<Output = T>) -> Result<T, Error> {
    tokio::select! {
        answer = answer => Ok(answer),
        () = pause(ANSWER_WITHIN) => {
            Err(Error::new(ErrorKind::Unavailable, "the store does not answer; is it running?"))
        }
    }
}

async fn pause(span: Duration) {
    BootClock.sleep_until(BootClock::time() + span).await;
}

fn odd_answer() -> Error {
    Error::new(ErrorKind::Corrupt, "the store gave another answer than was asked for; a bug in it")
}

/// Stays for a moment after the leadership was given back. The end of a process, and of its
/// sessions with a server on the same machine, takes the processor for milliseconds: just those in
/// which the next leader is to be granted. Another signal ends it at once.
async fn make_way(signals: &mut Signals) {
    let _interrupted = tokio::time::timeout(MAKE_WAY, signals.end()).await;
}

#[cfg(test)]
mod tests {
    use tenure_core::{Holder, Lease};

    use super::*;

    #[test]
    fn nobody_is_told_that_it_follows_itself() {
        let us = CandidateId::new("web-1", 7).unwrap();
        let led_by = |holder: &str| {
            let lease = Lease {
                holder: Holder::new(holder),
                term: None,
                remaining: Duration::from_secs(1),
                ttl: None,
                since_unix_ms: None,
                metadata: None,
            };
            Event::LeaderChanged { leader: Some(Leader::from(lease)) }
        };
        assert!(is_us(&led_by(us.as_str()), &us));
        assert!(!is_us(&led_by("web-1#8"), &us), "another one of that label");
        assert!(!is_us(&Event::LeaderChanged { leader: None }, &us));
    }

    #[test]
    fn a_store_that_answers_and_fails_again_at_once_is_told_of_rarely() {
        let mut news = StoreNews::default();
        let at = |s| Time::ZERO + Duration::from_secs(s);
        let lost = |why: &str| Event::StoreLost { error: Error::new(ErrorKind::Unavailable, why) };
        assert!(news.is_news(at(100), &lost("the disk is full")));
        assert!(news.is_news(at(105), &Event::StoreBack), "for all that is known");
        for second in 106..160 {
            assert!(!news.is_news(at(second), &lost("the disk is full")), "{second}");
            assert!(!news.is_news(at(second), &Event::StoreBack), "{second}");
        }
        assert!(news.is_news(at(160), &lost("the disk is full")), "it goes on for so long");
        assert!(news.is_news(at(161), &lost("it is gone")), "that is something else");
        // It is well again, and what comes then is another time.
        assert!(news.is_news(at(170), &Event::Elected { term: tenure::Term::FIRST }));
        assert!(news.is_news(at(171), &lost("it is gone")));
        assert!(news.is_news(at(190), &Event::StoreBack));
        assert!(news.is_news(at(300), &lost("it is gone")), "it was back for long");
    }

    #[test]
    fn a_store_that_settles_is_told_of_once_and_rarely_again() {
        let (mut news, left) = (SettlingNews::default(), Duration::from_secs(300));
        let (at, settling) = (|s| Time::ZERO + Duration::from_secs(s), Event::Settling { left });
        assert!(news.is_news(at(100), &settling));
        // What comes between two tries is told, and ends nothing.
        for event in [Event::Campaigning, Event::LeaderChanged { leader: None }] {
            assert!(news.is_news(at(105), &event));
            assert!(!news.is_news(at(110), &settling), "{event:?}");
        }
        assert!(news.is_news(at(160), &settling), "it goes on for so long");
        assert!(!news.is_news(at(219), &settling));
        // Somebody led in between: it is another time.
        assert!(news.is_news(at(219), &Event::Elected { term: tenure::Term::FIRST }));
        assert!(news.is_news(at(219), &settling));
    }
}
