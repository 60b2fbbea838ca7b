//! The checker: stands outside the machines and believes only what it sees.
//!
//! It is told every input and every action, with the true time and the local one, and holds them
//! against I1 to I7 at each step.

use std::collections::BTreeSet;
use std::fmt;

use tenure_core::{Action, Input, Op, Outcome, Reason, Term, Time, Timing};

use crate::clock::SkewedClock;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When, in true nanoseconds.
    pub at: u64,
    /// Which promise: `I1` to `I7`, `C1`, `C2`, `lease`, `drain`, `calls`, `observer`, `closed`,
    /// `live`.
    pub rule: &'static str,
    /// What happened.
    pub sentence: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at_us = self.at / 1_000;
        let (seconds, micros) = (at_us / 1_000_000, at_us % 1_000_000);
        write!(f, "{} at {seconds}.{micros:06}s: {}", self.rule, self.sentence)
    }
}

/// What is known of one candidate in one election.
#[derive(Clone, Debug, Default)]
struct Watched {
    /// Told to lead and not yet to stop.
    reign: Option<Term>,
    /// The last step-down was a resignation: renewals may still give the work more time.
    resigning: bool,
    /// Trusts itself in this term while its own clock shows less than this.
    trust: Option<(Term, Time)>,
    step_down_at: Time,
    /// Work of this term may run.
    work: Option<Term>,
    /// The highest term led by this incarnation.
    led: Option<Term>,
    /// The latest grant: its term, and until when it pays for trust at most (I3).
    earned: Option<(Term, Time)>,
    in_flight: bool,
    /// Told to observe, and not to campaign since.
    observes: bool,
}

/// Watches all candidates in all elections.
#[derive(Clone, Debug)]
pub struct Checker {
    clocks: Vec<SkewedClock>,
    timings: Vec<Timing>,
    /// By election, then by candidate.
    watched: Vec<Vec<Watched>>,
    /// The terms led in each election, by anybody.
    led: Vec<BTreeSet<Term>>,
    promised: Promised,
    /// From here on nobody is forced to step down.
    calm_from: u64,
    /// What was seen, to show that something happened at all.
    pub seen: Seen,
}

/// What a run can be held to.
#[derive(Clone, Copy, Debug)]
pub struct Promised {
    /// I1 holds: the store's clock steps by less than a margin, or is covered by W2, and no
    /// candidate's clock stands still (C4).
    pub one_leader: bool,
    /// Every lease lasts as long as it should, so that no leader is ever deposed.
    pub whole_leases: bool,
    /// Candidates step down at the first unknown renewal, and only then.
    pub fail_closed: bool,
}

/// How often things happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Reigns.
    pub leads: u64,
    /// Reigns that followed one of another candidate.
    pub handovers: u64,
    /// Reigns whose grant came after an unknown acquire.
    pub healed: u64,
    /// Step-downs for want of a renewal.
    pub not_renewed: u64,
    /// Step-downs by the store's word.
    pub deposed: u64,
    /// Step-downs because somebody asked.
    pub asked: u64,
    /// Work that had to be ended by force.
    pub aborts: u64,
    /// Overlaps where I1 is not promised.
    pub overlaps: u64,
    /// Clocks of candidates that stood still for a while.
    pub stopped_clocks: u64,
    /// Calls of a machine.
    pub calls: u64,
}

impl Seen {
    /// Adds another run's.
    pub fn add(&mut self, other: &Seen) {
        self.leads += other.leads;
        self.handovers += other.handovers;
        self.healed += other.healed;
        self.not_renewed += other.not_renewed;
        self.deposed += other.deposed;
        self.asked += other.asked;
        self.aborts += other.aborts;
        self.overlaps += other.overlaps;
        self.stopped_clocks += other.stopped_clocks;
        self.calls += other.calls;
    }
}

/// One call of a machine, as the checker sees it.
#[derive(Debug)]
pub struct Call<'a> {
    /// True time.
    pub at: u64,
    /// Whose machine.
    pub node: usize,
    /// In which election.
    pub election: usize,
    /// What it was told. A reply that arrives carries what the store really said.
    pub input: &'a Input,
    /// What it answered.
    pub actions: &'a [Action],
    /// The request that was under way, if the input is its reply.
    pub answers: Option<&'a Op>,
}

impl Checker {
    /// Watches these candidates.
    pub fn new(
        clocks: Vec<SkewedClock>,
        timings: Vec<Timing>,
        elections: usize,
        promised: Promised,
    ) -> Checker {
        let watched = vec![vec![Watched::default(); clocks.len()]; elections];
        let led = vec![BTreeSet::new(); elections];
        let (calm_from, seen) = (u64::MAX, Seen::default());
        Checker { clocks, timings, watched, led, promised, calm_from, seen }
    }

    /// From `at` on a forced step-down is a failure.
    pub fn calm_from(&mut self, at: u64) {
        self.calm_from = at;
    }

    /// Who trusts itself in an election at a true time.
    pub fn trusting(&self, election: usize, at: u64) -> impl Iterator<Item = (usize, Term)> + '_ {
        let watched = self.watched[election].iter().zip(&self.clocks).enumerate();
        watched.filter_map(move |(node, (candidate, clock))| match candidate.trust {
            Some((term, until)) if clock.at(at) < until => Some((node, term)),
            _ => None,
        })
    }

    /// The process died, and everything it knew with candidate.
    pub fn crashed(&mut self, node: usize) {
        for watched in &mut self.watched {
            watched[node] = Watched::default();
        }
    }

    /// Holds one call against the promises.
    ///
    /// # Errors
    /// The first promise that is broken.
    pub fn call(&mut self, call: &Call<'_>) -> Result<(), Violation> {
        self.seen.calls += 1;
        self.input(call)?;
        let mut naps = 0;
        for action in call.actions {
            naps += u32::from(matches!(action, Action::Wake { .. } | Action::Sleep));
            self.action(call, action)?;
        }
        let candidate = &self.watched[call.election][call.node];
        let now = self.clocks[call.node].at(call.at);
        let unknown = matches!(call.input, Input::Reply { outcome: Outcome::Unknown, .. });
        let renewed = matches!(call.answers, Some(Op::Renew { .. }));
        if self.promised.fail_closed && unknown && renewed && candidate.reign.is_some() {
            return call.fail("closed", "leads on after an unknown renewal".into());
        }
        if naps != 1 {
            return call.fail("calls", format!("{naps} wakes or sleeps instead of one"));
        }
        if candidate.reign.is_some() && now >= candidate.step_down_at {
            return call
                .fail("I3", format!("still leads, though {:?} was due", candidate.step_down_at));
        }
        Ok(())
    }

    fn input(&mut self, call: &Call<'_>) -> Result<(), Violation> {
        let timing = self.timings[call.node];
        let candidate = &mut self.watched[call.election][call.node];
        match call.input {
            Input::Reply { sent_at, outcome } => {
                candidate.in_flight = false;
                if let (Outcome::Granted(grant), Some(Op::Acquire { .. } | Op::Renew { .. })) =
                    (outcome, call.answers)
                {
                    let until = timing.trust_ends_at(*sent_at);
                    let best = candidate.earned.filter(|(term, _)| *term == grant.term);
                    let until = best.map_or(until, |(_, earlier)| until.max(earlier));
                    candidate.earned = Some((grant.term, until));
                }
                let unknown = *outcome == Outcome::Unknown;
                if unknown && call.actions.iter().any(|a| matches!(a, Action::Extend { .. })) {
                    return call.fail("I7", "an unknown outcome extended trust".into());
                }
            }
            Input::Campaign | Input::Observe | Input::Withdraw => {
                candidate.observes = *call.input == Input::Observe;
            }
            Input::Drained if candidate.reign.is_none() => {
                candidate.work = None;
                candidate.trust = None;
            }
            _ => {}
        }
        Ok(())
    }

    fn action(&mut self, call: &Call<'_>, action: &Action) -> Result<(), Violation> {
        let now = self.clocks[call.node].at(call.at);
        match action {
            Action::Send(op) => self.sends(call, op),
            Action::Lead { term, step_down_at, until } => {
                self.leads(call, *term)?;
                self.trusts(call, *term, *step_down_at, *until)
            }
            Action::Extend { term, step_down_at, until } => {
                let candidate = &self.watched[call.election][call.node];
                let known = candidate.trust.is_some_and(|(t, until)| t == *term && now < until);
                if !known || (candidate.reign.is_none() && !candidate.resigning) {
                    return call.fail("I3", format!("trust in term {term} was revived"));
                }
                self.trusts(call, *term, *step_down_at, *until)
            }
            Action::StepDown { term, reason, until } => {
                self.steps_down(call, *term, *reason, *until)
            }
            Action::Abort { .. } => {
                self.seen.aborts += 1;
                self.watched[call.election][call.node].trust = None;
                Ok(())
            }
            Action::Wake { from, to, .. } if to < from || *to < now => {
                call.fail("calls", format!("a wake in the past, {to:?} at {now:?}"))
            }
            _ => Ok(()),
        }
    }

    fn sends(&mut self, call: &Call<'_>, op: &Op) -> Result<(), Violation> {
        let candidate = &mut self.watched[call.election][call.node];
        if std::mem::replace(&mut candidate.in_flight, true) {
            return call.fail("calls", "two requests under way".into());
        }
        match op {
            Op::Acquire { .. } if candidate.observes => {
                call.fail("observer", "asks for a lease, though it only observes".into())
            }
            Op::Acquire { .. } | Op::Release { .. } if candidate.work.is_some() => {
                let verb = op.verb();
                call.fail(
                    "drain",
                    format!("sent {verb} while the work of {:?} ran", candidate.work),
                )
            }
            Op::Renew { term, .. }
                if candidate.earned.is_none_or(|(earned, _)| earned != *term) =>
            {
                call.fail("I4", format!("renews term {term}, which it was not granted"))
            }
            _ => Ok(()),
        }
    }

    fn leads(&mut self, call: &Call<'_>, term: Term) -> Result<(), Violation> {
        let candidate = &mut self.watched[call.election][call.node];
        if let Some(reign) = candidate.reign {
            return call.fail("I6", format!("leads {term} without a step-down from {reign}"));
        }
        if let Some(work) = candidate.work {
            return call.fail("drain", format!("leads {term} while the work of {work} runs"));
        }
        if candidate.led >= Some(term) {
            return call.fail("C1", format!("leads {term} after {:?}", candidate.led));
        }
        let led = &mut self.led[call.election];
        let highest = led.last().copied();
        // Where two may trust themselves, the older one may even be told the later.
        if !led.insert(term) || (self.promised.one_leader && highest > Some(term)) {
            return call.fail("I2", format!("leads {term} after {highest:?} was led"));
        }
        if highest.is_some() && candidate.led < highest {
            self.seen.handovers += 1;
        }
        (candidate.reign, candidate.work, candidate.led) = (Some(term), Some(term), Some(term));
        candidate.resigning = false;
        self.seen.leads += 1;
        Ok(())
    }

    fn trusts(
        &mut self,
        call: &Call<'_>,
        term: Term,
        step_down_at: Time,
        until: Time,
    ) -> Result<(), Violation> {
        let candidate = &mut self.watched[call.election][call.node];
        let earned =
            candidate.earned.is_some_and(|(granted, most)| granted == term && until <= most);
        if !earned {
            let earned = candidate.earned;
            return call.fail("I3", format!("trusts {term} until {until:?}, earned: {earned:?}"));
        }
        candidate.trust = Some((term, until));
        candidate.step_down_at = step_down_at;
        let others: Vec<(usize, Term)> =
            self.trusting(call.election, call.at).filter(|(node, _)| *node != call.node).collect();
        if others.is_empty() {
            return Ok(());
        }
        self.seen.overlaps += 1;
        if !self.promised.one_leader {
            return Ok(());
        }
        call.fail("I1", format!("trusts itself in {term} while others do: {others:?}"))
    }

    fn steps_down(
        &mut self,
        call: &Call<'_>,
        term: Term,
        reason: Reason,
        until: Time,
    ) -> Result<(), Violation> {
        let candidate = &mut self.watched[call.election][call.node];
        if candidate.reign.take() != Some(term) {
            return call.fail("I6", format!("steps down from {term}, which it does not lead"));
        }
        if let Some((trusted, before)) = candidate.trust {
            if until > before {
                return call.fail("I3", format!("the step-down lengthens trust to {until:?}"));
            }
            candidate.trust = Some((trusted, until));
        }
        candidate.resigning = matches!(reason, Reason::Resigned | Reason::Asked);
        match reason {
            Reason::NotRenewed => self.seen.not_renewed += 1,
            Reason::Deposed => self.seen.deposed += 1,
            Reason::Asked => self.seen.asked += 1,
            _ => {}
        }
        let unknown = matches!(call.input, Input::Reply { outcome: Outcome::Unknown, .. });
        if unknown && reason == Reason::Deposed {
            return call.fail("I7", "an unknown outcome deposed".into());
        }
        if reason == Reason::Deposed && self.promised.whole_leases {
            return call.fail("lease", format!("{term} was taken from its leader"));
        }
        if reason == Reason::RenewalFailed && !self.promised.fail_closed {
            return call.fail("I7", "an unknown outcome ended a reign".into());
        }
        let forced = !matches!(reason, Reason::Resigned | Reason::Asked);
        if forced && call.at >= self.calm_from {
            return call.fail("live", format!("{term} ended in calm weather: {reason:?}"));
        }
        Ok(())
    }
}

impl Call<'_> {
    fn fail<T>(&self, rule: &'static str, what: String) -> Result<T, Violation> {
        let sentence = format!("c{} in e{}: {what}", self.node, self.election);
        Err(Violation { at: self.at, rule, sentence })
    }
}
