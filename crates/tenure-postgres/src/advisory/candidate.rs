//! One candidate of this process: its sessions, and all that is done on them.
//!
//! A task owns them and does one thing after the other, to its end, also if nobody waits for the
//! answer any more. So it always knows what is held: a lock is never tried for twice (A3), and a
//! lost reply is healed (C1).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_core::{CandidateId, Error, Name, Op, Reply, Term};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::config::AdvisoryConfig;
use super::details::Known;
use super::hints::{self, Notifier};
use super::lease::{self, Lease, Plan, Releases, plan};
use super::lock_session::LockSession;
use super::sight::Seen;
use super::work::{Work, all_unknown, clash, unknown};
use crate::clock::{now, pause_until};
use crate::error;

/// Ops of one batch, each with its place in it.
pub(super) type Ops = Vec<(usize, Op)>;
/// What they come to.
pub(super) type Answers = Vec<(usize, Answer)>;

/// What a task is told to do.
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
pub(super) struct CandidateTask {
    config: AdvisoryConfig,
    candidate: CandidateId,
    notifier: Arc<Notifier>,
    known: Arc<Known>,
    commands: mpsc::UnboundedReceiver<Command>,
    ended: (mpsc::UnboundedSender<u64>, mpsc::UnboundedReceiver<u64>),
    sessions: Vec<LockSession>,
    opened: u64,
    releases: Releases,
}

impl CandidateTask {
    /// Starts a task on the current runtime.
    pub(super) fn start(
        config: AdvisoryConfig,
        candidate: CandidateId,
        notifier: Arc<Notifier>,
        known: Arc<Known>,
    ) -> mpsc::UnboundedSender<Command> {
        let (sender, commands) = mpsc::unbounded_channel();
        let task = CandidateTask {
            config,
            candidate,
            notifier,
            known,
            commands,
            ended: mpsc::unbounded_channel(),
            sessions: Vec::new(),
            opened: 0,
            releases: Releases::default(),
        };
        Handle::current().spawn(task.run());
        sender
    }

    /// Works until the store is gone. Then the sessions end, and their locks with them.
    async fn run(mut self) {
        loop {
            let next = self.sessions.iter().flat_map(|session| session.leases.values());
            let next = next.map(|lease| lease.until).min();
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(Command::Work { ops, done }) if !done.is_closed() => {
                        let _gone = done.send(self.work(ops).await);
                        for session in &self.sessions {
                            session.warm_up().await;
                        }
                    }
                    Some(Command::Work { .. }) => {}
                    Some(Command::Ask { election, pid, term, nonce }) => {
                        self.asked(&election, pid, term, &nonce);
                    }
                    None => return,
                },
                Some(id) = self.ended.1.recv() => self.lost(id),
                () = pause_until(next) => self.end_overdue().await,
            }
        }
    }

    /// The session is gone, and with it all that it held: those who led learn it at once.
    fn lost(&mut self, id: u64) {
        let Some(index) = self.sessions.iter().position(|session| session.id == id) else { return };
        let session = self.sessions.swap_remove(index);
        let names: Vec<&Name> = session.leases.values().map(|lease| &lease.name).collect();
        if !names.is_empty() {
            let candidate = &self.candidate;
            tracing::warn!(%candidate, elections = names.len(), "the session of a leader is gone");
            self.notifier.hint_at(names.into_iter());
        }
    }

    /// Frees what was not renewed in time, while other leases keep the session alive.
    async fn end_overdue(&mut self) {
        let now = now();
        let mut lost = Vec::new();
        for session in &mut self.sessions {
            let over: Vec<(i64, Option<Term>)> = session
                .leases
                .iter()
                .filter(|(_, lease)| lease.is_over(now))
                .map(|(key, lease)| (*key, Some(lease.term)))
                .collect();
            if over.is_empty() {
                continue;
            }
            let unlocked = session.unlock(&over).await;
            let ended: Vec<Lease> =
                over.iter().filter_map(|(key, _)| session.leases.remove(key)).collect();
            match unlocked {
                Ok(_) => session.tell(&hints::hint_payload(ended.iter().map(|l| &l.name))).await,
                Err(_) => lost.push(session.id),
            }
        }
        for id in lost {
            self.lost(id);
        }
    }

    fn asked(&mut self, election: &Name, pid: i32, term: Option<Term>, nonce: &str) {
        let Some(session) = self.sessions.iter_mut().find(|session| session.pid == pid) else {
            return;
        };
        let lease = session.leases.get_mut(&super::key::key(election)).filter(|lease| {
            lease.name == *election
                && term.is_none_or(|term| term == lease.term)
                && !lease.is_over(now())
        });
        let asked = Asked(lease.map(|lease| {
            lease.asked = true;
            lease.term
        }));
        if asked.0.is_some() {
            self.notifier.hint_at(std::iter::once(election));
        }
        self.notifier.answer(nonce, asked);
    }

    async fn work(&mut self, ops: Ops) -> Answers {
        self.end_overdue().await;
        let now = now();
        let (mut answers, mut works) = (Answers::new(), HashMap::<u64, Work>::new());
        let mut tries: Vec<(Duration, Ops)> = Vec::new();
        let mut wanted = std::collections::HashSet::new();
        for (place, op) in ops {
            let overtaken = self.releases.overtook(&op);
            if let Op::Release { election, seq, .. } = &op {
                self.releases.note(election, *seq, now);
            }
            let key = lease::key(&op);
            let session = self.sessions.iter().find(|session| session.leases.contains_key(&key));
            let held = session.and_then(|session| session.leases.get(&key));
            let mut plan = plan(&op, held, overtaken, now);
            if plan == Plan::Try && !wanted.insert(key) {
                plan = Plan::Clash;
            }
            let work = session.map(|session| works.entry(session.id).or_default());
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
            let Some(session) = self.sessions.iter_mut().find(|session| session.id == id) else {
                let ops = [work.beat, work.anew, work.unlock, work.tries].concat();
                answers.extend(ops.into_iter().map(|(place, _)| (place, Answer::Refused(None))));
                continue;
            };
            if session.carry_out(work, &mut answers).await.is_err() {
                self.lost(id);
            } else if !session.leases.is_empty() {
                // A leader must hear what it is asked.
                self.notifier.start();
            }
        }
        answers
    }

    /// A session for leases of this ttl: one that has it, one that holds nothing, or a new one.
    async fn session_for(&mut self, ttl: Duration) -> Result<u64, Error> {
        if let Some(session) = self.sessions.iter().find(|session| session.ttl == ttl) {
            return Ok(session.id);
        }
        if let Some(session) = self.sessions.iter_mut().find(|session| session.leases.is_empty()) {
            let id = session.id;
            match session.retune(ttl).await {
                Ok(()) => return Ok(id),
                Err(_) => self.lost(id),
            }
        }
        self.opened += 1;
        let direct = self.known.direct.load(Ordering::Relaxed);
        let (config, ended) = (&self.config, self.ended.0.clone());
        let opening = LockSession::open(config, &self.candidate, ttl, direct, self.opened, ended);
        let limit = config.base.connect_timeout + config.base.call_timeout;
        let session = timeout(limit, opening)
            .await
            .map_err(|_| error::timed_out(&config.base, "connecting to", limit))??;
        self.known.direct.store(true, Ordering::Relaxed);
        self.known.note_table(session.tables);
        let id = session.id;
        self.sessions.push(session);
        Ok(id)
    }
}
