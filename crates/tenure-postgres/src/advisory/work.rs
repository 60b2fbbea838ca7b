//! What is done on one session for the ops of one batch, and what each of them comes to.

use std::collections::HashMap;
use std::time::Duration;

use tenure_core::{Error, ErrorKind, Grant, Name, Op, Reply, Term};

use super::candidate::{Answer, Answers, Ops};
use super::hints;
use super::lease::{self, Lease};
use super::lock_session::{LockSession, Trouble};
use super::sight::Seen;
use super::term::Issued;
use crate::clock::{now, pause};
use crate::error;

/// How often a lock is tried for whose holder is ending this instant, and how long in between.
const RETRIES: usize = 5;
const RETRY_PAUSE: Duration = Duration::from_millis(2);

/// The ops of one session, by what is to be done.
#[derive(Default)]
pub(super) struct Work {
    pub(super) unlock: Ops,
    pub(super) beat: Ops,
    pub(super) anew: Ops,
    pub(super) tries: Ops,
}

impl LockSession {
    /// Does all of it, or says that the session is lost. Each op is answered in any case.
    pub(super) async fn carry_out(&mut self, work: Work, answers: &mut Answers) -> Result<(), ()> {
        let Work { unlock, beat, anew, tries } = work;
        if self.give_back(unlock, answers).await.is_err() {
            let held = beat.iter().chain(&anew);
            answers.extend(held.map(|(place, _)| (*place, Answer::Refused(None))));
            answers.extend(all_unknown(&tries, &gone()));
            return Err(());
        }
        let retuned = self.hold_on(beat, &anew, answers).await;
        if retuned.is_err() {
            let rest = anew.iter().map(|(place, _)| (*place, Answer::Refused(None)));
            answers.extend(rest);
            answers.extend(all_unknown(&tries, &gone()));
            return Err(());
        }
        let won = match self.try_for(tries, answers).await {
            Ok(won) => won,
            Err(()) => {
                answers.extend(all_unknown(&anew, &gone()));
                return Err(());
            }
        };
        self.begin(anew, won, answers).await
    }

    async fn give_back(&mut self, ops: Ops, answers: &mut Answers) -> Result<(), ()> {
        if ops.is_empty() {
            return Ok(());
        }
        let term = |key: i64| self.leases.get(&key).map(|lease| lease.term);
        let locks: Vec<(i64, Option<Term>)> =
            ops.iter().map(|(_, op)| (lease::key(op), term(lease::key(op)))).collect();
        // One round trip: the server takes them in this order.
        let payload = hints::hint_payload(ops.iter().map(|(_, op)| op.election()));
        let (unlocked, ()) = tokio::join!(self.unlock(&locks), self.tell(&payload));
        let unlocked = match unlocked {
            Ok(unlocked) => unlocked,
            Err(trouble) => {
                let lost = matches!(trouble, Trouble::Lost(_));
                answers.extend(all_unknown(&ops, &trouble.into_error()));
                return if lost { Err(()) } else { Ok(()) };
            }
        };
        for (index, (place, op)) in ops.iter().enumerate() {
            let lease = self.leases.remove(&lease::key(op));
            let was_held = unlocked.get(index).copied().unwrap_or(false);
            answers.push((
                *place,
                match lease.filter(|_| was_held) {
                    Some(lease) => Answer::Reply(Reply::Granted(Grant::new(lease.term))),
                    None => Answer::Refused(None),
                },
            ));
        }
        Ok(())
    }

    /// Renews what is held. What `anew` is about is looked at, too, and answered by others.
    async fn hold_on(&mut self, beat: Ops, anew: &Ops, answers: &mut Answers) -> Result<(), ()> {
        if beat.is_empty() && anew.is_empty() {
            return Ok(());
        }
        for (_, op) in beat.iter().chain(anew) {
            if let (Some(lease), Some(ttl)) = (self.leases.get_mut(&lease::key(op)), lease::ttl(op))
            {
                lease.ttl = ttl;
            }
        }
        let ttl = self.leases.values().map(|lease| lease.ttl).max().unwrap_or(self.ttl);
        let keys: Vec<i64> = beat.iter().chain(anew).map(|(_, op)| lease::key(op)).collect();
        let answered = match self.retune(ttl).await {
            Ok(()) => self.beat(&keys).await,
            Err(trouble) => Err(trouble),
        };
        let (held, clock) = match answered {
            Ok(answered) => answered,
            Err(Trouble::Said(error)) => {
                answers.extend(all_unknown(&beat, &error));
                return Ok(());
            }
            // The session is gone, so the locks are.
            Err(Trouble::Lost(error)) => {
                tracing::warn!(%error, "a session with election locks is given up");
                answers.extend(beat.iter().map(|(place, _)| (*place, Answer::Refused(None))));
                return Err(());
            }
        };
        let now = now();
        for (index, key) in keys.iter().enumerate() {
            match self.leases.get_mut(key) {
                Some(lease) if held.contains(&index) => lease.until = now + lease.ttl,
                _ => drop(self.leases.remove(key)),
            }
        }
        for (place, op) in &beat {
            let answer = match self.leases.get_mut(&lease::key(op)) {
                Some(lease) => {
                    lease.seq = lease.seq.max(lease::seq(op));
                    let (term, asked, store_clock) = (lease.term, lease.asked, Some(clock));
                    Answer::Reply(Reply::Granted(Grant { term, asked, expired: None, store_clock }))
                }
                None => Answer::Refused(None),
            };
            answers.push((*place, answer));
        }
        Ok(())
    }

    /// Tries for locks; which were won. Others are answered with who holds them.
    async fn try_for(&mut self, ops: Ops, answers: &mut Answers) -> Result<Ops, ()> {
        let fits = |(_, op): &(usize, Op)| self.tables || lease::metadata(op).is_none();
        let (mut open, unfit): (Ops, Ops) = ops.into_iter().partition(fits);
        answers.extend(all_unknown(&unfit, &no_table()));
        let mut won = Ops::new();
        for attempt in 0..RETRIES {
            if open.is_empty() {
                break;
            }
            if attempt > 0 {
                pause(RETRY_PAUSE).await;
            }
            let keys: Vec<i64> = open.iter().map(|(_, op)| lease::key(op)).collect();
            let seen = match self.try_locks(&keys).await {
                Ok(seen) => seen,
                Err(trouble) => {
                    let lost = matches!(trouble, Trouble::Lost(_));
                    open.extend(std::mem::take(&mut won));
                    answers.extend(all_unknown(&open, &trouble.into_error()));
                    // Locks outlive the statement that failed.
                    let all: Vec<(i64, Option<Term>)> =
                        open.iter().map(|(_, op)| (lease::key(op), None)).collect();
                    let stays = !lost && self.unlock(&all).await.is_ok();
                    return if stays { Ok(won) } else { Err(()) };
                }
            };
            let mut by_place: HashMap<usize, Seen> = HashMap::new();
            for seen in seen {
                let best = by_place.entry(seen.place).or_insert_with(|| seen.clone());
                let term = |seen: &Seen| seen.holder.as_ref().and_then(|held| held.term);
                if term(&seen) > term(best) {
                    *best = seen;
                }
            }
            let last = attempt + 1 == RETRIES;
            let mut again = Ops::new();
            for (index, (place, op)) in open.into_iter().enumerate() {
                match by_place.remove(&index) {
                    Some(seen) if seen.won => won.push((place, op)),
                    Some(seen)
                        if !last && seen.holder.as_ref().is_none_or(|held| held.is_ending()) =>
                    {
                        again.push((place, op));
                    }
                    seen => {
                        // Somebody leads. What may fence that term later has its grace to come.
                        self.fenced.remove(op.election());
                        answers.push((place, Answer::Refused(seen)));
                    }
                }
            }
            open = again;
        }
        Ok(won)
    }

    /// Issues a term for what was won, and for what is held under one that was led (C1).
    async fn begin(&mut self, anew: Ops, won: Ops, answers: &mut Answers) -> Result<(), ()> {
        let mut before = Vec::new();
        let mut ops = won;
        for (place, op) in anew {
            let key = lease::key(&op);
            match self.leases.get(&key) {
                Some(lease) => {
                    before.push((key, lease.term));
                    ops.push((place, op));
                }
                None => answers.push((place, Answer::Refused(None))),
            }
        }
        if ops.is_empty() {
            return Ok(());
        }
        let keys: Vec<i64> = ops.iter().map(|(_, op)| lease::key(op)).collect();
        let (issued, clock) = match self.issue(&ops).await {
            Ok(issued) => issued,
            Err(trouble) => {
                let lost = matches!(trouble, Trouble::Lost(_));
                answers.extend(all_unknown(&ops, &trouble.into_error()));
                let fresh: Vec<(i64, Option<Term>)> = keys
                    .iter()
                    .filter(|key| !self.leases.contains_key(key))
                    .map(|key| (*key, None))
                    .collect();
                let stays = !lost && (fresh.is_empty() || self.unlock(&fresh).await.is_ok());
                return if stays { Ok(()) } else { Err(()) };
            }
        };
        if !before.is_empty() && matches!(self.forget(&before).await, Err(Trouble::Lost(_))) {
            answers.extend(all_unknown(&ops, &gone()));
            return Err(());
        }
        let mut back = Vec::new();
        for ((place, op), issued) in ops.iter().zip(issued) {
            let (key, answer) = (lease::key(op), self.grant(op, issued, clock).await);
            if !matches!(answer, Answer::Reply(Reply::Granted(_))) {
                back.push((key, self.leases.get(&key).map(|lease| lease.term)));
            }
            answers.push((*place, answer));
        }
        if back.is_empty() {
            return Ok(());
        }
        let unlocked = self.unlock(&back).await;
        for (key, _) in &back {
            self.leases.remove(key);
        }
        if unlocked.is_err() { Err(()) } else { Ok(()) }
    }

    /// What the one that is to lead this term is told, or why it can't.
    async fn grant(&mut self, op: &Op, issued: Issued, clock: Duration) -> Answer {
        let (name, ttl) = (op.election(), lease::ttl(op).unwrap_or(self.ttl));
        let term = match issued {
            Issued::Term(term) => term,
            Issued::Led(leader) => return unknown(op, &error::led_by_lease(name, &leader)),
            Issued::Fenced(pids, _) if pids.is_empty() => return unknown(op, &error::busy(None)),
            Issued::Fenced(pids, last) => {
                let fenced = self.fenced.entry(name.clone()).or_insert((last, now()));
                if fenced.0 != last {
                    // Somebody has led since: this one has just ended.
                    *fenced = (last, now());
                }
                let (since, grace) = (fenced.1.elapsed(), self.fence_grace());
                if since >= grace {
                    self.end_fence(name).await;
                }
                return unknown(op, &error::fenced(&pids, since, grace));
            }
        };
        self.fenced.remove(name);
        let (seq, asked, until) = (lease::seq(op), false, now() + ttl);
        let lease = Lease { name: name.clone(), term, seq, ttl, asked, until };
        self.leases.insert(lease::key(op), lease);
        if let Some(least) = lease::least(op).filter(|least| term < *least) {
            return unknown(op, &too_low(term, least));
        }
        let grant = Grant { term, asked, expired: None, store_clock: Some(clock) };
        Answer::Reply(Reply::Granted(grant))
    }
}

pub(super) fn unknown(op: &Op, error: &Error) -> Answer {
    Answer::Reply(Reply::Unknown(error.clone().during(op.verb())))
}

pub(super) fn all_unknown(ops: &Ops, error: &Error) -> Answers {
    ops.iter().map(|(place, op)| (*place, unknown(op, error))).collect()
}

pub(super) fn clash(election: &Name) -> Error {
    let message = format!(
        "the election {election} has the same lock as another one of this process; rename it"
    );
    error::new(ErrorKind::Config, message)
}

fn no_table() -> Error {
    error::new(
        ErrorKind::Unsupported,
        "metadata is kept in a table, and there is none for this role; run `tenure migrate`, then \
         roles.sql, and start again, or leave the metadata out",
    )
}

fn gone() -> Error {
    error::new(ErrorKind::Unavailable, "the session is gone; a new one is made for the next call")
}

/// Terms are numbers of transactions, and nothing here can raise those.
fn too_low(term: Term, least: Term) -> Error {
    error::new(
        ErrorKind::Config,
        format!(
            "the next term is {term}, and at least {least} is asked for; without tables terms are \
             numbers of transactions: stop all candidates and run `tenure migrate`, or raise \
             term_offset in their URLs by {}",
            least.get() - term.get()
        ),
    )
}
