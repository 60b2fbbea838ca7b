//! A few well-behaved candidates, a store, and a bad network in between.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tenure_core::{CandidateId, Name, Op, Reply, Store, StoreExt, Term, Time};

use super::arena::{Arena, Stop, Verdict, ensure};
use super::{CaseReport, Report, Subject, ending};
use crate::history::{Event, History, Kind, Request};
use crate::{FaultStore, Faults};

/// Beyond the numbers of the cases; each seed has its own.
const DATA_FIRST: u32 = 1_000;
const STEPS: usize = 600;
const CLIENTS: usize = 4;
const ELECTIONS: usize = 2;

/// Lets candidates campaign, renew, resign and vanish while their requests are lost, repeated
/// and held up, and holds the recorded history against the invariants.
///
/// The same seed makes the same choices; on a store with a driven clock the whole run repeats
/// itself. A failure names the faults, the first violations, and what the wrapper did.
///
/// # Cancel safety
/// As [`run`](super::run).
///
/// # Examples
/// ```no_run
/// # async fn test(subject: &dyn tenure_testkit::conformance::Subject) {
/// for seed in 0..10 {
///     tenure_testkit::conformance::run_under_faults(subject, seed).await.assert_passed();
/// }
/// # }
/// ```
pub async fn run_under_faults(subject: &dyn Subject, seed: u64) -> Report {
    let mut report = Report::new();
    let case = format!("the invariants hold under the faults of seed {seed}");
    let ending = match subject.exempt("faults", &case) {
        Some(why) => super::Ending::Skipped(why),
        None => ending(run(subject, Faults::mixed(seed))).await,
    };
    report.add(CaseReport { topic: "faults", case, ending });
    report
}

async fn run(subject: &dyn Subject, faults: Faults) -> Verdict {
    let data = DATA_FIRST + (faults.seed % 1_000_000) as u32;
    let arena = Arena::new(subject, data, "faults").await?;
    let mut stores = Vec::new();
    for handle in 0..2 {
        let faults = Faults { seed: faults.seed.wrapping_add(handle << 40), ..faults };
        stores.push(Arc::new(FaultStore::new(arena.another_handle().await?, faults)));
    }
    let mut rng = Rng::with_seed(faults.seed);
    let mut clients = Vec::new();
    for number in 0..ELECTIONS * CLIENTS {
        let election = arena.other_election(format!("faults {}", number % ELECTIONS))?;
        let store = stores[number % stores.len()].clone();
        clients.push(Client::new(&arena, number, election, store)?);
    }
    let mut history = History::new();
    for _ in 0..STEPS {
        let client = rng.usize(..clients.len());
        clients[client].step(subject, &mut rng, &mut history).await;
        if rng.u8(..8) == 0 {
            subject.wait(arena.short_ttl().mul_f64(rng.f64() / 3.0)).await;
        }
    }
    for client in &mut clients {
        client.stop(subject.now(), &mut history);
    }
    let counts = stores.iter().map(|store| store.counts().to_string()).collect::<Vec<_>>();
    let context = format!("faults {faults}; {}", counts.join("; "));
    for store in &stores {
        store.calm();
        store.deliver_late().await;
    }
    judge(&history, &context)?;
    works_on(&arena, &clients).await
}

fn judge(history: &History, context: &str) -> Verdict {
    let leads =
        history.events().iter().filter(|event| matches!(event.kind, Kind::Lead { .. })).count();
    ensure!(leads >= ELECTIONS, "only {leads} reigns in {STEPS} steps, nothing shown; {context}");
    let Err(violations) = history.check() else { return Ok(()) };
    let first: Vec<String> = violations.iter().take(5).map(ToString::to_string).collect();
    Err(Stop::Failed(format!(
        "{} violations in {leads} reigns: {}; {context}",
        violations.len(),
        first.join("; ")
    )))
}

/// When the network is well again and all leases have run out, everybody is served.
async fn works_on(arena: &Arena<'_>, clients: &[Client]) -> Verdict {
    for client in clients {
        arena.expire(arena.short_ttl()).await;
        let reply = client.store.apply_one(&client.acquire(client.seq + 1)).await;
        let Reply::Granted(grant) = reply else {
            let who = &client.candidate;
            return Err(Stop::Failed(format!("after the faults {who} was answered {reply:?}")));
        };
        ensure!(client.last.is_none_or(|last| grant.term > last), "I2: {grant:?} after the faults");
    }
    Ok(())
}

/// A candidate that does what it should: trusts a lease from the instant its request was sent,
/// for the ttl less the margin, and never leads a term twice.
struct Client {
    store: Arc<FaultStore<dyn Store>>,
    election: Name,
    candidate: CandidateId,
    ttl: Duration,
    margin: Duration,
    seq: u64,
    /// The last term it led.
    last: Option<Term>,
    /// The term it leads, and the end of its trust.
    reign: Option<(Term, Time)>,
}

impl Client {
    fn new(
        arena: &Arena<'_>,
        number: usize,
        election: Name,
        store: Arc<FaultStore<dyn Store>>,
    ) -> Result<Client, Stop> {
        let ttl = arena.short_ttl();
        let candidate = arena.player(&format!("c{number}"))?.candidate;
        let margin = ttl / 20;
        Ok(Client { store, election, candidate, ttl, margin, seq: 0, last: None, reign: None })
    }

    async fn step(&mut self, subject: &dyn Subject, rng: &mut Rng, history: &mut History) {
        let now = subject.now();
        match self.reign {
            Some((term, until)) if now >= until => {
                self.step_down(now, term, "its lease ran out", false, history);
            }
            Some((term, _)) => match rng.u8(..20) {
                0 => self.step_down(now, term, "it gave up", false, history),
                1..4 => {
                    self.step_down(now, term, "it resigned", true, history);
                    self.release(subject, Some(term), history).await;
                }
                _ => self.renew(subject, term, history).await,
            },
            None => self.campaign(subject, rng, history).await,
        }
    }

    fn stop(&mut self, now: Time, history: &mut History) {
        if let Some((term, _)) = self.reign {
            self.step_down(now, term, "the run is over", false, history);
        }
    }

    async fn campaign(&mut self, subject: &dyn Subject, rng: &mut Rng, history: &mut History) {
        self.seq += 1;
        let sent_at = subject.now();
        let reply = self.store.apply_one(&self.acquire(self.seq)).await;
        let now = subject.now();
        match reply {
            Reply::Granted(grant) => {
                self.granted(now, Request::Acquire, grant.term, sent_at, history);
                let until = self.trust_end(sent_at);
                if now < until {
                    self.last = Some(grant.term);
                    self.reign = Some((grant.term, until));
                    self.record(now, Kind::Lead { term: grant.term, until }, history);
                }
            }
            // A lost reply at shutdown: it gives up whatever it may hold (C2).
            Reply::Unknown(_) if rng.u8(..3) == 0 => self.release(subject, None, history).await,
            _ => {}
        }
    }

    async fn renew(&mut self, subject: &dyn Subject, term: Term, history: &mut History) {
        let sent_at = subject.now();
        let renew = Op::Renew {
            election: self.election.clone(),
            candidate: self.candidate.clone(),
            term,
            ttl: self.ttl,
        };
        let reply = self.store.apply_one(&renew).await;
        let now = subject.now();
        let in_time = self.reign.is_some_and(|(_, until)| now < until);
        match reply {
            Reply::Granted(grant) => {
                self.granted(now, Request::Renew, grant.term, sent_at, history);
                if in_time {
                    let until = self.trust_end(sent_at);
                    self.reign = Some((term, until));
                    self.record(now, Kind::Extend { until }, history);
                }
            }
            Reply::Unknown(_) => {
                let (ttl, margin) = (self.ttl, self.margin);
                self.record(now, Kind::Unknown { sent_at, ttl, margin }, history);
            }
            _ => self.step_down(now, term, "its renewal was refused", false, history),
        }
    }

    async fn release(&mut self, subject: &dyn Subject, term: Option<Term>, history: &mut History) {
        let sent_at = subject.now();
        self.record(sent_at, Kind::Released { term }, history);
        let release = Op::Release {
            election: self.election.clone(),
            candidate: self.candidate.clone(),
            term,
            seq: self.seq,
        };
        if let Reply::Granted(grant) = self.store.apply_one(&release).await {
            let kind = Kind::ReleaseGranted { term: grant.term, sent_at };
            self.record(subject.now(), kind, history);
        }
    }

    fn acquire(&self, seq: u64) -> Op {
        Op::Acquire {
            election: self.election.clone(),
            candidate: self.candidate.clone(),
            seq,
            above: self.last,
            floor: None,
            ttl: self.ttl,
            metadata: None,
        }
    }

    fn trust_end(&self, sent_at: Time) -> Time {
        sent_at + self.ttl - self.margin
    }

    fn step_down(
        &mut self,
        now: Time,
        term: Term,
        reason: &str,
        resigning: bool,
        history: &mut History,
    ) {
        // It has no work to wind up. One that has must not release a later term before the trust
        // in this one is over.
        let until = self.reign.map_or(now, |(_, until)| until.min(now));
        let reason = reason.to_owned();
        self.record(now, Kind::StepDown { reason, until, resigning }, history);
        self.last = Some(term);
        self.reign = None;
    }

    fn granted(
        &self,
        at: Time,
        request: Request,
        term: Term,
        sent_at: Time,
        history: &mut History,
    ) {
        let (ttl, margin) = (self.ttl, self.margin);
        self.record(at, Kind::Granted { request, term, sent_at, ttl, margin }, history);
    }

    fn record(&self, at: Time, kind: Kind, history: &mut History) {
        history.record(Event::new(at, &self.election, self.candidate.as_str(), kind));
    }
}
