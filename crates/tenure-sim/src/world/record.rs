//! What goes into the history, for a checker that gives a second opinion.
//!
//! Its axis of time is the true one, so only runs whose clocks keep true time have a history.

use tenure_core::{Action, Op, Outcome, Reason, Time};
use tenure_history::{Event, Kind, Request};

use super::{Sent, World};
use crate::check::Violation;

impl World {
    /// Whatever the checker of histories makes of the history, if there is one.
    pub(super) fn second_opinion(&mut self) -> Result<(), Violation> {
        let Some(history) = self.history.take() else { return Ok(()) };
        history.check().map_err(|violations| {
            let sentence = format!("the checker of histories: {}", violations[0]);
            Violation { at: self.now, rule: violations[0].invariant, sentence }
        })
    }

    pub(super) fn record_action(&mut self, node: usize, election: usize, action: &Action) {
        if self.history.is_none() {
            return;
        }
        let kind = match action {
            Action::Lead { term, until, .. } => {
                Kind::Lead { term: *term, until: self.true_time(node, *until) }
            }
            Action::Extend { until, .. } => Kind::Extend { until: self.true_time(node, *until) },
            Action::StepDown { reason, until, .. } => Kind::StepDown {
                reason: reason.as_str().into(),
                until: self.true_time(node, *until),
                resigning: matches!(reason, Reason::Resigned | Reason::Asked),
            },
            _ => return,
        };
        self.record(node, election, kind);
    }

    pub(super) fn record_sent(&mut self, node: usize, ops: &[Sent]) {
        for sent in ops {
            if let Op::Release { term, .. } = &sent.op {
                self.record(node, sent.election, Kind::Released { term: *term });
            }
        }
    }

    pub(super) fn record_killed(&mut self, node: usize) {
        for election in 0..self.plan.elections {
            self.record(node, election, Kind::Killed);
        }
    }

    pub(super) fn record_reply(
        &mut self,
        node: usize,
        election: usize,
        answers: Option<&Op>,
        sent_at: Time,
        outcome: &Outcome,
    ) {
        if self.history.is_none() {
            return;
        }
        let (ttl, margin) = (self.plan.timings[node].ttl, self.plan.timings[node].margin);
        let sent_at = self.true_time(node, sent_at);
        let kind = match (answers, outcome) {
            (Some(Op::Acquire { .. }), Outcome::Granted(grant)) => {
                let (request, term) = (Request::Acquire, grant.term);
                Kind::Granted { request, term, sent_at, ttl, margin }
            }
            (Some(Op::Renew { .. }), Outcome::Granted(grant)) => {
                let (request, term) = (Request::Renew, grant.term);
                Kind::Granted { request, term, sent_at, ttl, margin }
            }
            (Some(Op::Release { .. }), Outcome::Granted(grant)) => {
                Kind::ReleaseGranted { term: grant.term, sent_at }
            }
            (Some(Op::Acquire { .. } | Op::Renew { .. }), Outcome::Unknown) => {
                Kind::Unknown { sent_at, ttl, margin }
            }
            _ => return,
        };
        self.record(node, election, kind);
    }

    fn record(&mut self, node: usize, election: usize, kind: Kind) {
        let (life, at) = (self.nodes[node].life, Time::from_nanos(self.now));
        if let Some(history) = &mut self.history {
            let candidate = format!("c{node}#{life}");
            history.record(Event::new(at, &self.names[election], candidate, kind));
        }
    }

    fn true_time(&self, node: usize, local: Time) -> Time {
        Time::from_nanos(local.as_nanos().saturating_sub(self.plan.clocks[node].start_ns()))
    }
}
