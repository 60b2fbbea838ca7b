//! One candidate of this process: its sessions, and all that is done on them.
//!
//! A task owns them and does one thing after the other, to its end, also if nobody waits for the
//! answer any more. So it always knows what is held: a lock is never tried for twice (A3), and a
//! lost reply is healed (C1).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_core::{CandidateId, Error, Hint, Name, Op, Reply, Term};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::config::AdvisoryConfig;
use super::conn::Conn;
use super::details::Known;
use super::ears::{self, Ears};
use super::lease::{self, Lease, Plan, Releases, plan};
use super::sight::Seen;
use super::work::{Work, all_unknown, clash, unknown};
use crate::error;

/// Ops of one batch, each with its place in it.
pub(super) type Ops = Vec<(usize, Op)>;
/// What they come to.
pub(super) type Answers = Vec<(usize, Answer)>;

/// What a seat is told to do.
pub(super) enum Command {
    Work {
        ops: Ops,
        done: oneshot::Sender<Answers>,
    },
    /// Somebody wants the holder of this election, in the session of this pid, to resign.
    Ask {
        election: Name,
        pid: i32,
        term: Option<Term>,
        nonce: String,
    },
}

/// The answer to an ask: the term that is to be given up, if there is one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked(pub(super) Option<Term>);

/// What an op comes to.
pub(super) enum Answer {
    Reply(Reply),
    /// Not ours; whose it is, if that is known yet.
    Refused(Option<Seen>),
}

/// The task of one candidate.
pub(super) struct Seat {
    config: AdvisoryConfig,
    candidate: CandidateId,
    ears: Arc<Ears>,
    known: Arc<Known>,
    commands: mpsc::UnboundedReceiver<Command>,
    ended: (mpsc::UnboundedSender<u64>, mpsc::UnboundedReceiver<u64>),
    conns: Vec<Conn>,
    opened: u64,
    releases: Releases,
}

impl Seat {
    /// Starts a seat on the current runtime.
    pub(super) fn start(
        config: AdvisoryConfig,
        candidate: CandidateId,
        ears: Arc<Ears>,
        known: Arc<Known>,
    ) -> mpsc::UnboundedSender<Command> {
        let (sender, commands) = mpsc::unbounded_channel();
        let seat = Seat {
            config,
            candidate,
            ears,
            known,
            commands,
            ended: mpsc::unbounded_channel(),
            conns: Vec::new(),
            opened: 0,
            releases: Releases::default(),
        };
        Handle::current().spawn(seat.run());
        sender
    }

    /// Works until the store is gone. Then the sessions end, and their locks with them.
    async fn run(mut self) {
        loop {
            let next = self.conns.iter().flat_map(|conn| conn.leases.values());
            let next = next.map(|lease| lease.until).min();
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(Command::Work { ops, done }) if !done.is_closed() => {
                        let _gone = done.send(self.work(ops).await);
                        for conn in &self.conns {
                            conn.warm_up().await;
                        }
                    }
                    Some(Command::Work { .. }) => {}
                    Some(Command::Ask { election, pid, term, nonce }) => {
                        self.asked(&election, pid, term, &nonce);
                    }
                    None => return,
                },
                Some(id) = self.ended.1.recv() => self.lost(id),
                () = sleep_until(next) => self.end_overdue().await,
            }
        }
    }

    /// The session is gone, and with it all that it held: whoever led learns it at once.
    fn lost(&mut self, id: u64) {
        let Some(index) = self.conns.iter().position(|conn| conn.id == id) else { return };
        let conn = self.conns.swap_remove(index);
        let names: Vec<&Name> = conn.leases.values().map(|lease| &lease.name).collect();
        if !names.is_empty() {
            let candidate = &self.candidate;
            tracing::warn!(%candidate, elections = names.len(), "the session of a leader is gone");
            self.ears.emit_all(names.into_iter());
        }
    }

    /// Frees what was not renewed in time, while other leases keep the session alive.
    async fn end_overdue(&mut self) {
        let now = Instant::now();
        let mut lost = Vec::new();
        for conn in &mut self.conns {
            let over: Vec<(i64, Option<Term>)> = conn
                .leases
                .iter()
                .filter(|(_, lease)| lease.is_over(now))
                .map(|(key, lease)| (*key, Some(lease.term)))
                .collect();
            if over.is_empty() {
                continue;
            }
            let unlocked = conn.unlock(&over).await;
            let ended: Vec<Lease> =
                over.iter().filter_map(|(key, _)| conn.leases.remove(key)).collect();
            match unlocked {
                Ok(_) => conn.tell(&ears::hint_payload(ended.iter().map(|l| &l.name))).await,
                Err(_) => lost.push(conn.id),
            }
        }
        for id in lost {
            self.lost(id);
        }
    }

    fn asked(&mut self, election: &Name, pid: i32, term: Option<Term>, nonce: &str) {
        let Some(conn) = self.conns.iter_mut().find(|conn| conn.pid == pid) else { return };
        let lease = conn.leases.get_mut(&super::key::key(election)).filter(|lease| {
            lease.name == *election
                && term.is_none_or(|term| term == lease.term)
                && !lease.is_over(Instant::now())
        });
        let asked = Asked(lease.map(|lease| {
            lease.asked = true;
            lease.term
        }));
        if asked.0.is_some() {
            self.ears.emit(&Hint::Election(election.clone()));
        }
        self.ears.answer(nonce, asked);
    }

    async fn work(&mut self, ops: Ops) -> Answers {
        self.end_overdue().await;
        let now = Instant::now();
        let (mut answers, mut works) = (Answers::new(), HashMap::<u64, Work>::new());
        let mut tries: Vec<(Duration, Ops)> = Vec::new();
        let mut wanted = std::collections::HashSet::new();
        for (place, op) in ops {
            let overtaken = self.releases.overtook(&op);
            if let Op::Release { election, seq, .. } = &op {
                self.releases.note(election, *seq, now);
            }
            let key = lease::key(&op);
            let conn = self.conns.iter().find(|conn| conn.leases.contains_key(&key));
            let held = conn.and_then(|conn| conn.leases.get(&key));
            let mut plan = plan(&op, held, overtaken, now);
            if plan == Plan::Try && !wanted.insert(key) {
                plan = Plan::Clash;
            }
            let work = conn.map(|conn| works.entry(conn.id).or_default());
            match (plan, work) {
                (Plan::Beat, Some(work)) => work.beat.push((place, op)),
                (Plan::Anew, Some(work)) => work.anew.push((place, op)),
                (Plan::Unlock, Some(work)) => work.unlock.push((place, op)),
                (Plan::Try, _) => {
                    let ttl = lease::ttl(&op).unwrap_or_default();
                    match tries.iter_mut().find(|(other, _)| *other == ttl) {
                        Some((_, ops)) => ops.push((place, op)),
                        None => tries.push((ttl, vec![(place, op)])),
                    }
                }
                (Plan::Clash, _) => answers.push((place, unknown(&op, &clash(op.election())))),
                _ => answers.push((place, Answer::Refused(None))),
            }
        }
        for (ttl, ops) in tries {
            match self.session_for(ttl).await {
                Ok(id) => works.entry(id).or_default().tries.extend(ops),
                Err(error) => answers.extend(all_unknown(&ops, &error)),
            }
        }
        for (id, work) in works {
            let Some(conn) = self.conns.iter_mut().find(|conn| conn.id == id) else {
                let ops = [work.beat, work.anew, work.unlock, work.tries].concat();
                answers.extend(ops.into_iter().map(|(place, _)| (place, Answer::Refused(None))));
                continue;
            };
            if conn.carry_out(work, &mut answers).await.is_err() {
                self.lost(id);
            } else if !conn.leases.is_empty() {
                // Whoever leads must hear what it is asked.
                self.ears.start();
            }
        }
        answers
    }

    /// A session for leases of this ttl: one that has it, one that holds nothing, or a new one.
    async fn session_for(&mut self, ttl: Duration) -> Result<u64, Error> {
        if let Some(conn) = self.conns.iter().find(|conn| conn.ttl == ttl) {
            return Ok(conn.id);
        }
        if let Some(conn) = self.conns.iter_mut().find(|conn| conn.leases.is_empty()) {
            let id = conn.id;
            match conn.retune(ttl).await {
                Ok(()) => return Ok(id),
                Err(_) => self.lost(id),
            }
        }
        self.opened += 1;
        let direct = self.known.direct.load(Ordering::Relaxed);
        let (config, ended) = (&self.config, self.ended.0.clone());
        let opening = Conn::open(config, &self.candidate, ttl, direct, self.opened, ended);
        let limit = config.base.connect_timeout + config.base.call_timeout;
        let conn = timeout(limit, opening)
            .await
            .map_err(|_| error::timed_out(&config.base, "connecting to", limit))??;
        self.known.direct.store(true, Ordering::Relaxed);
        self.known.note_table(conn.tables);
        let id = conn.id;
        self.conns.push(conn);
        Ok(id)
    }
}

async fn sleep_until(instant: Option<Instant>) {
    match instant {
        Some(instant) => drop(timeout_at(instant, std::future::pending::<()>()).await),
        None => std::future::pending().await,
    }
}
