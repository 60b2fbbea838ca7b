//! What is known of the elections: kept up to date by events, looked at by requests.
//!
//! Requests never cause a call to the store: a task looks now and then, while somebody is
//! interested, because renewals of other instances are no events.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tenure::core::sync::lock;
use tenure::{BootClock, Election, Event, Events, Leader, Reason, Standing, Term, Time};
use tokio::time::MissedTickBehavior;

use crate::events::{Clients, frame};
use crate::history::History;
use crate::roll::{List, Roll};
use crate::wall;

/// How often the store is asked while somebody is interested.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// For how long a request means interest.
const INTEREST: Duration = Duration::from_secs(5);
/// How many elections are asked about at each look; with more, each has its turn later.
pub(crate) const LOOKS_AT_ONCE: usize = 64;
/// How many looks there are between two signs of life to those who listen.
const ALIVE_EVERY: u32 = 15;
/// The events of the list of elections.
const WATCHED: &str = "watched";
const FORGOTTEN: &str = "forgotten";
/// The event that a look may tell before the driver does.
const LEADER_CHANGED: &str = "leader_changed";

/// Everything that requests look at.
pub(crate) struct Hub {
    roll: Roll,
    pub(crate) clients: Clients,
    /// The store does not tell which elections there are.
    waiting: AtomicBool,
    /// It has told that at least once.
    told: AtomicBool,
    draining: AtomicBool,
    /// When somebody was last interested in what others do, in nanoseconds of the boot clock.
    asked_at: AtomicU64,
}

/// One election.
pub(crate) struct Watched {
    pub(crate) election: Election,
    seen: Mutex<Seen>,
    /// The part of the answer that stays the same during a reign of this instance.
    head: Mutex<Option<(Term, Arc<str>)>>,
}

#[derive(Default)]
struct Seen {
    /// Who leads, if not this instance, and when the store was asked that told so last.
    leader: Option<(Leader, Time)>,
    /// What is known is at least as new as this.
    as_of: Time,
    history: History,
}

impl Seen {
    /// Takes in who led at this instant; tells whether that is news. What was so before the last
    /// thing that is known is not.
    fn learn(&mut self, at: Time, now: Time, leader: Option<Leader>) -> bool {
        if at < self.as_of {
            return false;
        }
        self.as_of = at;
        let same = self.leader.as_ref().map(|(known, _)| (&known.holder, known.term))
            == leader.as_ref().map(|leader| (&leader.holder, leader.term));
        if !same {
            self.reign_is_over(at, now);
            if let Some(leader) = &leader {
                self.history.seen(wall::at(at, now), leader);
            }
        }
        let nobody = leader.is_none();
        self.leader = leader.map(|leader| (leader, at));
        !same || nobody
    }

    /// The reign of another ended by this instant: with its lease, if that ran out before.
    fn reign_is_over(&mut self, at: Time, now: Time) {
        let ran_out = self.leader.as_ref().map(|(leader, seen_at)| *seen_at + leader.remaining);
        let ended_at = ran_out.map_or(at, |ran_out| ran_out.min(at));
        self.history.end(wall::at(ended_at, now));
    }
}

impl Hub {
    pub(crate) fn new(clients: Clients) -> Hub {
        let (roll, waiting, told) =
            (Roll::default(), AtomicBool::new(false), AtomicBool::new(false));
        let (draining, asked_at) = (AtomicBool::new(false), AtomicU64::new(0));
        Hub { roll, clients, waiting, told, draining, asked_at }
    }

    /// Watches one more; `None` if it is watched already.
    pub(crate) fn watch(&self, election: Election) -> Option<Arc<Watched>> {
        let watched = Arc::new(Watched::new(election));
        self.roll.add(&watched).then_some(watched)
    }

    /// Tells those who listen that there is one more.
    pub(crate) fn tell_of(&self, watched: &Watched) {
        let name = watched.election.name().as_str();
        self.clients.publish(WATCHED, name, &watched.event_json(WATCHED, Map::new()));
    }

    /// Watches it no more.
    pub(crate) fn forget(&self, name: &str) {
        if self.roll.remove(name).is_some() {
            let data = json!({ "event": FORGOTTEN, "election": name });
            self.clients.publish(FORGOTTEN, name, &data);
        }
    }

    #[inline]
    pub(crate) fn list(&self) -> Arc<List> {
        self.roll.list()
    }

    pub(crate) fn set_waiting(&self, waiting: bool) {
        let before = self.waiting.swap(waiting, Ordering::AcqRel);
        self.told.fetch_or(!waiting, Ordering::AcqRel);
        if before != waiting {
            self.clients.send_all(&frame(None, Some("snapshot"), Some(&self.snapshot(None))));
        }
    }

    /// Whether nothing was known of any election until now.
    pub(crate) fn is_new(&self) -> bool {
        !self.told.load(Ordering::Acquire)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    pub(crate) fn start_draining(&self) {
        self.draining.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Somebody wants to know what others do.
    pub(crate) fn interest(&self) {
        self.asked_at.store(BootClock::time().as_nanos(), Ordering::Relaxed);
    }

    fn is_interesting(&self) -> bool {
        let asked_at = self.asked_at.load(Ordering::Relaxed);
        let lately = asked_at > 0 && BootClock::time() - Time::from_nanos(asked_at) < INTEREST;
        lately || !self.clients.is_empty()
    }

    /// All elections, for those who begin to listen.
    pub(crate) fn snapshot(&self, only: Option<&str>) -> Value {
        let wanted = |watched: &&Arc<Watched>| {
            only.is_none_or(|only| watched.election.name().as_str() == only)
        };
        let elections: Vec<Value> =
            self.list().all.iter().filter(wanted).map(|watched| watched.json()).collect();
        let (draining, waiting) = (self.is_draining(), self.is_waiting());
        json!({ "elections": elections, "draining": draining, "waiting": waiting })
    }

    /// Follows one election for as long as it exists.
    pub(crate) async fn follow(self: Arc<Hub>, watched: Arc<Watched>, mut events: Events) {
        while let Some((at, event)) = events.next_at().await {
            if let Some(data) = watched.take(at, &event) {
                self.clients.publish(event.name(), watched.election.name().as_str(), &data);
            }
        }
    }

    /// Looks at the store now and then, while somebody is interested.
    pub(crate) async fn look(self: Arc<Hub>) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut next, mut count) = (0, 0_u32);
        loop {
            ticks.tick().await;
            count = count.wrapping_add(1);
            if count % ALIVE_EVERY == 0 {
                self.clients.send_all(&frame(None, None, None));
            }
            self.list().all.iter().for_each(|watched| watched.refresh());
            if !self.is_interesting() {
                continue;
            }
            self.look_at_some(&mut next).await;
        }
    }

    async fn look_at_some(&self, next: &mut usize) {
        let all = &self.list().all;
        for _ in 0..all.len().min(LOOKS_AT_ONCE) {
            *next = (*next + 1) % all.len();
            let watched = &all[*next];
            let name = watched.election.name().as_str();
            if let Some(data) = watched.look().await {
                self.clients.publish(LEADER_CHANGED, name, &data);
            }
            if !self.clients.is_empty() {
                self.clients.pass_on("seen", name, &watched.event_json("seen", Map::new()));
            }
        }
    }
}

impl Watched {
    fn new(election: Election) -> Watched {
        let watched = Watched { election, seen: Mutex::default(), head: Mutex::default() };
        if let Some(leader) = watched.election.last_seen_leader() {
            let now = watched.election.now();
            let mut seen = watched.seen();
            seen.history.seen(wall::at(now, now), &leader);
            (seen.leader, seen.as_of) = (Some((leader, now)), now);
        }
        if let Some(standing) = watched.election.peek() {
            let elected = Event::Elected { term: standing.term };
            let at = wall::at(standing.since, watched.election.now());
            watched.seen().history.take(at, watched.me(), &elected);
        }
        watched
    }

    fn me(&self) -> (&str, &str) {
        let candidate = self.election.candidate();
        (candidate.as_str(), candidate.label())
    }

    // A std mutex: it is held while a few fields change or are copied, never across an await.
    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }

    /// Takes in an event, and tells what listeners are told; `None` if they know it already.
    fn take(&self, at: Time, event: &Event) -> Option<Value> {
        let now = self.election.now();
        {
            let mut seen = self.seen();
            if let Event::LeaderChanged { leader } = event {
                let term = |leader: &Leader| leader.term;
                let known = seen.leader.as_ref().and_then(|(known, _)| known.term);
                // The driver may have asked before a look that was answered sooner.
                let older = leader.as_ref().and_then(term).is_some_and(|term| Some(term) < known);
                if older || !seen.learn(at, now, leader.clone()) {
                    return None;
                }
            } else {
                if let Event::Elected { .. } = event {
                    seen.reign_is_over(at, now);
                    (seen.leader, seen.as_of) = (None, at.max(seen.as_of));
                }
                seen.history.take(wall::at(at, now), self.me(), event);
            }
        }
        Some(self.event_json_at(event.name(), at, fields_of(event)))
    }

    /// Asks the store who leads, if that is another one. Tells what listeners are told if it is
    /// another than was known: a candidate that stands aside, for example, is not told by events.
    async fn look(&self) -> Option<Value> {
        if self.election.peek().is_some() {
            return None;
        }
        let asked_at = self.election.now();
        let leader = self.election.current_leader().await.ok()?;
        let mine = leader.as_ref().is_some_and(|l| l.holder.is(self.election.candidate()));
        if mine || self.election.peek().is_some() {
            return None;
        }
        let known = {
            let mut seen = self.seen();
            let nobody = seen.leader.is_none() && leader.is_none();
            let now = self.election.now();
            nobody || !seen.learn(asked_at, now, leader)
        };
        (!known).then(|| self.event_json_at(LEADER_CHANGED, asked_at, Map::new()))
    }

    /// What the driver heard of the same lease meanwhile counts, too; no call to the store.
    fn refresh(&self) {
        let Some(heard) = self.election.last_seen_leader() else { return };
        let now = self.election.now();
        let mut seen = self.seen();
        if let Some((leader, seen_at)) = &mut seen.leader
            && (&leader.holder, leader.term) == (&heard.holder, heard.term)
            && heard.remaining > leader.remaining.saturating_sub(now - *seen_at)
        {
            (leader.remaining, *seen_at) = (heard.remaining, now);
        }
    }

    fn event_json_at(&self, event: &str, at: Time, mut fields: Map<String, Value>) -> Value {
        let at = wall::at(at, self.election.now());
        fields.insert("at".to_owned(), json!(wall::text(at)));
        self.event_json(event, fields)
    }

    fn event_json(&self, event: &str, mut fields: Map<String, Value>) -> Value {
        fields.insert("event".to_owned(), json!(event));
        fields.insert("election".to_owned(), json!(self.election.name().as_str()));
        fields.insert("state".to_owned(), self.json());
        Value::Object(fields)
    }

    /// Who leads now, as far as is known here.
    pub(crate) fn leader(&self) -> Option<(Leader, Duration)> {
        self.refresh();
        let (leader, seen_at) = self.seen().leader.clone()?;
        let ago = self.election.now() - seen_at;
        let remaining = leader.remaining.saturating_sub(ago);
        Some((leader, remaining))
    }

    /// What the leader published, be it this instance or another whose lease has not run out.
    pub(crate) fn metadata(&self) -> Option<Value> {
        let metadata = match self.election.peek() {
            Some(_) => self.election.metadata().cloned(),
            None => self.leader().filter(|(_, remaining)| !remaining.is_zero())?.0.metadata,
        };
        metadata.and_then(|metadata| serde_json::from_str(metadata.as_str()).ok())
    }

    /// The answer of `/leader` if this instance leads, for those who act on it: from here on the
    /// reign is relied upon (I8).
    pub(crate) fn vouched_body(&self) -> Option<String> {
        self.election.standing().map(|standing| self.leading_body(&standing))
    }

    /// The same for those who only show it.
    pub(crate) fn shown_body(&self) -> Option<String> {
        self.election.peek().map(|standing| self.leading_body(&standing))
    }

    /// Quick, because load balancers ask often.
    fn leading_body(&self, standing: &Standing) -> String {
        let mut head = lock(&self.head);
        let text = match &*head {
            Some((term, text)) if *term == standing.term => text.clone(),
            _ => {
                let text: Arc<str> = self.leading_head(standing.term, standing.since).into();
                *head = Some((standing.term, text.clone()));
                text
            }
        };
        drop(head);
        let mut body = String::with_capacity(text.len() + 24);
        body.push_str(&text);
        body.push_str(&standing.remaining.as_millis().to_string());
        body.push('}');
        body
    }

    /// Everything but the end: `remaining_ms` comes last.
    fn leading_head(&self, term: Term, since: Time) -> String {
        let (who, label) = self.me();
        let metadata = self.election.metadata().map_or("null", |metadata| metadata.as_str());
        format!(
            "{{\"election\":{},\"is_leader\":true,\"leader\":{},\"label\":{},\"term\":{term},\
             \"since\":{},\"metadata\":{metadata},\"drain_ms\":{},\"remaining_ms\":",
            json!(self.election.name().as_str()),
            json!(who),
            json!(label),
            json!(wall::text(wall::at(since, self.election.now()))),
            millis(self.election.timing().drain),
        )
    }

    /// The answer of `/leader` if another one leads, or nobody.
    pub(crate) fn following_json(&self) -> Value {
        let leader = self.leader();
        let (leader, remaining) = leader.map_or((None, None), |(l, r)| (Some(l), Some(r)));
        let since = leader.as_ref().and_then(|leader| leader.since_unix_ms);
        let metadata = leader.as_ref().and_then(|leader| leader.metadata.as_ref());
        let metadata = metadata.and_then(|m| serde_json::from_str::<Value>(m.as_str()).ok());
        json!({
            "election": self.election.name().as_str(),
            "is_leader": false,
            "leader": leader.as_ref().map(|leader| leader.holder.as_str()),
            "label": leader.as_ref().map(|leader| leader.holder.label()),
            "term": leader.as_ref().and_then(|leader| leader.term).map(Term::get),
            "since": since.and_then(wall::from_unix_ms).map(wall::text),
            "metadata": metadata,
            "drain_ms": null,
            "remaining_ms": remaining.map(millis),
        })
    }

    /// What there is to tell of this election, without its history.
    pub(crate) fn json(&self) -> Value {
        let leading = self.shown_body().and_then(|body| serde_json::from_str(&body).ok());
        let mut value: Value = leading.unwrap_or_else(|| self.following_json());
        if let Some(fields) = value.as_object_mut() {
            fields.insert("candidate".to_owned(), json!(self.election.candidate().as_str()));
            fields.insert("store_answers".to_owned(), json!(self.election.store_answers()));
            fields.insert("ttl_ms".to_owned(), json!(millis(self.lease_ttl())));
            let overdue = self.election.overdue().map(|overdue| millis(overdue.by));
            fields.insert("overdue_ms".to_owned(), json!(overdue));
        }
        value
    }

    /// The ttl of the lease that is held; with others it may be another than here.
    fn lease_ttl(&self) -> Duration {
        let other = || self.seen().leader.as_ref().and_then(|(leader, _)| leader.ttl);
        let ttl = if self.election.peek().is_some() { None } else { other() };
        ttl.unwrap_or(self.election.timing().ttl)
    }

    /// The same, with the history.
    pub(crate) fn json_with_history(&self) -> Value {
        let mut value = self.json();
        let history = self.seen().history.json();
        let timing = self.election.timing();
        if let Some(fields) = value.as_object_mut() {
            fields.insert("renew_every_ms".to_owned(), json!(millis(timing.renew_every)));
            fields.insert("margin_ms".to_owned(), json!(millis(timing.margin)));
            fields.insert("drain_ms".to_owned(), json!(millis(timing.drain)));
            fields.insert("history".to_owned(), history);
        }
        value
    }
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// What an event has to say beside its name.
fn fields_of(event: &Event) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    match event {
        Event::Elected { term } => put("term", json!(term.get())),
        Event::RenewalFailed { term, error } => {
            put("term", json!(term.get()));
            put("error", json!(error.to_string()));
        }
        Event::Draining { term, reason, left } => {
            put("term", json!(term.get()));
            put("reason", json!(Reason::as_str(*reason)));
            put("left_ms", json!(millis(*left)));
        }
        Event::SteppedDown { term, reason } => {
            put("term", json!(term.get()));
            put("reason", json!(Reason::as_str(*reason)));
        }
        Event::StoreLost { error } => put("error", json!(error.to_string())),
        Event::Settling { left } => put("left_ms", json!(millis(*left))),
        Event::StoreClockStepped { by, ahead } => {
            put("by_ms", json!(millis(*by)));
            put("ahead", json!(ahead));
        }
        Event::DuplicateLabel { holder } => put("other", json!(holder.as_str())),
        Event::TermFell { granted, least } => {
            put("granted", json!(granted.get()));
            put("least", json!(least.get()));
        }
        Event::Missed { count } => put("count", json!(count)),
        _ => {}
    }
    fields
}

#[cfg(test)]
mod tests {
    use tenure::{Candidate, Holder, MemoryStore};

    use super::*;

    #[tokio::test]
    async fn who_listens_to_many_elections_is_not_let_go_by_a_look_at_them() {
        let candidate = Candidate::builder(Arc::new(MemoryStore::new())).build().unwrap();
        let hub = Hub::new(Clients::new(1));
        for number in 0..LOOKS_AT_ONCE * 2 {
            hub.watch(candidate.election(&format!("job-{number}")).start().await.unwrap());
        }
        let listener = hub.clients.subscribe(None, None, || json!({})).unwrap();
        // Nothing of it is read in between: those who lead are looked at without a pause.
        let mut next = 0;
        hub.clients.send_all(&frame(None, None, None));
        hub.look_at_some(&mut next).await;
        hub.look_at_some(&mut next).await;
        assert!(!listener.rest.is_closed());
        assert_eq!(listener.rest.len(), LOOKS_AT_ONCE * 2 + 1);
    }

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    fn leader(label: &str, term: u64) -> Option<Leader> {
        let holder = Holder::new(format!("{label}#1"));
        let lease = tenure::core::Lease {
            holder,
            term: Term::new(term),
            remaining: Duration::from_secs(30),
            ttl: None,
            since_unix_ms: None,
            metadata: None,
        };
        Some(Leader::from(lease))
    }

    #[test]
    fn what_was_asked_earlier_does_not_undo_what_was_told_later() {
        let (mut seen, now) = (Seen::default(), at(100));
        assert!(seen.learn(at(10), now, leader("a", 1)));
        assert!(!seen.learn(at(20), now, leader("a", 1)), "the same is no news");
        assert!(seen.learn(at(30), now, leader("b", 2)));
        assert!(!seen.learn(at(25), now, leader("a", 1)), "an answer that came late");
        assert!(!seen.learn(at(25), now, None));
        assert_eq!(seen.leader.as_ref().unwrap().0, leader("b", 2).unwrap());
        // The wall clock moves on between two looks at it.
        let earliest = wall::text(wall::at(at(40), now));
        assert!(seen.learn(at(40), now, None));
        let latest = wall::text(wall::at(at(40), now));
        let json = seen.history.json();
        let ended = json[0]["to"].as_str().unwrap();
        assert!(
            (earliest.as_str()..=latest.as_str()).contains(&ended),
            "{earliest} {ended} {latest}"
        );
    }
}
