//! The checker outside: it sees what user code did and what reached the store, and nothing else.
//!
//! An *effect* is something that user code does because it was let in. A *stay* lasts from being
//! let in to the end of the work. Both are told here at the instant at which they happen.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tenure_core::Time;
use tenure_core::sync::lock;

use super::user::Proc;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When, on the true clock.
    pub at: Time,
    /// Which promise.
    pub rule: &'static str,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.at.as_nanos() / 1_000_000;
        let (seconds, millis) = (millis / 1_000, millis % 1_000);
        write!(f, "{} broken at {seconds}.{millis:03}: {}", self.rule, self.what)
    }
}

/// How much happened. A simulation in which little happens proves little.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Things that user code did because it led.
    pub effects: u64,
    /// Changes of hands that effects showed.
    pub handovers: u64,
    /// Works that were let in.
    pub stays: u64,
    /// Leases that were given back.
    pub releases: u64,
    /// Calls of handles that ended.
    pub calls: u64,
    /// Callbacks that were told.
    pub callbacks: u64,
    /// Posts that were handled.
    pub posts: u64,
    /// Ticks whose work was begun.
    pub ticks: u64,
    /// Keys whose work was begun.
    pub keys: u64,
    /// Effects of two at once, where nothing else is promised.
    pub overlaps: u64,
    /// Wakers of the user's that were called.
    pub wakes: u64,
    /// Ticks that were asked for by hand.
    pub asked: u64,
    /// Transactions of jobs that took effect.
    pub transactions: u64,
    /// Looks of forked children at handles that lead in their parent.
    pub children: u64,
    /// Losses of the store's memory.
    pub losses: u64,
    /// Works under a lease that panicked.
    pub panics: u64,
    /// Calls of an election by its own callbacks.
    pub from_callbacks: u64,
    /// Programs that vouched for themselves, and fell silent for long.
    pub silences: u64,
    /// Tasks that went on.
    pub steps: u64,
}

impl Seen {
    /// Adds those of another run.
    pub fn add(&mut self, other: &Seen) {
        self.effects += other.effects;
        self.handovers += other.handovers;
        self.stays += other.stays;
        self.releases += other.releases;
        self.calls += other.calls;
        self.callbacks += other.callbacks;
        self.posts += other.posts;
        self.ticks += other.ticks;
        self.keys += other.keys;
        self.overlaps += other.overlaps;
        self.wakes += other.wakes;
        self.asked += other.asked;
        self.transactions += other.transactions;
        self.children += other.children;
        self.losses += other.losses;
        self.panics += other.panics;
        self.from_callbacks += other.from_callbacks;
        self.silences += other.silences;
        self.steps += other.steps;
    }
}

/// Where all is written down. Cloning gives another handle to the same.
#[derive(Clone, Default)]
pub(crate) struct Judge(Arc<Shared>);

#[derive(Default)]
struct Shared {
    is_broken: AtomicBool,
    book: Mutex<Evidence>,
}

/// All that was seen.
#[derive(Default)]
pub(crate) struct Evidence {
    pub(crate) violation: Option<Violation>,
    pub(crate) seen: Seen,
    /// Two may trust themselves here for a while: the store says so.
    pub(crate) lenient: bool,
    contests: BTreeMap<String, Contest>,
    stays: BTreeMap<u64, StayOf>,
    calls: BTreeMap<u64, Call>,
    /// Who vouches for themselves, by process and election.
    vouchers: BTreeMap<(String, String), Voucher>,
    /// Reigns whose lease must run out, by process, election and term.
    must_run_out: BTreeSet<(String, String, u64)>,
    /// Until when a process knows, in time, that its lease lasts, by process and election.
    leases: BTreeMap<(String, String), Time>,
    numbers: u64,
    pub(crate) posted: BTreeSet<String>,
    pub(crate) handled: BTreeSet<String>,
    pub(crate) runs: BTreeMap<(String, i64), Vec<TickRun>>,
    pub(crate) keys_done: BTreeSet<String>,
    /// The ticks that somebody asked for by hand, and was told of.
    pub(crate) asked: BTreeSet<i64>,
    /// How often each transactional tick took effect.
    pub(crate) transactions: BTreeMap<i64, u32>,
}

#[derive(Default)]
struct Contest {
    /// The highest term that acted, and who it was.
    fence: Option<(u64, usize)>,
    last_effect: Time,
}

/// One run of a tick, as the job saw it.
pub(crate) struct TickRun {
    pub(crate) attempt: u32,
    /// It returned, and so its end is known to the engine.
    pub(crate) returned: bool,
}

/// What kind of work stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The library knows of it, and waits for its end.
    Registered,
    /// It was let in by an answer. It ends within the drain after its last check.
    Relied,
}

struct StayOf {
    label: String,
    election: String,
    term: u64,
    kind: Kind,
    /// Somebody who must be told listens on the very task that works.
    hears: bool,
    blocked_since: Option<Time>,
    /// On the clock of its host, the end of what it may do unasked.
    good_until: Time,
}

/// One that leases depend on.
#[derive(Clone, Copy, Default)]
struct Voucher {
    /// Since when it has not answered.
    silent_since: Option<Time>,
    /// When something left first since then. It was asked at that time or before.
    asked_at: Option<Time>,
}

struct Call {
    label: String,
    name: &'static str,
    since: Time,
}

impl Judge {
    pub(crate) fn book(&self) -> MutexGuard<'_, Evidence> {
        lock(&self.0.book)
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.0.is_broken.load(Ordering::Relaxed)
    }

    pub(crate) fn broken(&self, at: Time, rule: &'static str, what: String) {
        let mut book = self.book();
        if book.violation.is_none() {
            book.violation = Some(Violation { at, rule, what });
            self.0.is_broken.store(true, Ordering::Relaxed);
        }
    }

    /// User code does something as leader of a term, at this instant (I1).
    pub(crate) fn effect(&self, proc: &Proc, election: &str, term: u64) {
        let now = proc.sim.now();
        let mut book = self.book();
        book.seen.effects += 1;
        let lenient = book.lenient;
        let contest = book.contests.entry(election.to_owned()).or_default();
        contest.last_effect = now;
        let (before, who) = contest.fence.unwrap_or((0, proc.host));
        let two = (term < before) || (term == before && who != proc.host);
        if term >= before {
            contest.fence = Some((term, proc.host));
        }
        book.seen.handovers += u64::from(term > before);
        book.seen.overlaps += u64::from(two);
        drop(book);
        proc.sim.note(|| format!("{} acts in {election} as term {term}", proc.label));
        if two && !lenient {
            let what = format!(
                "{} acts in {election} as term {term}, after host {who} did as term {before}",
                proc.label
            );
            self.broken(now, "I1", what);
        }
    }

    /// When somebody last acted in an election.
    pub(crate) fn last_effect(&self, election: &str) -> Time {
        self.book().contests.get(election).map_or(Time::ZERO, |contest| contest.last_effect)
    }

    pub(crate) fn fence(&self, election: &str) -> Option<(u64, usize)> {
        self.book().contests.get(election).and_then(|contest| contest.fence)
    }

    /// Work is let in. It ends with what this returns.
    pub(crate) fn stay(
        &self,
        proc: &Arc<Proc>,
        election: &str,
        term: u64,
        kind: Kind,
        hears: bool,
    ) -> Stay {
        let mut book = self.book();
        book.numbers += 1;
        book.seen.stays += 1;
        let id = book.numbers;
        let stay = StayOf {
            label: proc.label.clone(),
            election: election.to_owned(),
            term,
            kind,
            hears,
            blocked_since: None,
            good_until: proc.clock.peek() + proc.timing.drain,
        };
        book.stays.insert(id, stay);
        drop(book);
        proc.sim.note(|| format!("{} stays #{id} in {election} as term {term}", proc.label));
        Stay { judge: self.clone(), proc: proc.clone(), id }
    }

    /// The lease of a reign is given back (I8).
    pub(crate) fn released(&self, now: Time, label: &str, election: &str, term: u64) {
        let mut book = self.book();
        book.seen.releases += 1;
        let must = (label.to_owned(), election.to_owned(), term);
        let lasts = book.leases.get(&(label.to_owned(), election.to_owned()));
        // What it does not know of, such as a renewal without an answer, it may give back later.
        let cut_off = book.must_run_out.contains(&must) && lasts.is_some_and(|until| now < *until);
        let works = book.stays.iter().find(|(_, stay)| {
            let same = stay.label == label && stay.election == election && stay.term == term;
            same && stay.kind == Kind::Registered
        });
        let works = works.map(|(id, _)| *id);
        drop(book);
        if let Some(id) = works {
            let what = format!("{label} gives {election} back while #{id} works as term {term}");
            self.broken(now, "I8", what);
        }
        if cut_off {
            let what =
                format!("{label} gives {election} back, and on_lost of term {term} did not return");
            self.broken(now, "I8", what);
        }
    }

    /// Whether somebody on this host is at work because of an answer whose time is not over; by the
    /// clock of its host.
    pub(crate) fn relies(&self, label: &str, election: &str, term: u64, now: Time) -> Option<u64> {
        let book = self.book();
        let found = book.stays.iter().find(|(_, stay)| {
            let same = stay.label == label && stay.election == election && stay.term == term;
            same && stay.kind == Kind::Relied && now < stay.good_until
        });
        found.map(|(id, _)| *id)
    }

    /// `on_lost` of a reign was dropped or panicked: its lease may only run out.
    pub(crate) fn must_run_out(&self, label: &str, election: &str, term: u64) {
        self.book().must_run_out.insert((label.to_owned(), election.to_owned(), term));
    }

    /// A process was told in time that it has the lease until then.
    pub(crate) fn has_until(&self, label: &str, election: &str, until: Time) {
        let key = (label.to_owned(), election.to_owned());
        self.book().leases.insert(key, until);
    }

    /// A renewal leaves. None may for work that can't have heard anything for long (L2).
    /// One that was held up itself may ring for the first time then.
    pub(crate) fn renews(
        &self,
        now: Time,
        label: &str,
        election: &str,
        renew_every: Duration,
        drives_since: impl Fn(Time) -> bool,
    ) {
        let book = self.book();
        let bound = renew_every * 5 / 2;
        let deaf = book.stays.iter().find(|(_, stay)| {
            stay.label == label
                && stay.election == election
                && stay.hears
                && stay
                    .blocked_since
                    .is_some_and(|since| now - since > bound && drives_since(since))
        });
        let deaf = deaf.map(|(id, stay)| (*id, stay.term));
        drop(book);
        if let Some((id, term)) = deaf {
            let what = format!(
                "{label} renews {election} as term {term}, and #{id} has been blocked for more \
                 than {bound:?}"
            );
            self.broken(now, "bell", what);
        }
    }

    /// A program vouches for itself, until what this returns is dropped.
    pub(crate) fn vouches(&self, proc: &Proc, election: &str) -> Vouching {
        let key = (proc.label.clone(), election.to_owned());
        self.book().vouchers.insert(key.clone(), Voucher::default());
        Vouching { judge: self.clone(), key }
    }

    /// What would take or keep a lease leaves. For a program that is silent, nothing does once half
    /// of `renew_every` has passed since it was asked first.
    pub(crate) fn takes_or_keeps(
        &self,
        now: Time,
        label: &str,
        election: &str,
        renew_every: Duration,
        drives_since: impl Fn(Time) -> bool,
    ) {
        let mut book = self.book();
        let key = (label.to_owned(), election.to_owned());
        let Some(voucher) = book.vouchers.get_mut(&key) else { return };
        let Some(since) = voucher.silent_since else { return };
        let asked_at = *voucher.asked_at.get_or_insert(now);
        drop(book);
        // With a little for clocks that differ.
        if now - asked_at > renew_every * 3 / 5 && drives_since(since) {
            let what = format!(
                "{label} takes or keeps {election}, was asked at {asked_at:?} at the latest and \
                 has been silent since {since:?}"
            );
            self.broken(now, "vouch", what);
        }
    }

    /// A call of a handle begins that is to end once faults do.
    pub(crate) fn call(&self, proc: &Proc, name: &'static str) -> CallGuard {
        let mut book = self.book();
        book.numbers += 1;
        let id = book.numbers;
        let since = proc.sim.now();
        book.calls.insert(id, Call { label: proc.label.clone(), name, since });
        CallGuard { judge: self.clone(), id }
    }

    /// A call that has waited since before this instant.
    pub(crate) fn waits_since(&self, limit: Time) -> Option<String> {
        let book = self.book();
        let late = book.calls.values().find(|call| call.since < limit);
        late.map(|call| format!("{} of {} does not end", call.name, call.label))
    }
}

/// Work that was let in.
pub(crate) struct Stay {
    judge: Judge,
    proc: Arc<Proc>,
    id: u64,
}

impl Stay {
    /// Blocks the thread that the work runs on.
    pub(crate) fn block(&self, span: Duration) {
        let since = self.proc.sim.now();
        self.set_blocked(Some(since));
        self.proc.sim.block(span);
        self.set_blocked(None);
    }

    fn set_blocked(&self, since: Option<Time>) {
        if let Some(stay) = self.judge.book().stays.get_mut(&self.id) {
            stay.blocked_since = since;
        }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.judge.book().stays.remove(&self.id);
        self.proc.sim.note(|| format!("{} ends stay #{}", self.proc.label, self.id));
    }
}

/// A program that vouches for itself.
pub(crate) struct Vouching {
    judge: Judge,
    key: (String, String),
}

impl Vouching {
    /// It does not answer from this instant on, or does so again.
    pub(crate) fn is_silent(&self, since: Option<Time>) {
        let mut book = self.judge.book();
        book.seen.silences += u64::from(since.is_some());
        book.vouchers.insert(self.key.clone(), Voucher { silent_since: since, asked_at: None });
    }

    /// Whether it may still lead after a silence: not once what left before it had been silent for
    /// too long has run out.
    pub(crate) fn may_still_lead(&self, proc: &Proc) -> bool {
        let asked_at = self.judge.book().vouchers.get(&self.key).and_then(|it| it.asked_at);
        let longest = proc.timing.ttl + proc.timing.renew_every;
        asked_at.is_none_or(|asked_at| proc.sim.now() - asked_at < longest)
    }
}

impl Drop for Vouching {
    fn drop(&mut self) {
        self.judge.book().vouchers.remove(&self.key);
    }
}

/// A call under way.
pub(crate) struct CallGuard {
    judge: Judge,
    id: u64,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        let mut book = self.judge.book();
        book.seen.calls += 1;
        book.calls.remove(&self.id);
    }
}
