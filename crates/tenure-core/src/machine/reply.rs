//! What an answer of the store changes.

use super::state::{State, Want, Window};
use super::{Action, Actions, Flight, Machine, Reason, Report, Sabotage};
use crate::{Grant, Outcome, Sight, Term, Time};

impl Machine {
    pub(super) fn reply(&mut self, now: Time, sent_at: Time, outcome: Outcome, out: &mut Actions) {
        let Some(flight) = self.flight.take() else {
            debug_assert!(false, "each send gets exactly one reply");
            return;
        };
        debug_assert!(sent_at <= now, "a request leaves before its answer comes");
        match flight {
            Flight::Acquire => self.acquire_reply(now, sent_at, outcome, out),
            Flight::Renew => self.renew_reply(now, sent_at, outcome, out),
            Flight::Release => self.release_reply(now, sent_at, outcome, out),
            Flight::Read => self.read_reply(now, sent_at, outcome, out),
        }
        if std::mem::take(&mut self.hinted) {
            self.hint(now);
        }
    }

    fn acquire_reply(&mut self, now: Time, sent_at: Time, outcome: Outcome, out: &mut Actions) {
        match outcome {
            Outcome::Granted(grant) => {
                self.read_store_clock(now, sent_at, grant.store_clock, grant.expired, out);
                self.failures = 0;
                self.acquired(now, sent_at, grant, out);
            }
            Outcome::Refused(sight) | Outcome::Seen(sight) => {
                self.failures = 0;
                let next = self.look(now, sent_at, sight, out);
                if self.want == Want::Campaign {
                    self.state = State::Waiting { next, aside: None };
                } else if self.doubt {
                    self.take_back(now, out);
                } else {
                    self.vacated(now, None, true, false, out);
                }
            }
            Outcome::Unknown => {
                self.doubt = true;
                if self.want == Want::Campaign {
                    self.wait_after_failure(now);
                } else {
                    self.take_back(now, out);
                }
            }
        }
    }

    fn acquired(&mut self, now: Time, sent_at: Time, grant: Grant, out: &mut Actions) {
        let term = grant.term;
        let timing = self.settings.timing;
        let any_term = self.sabotaged(Sabotage::OldTermAgain);
        if let Some(least) = self.least().filter(|least| term < *least && !any_term) {
            // A term that may have been led before must not be led again (I2, C1).
            out.push(Action::Report(Report::TermFell { granted: term, least }));
            self.release(now, Some(term), true);
        } else if self.want != Want::Campaign {
            self.release(now, Some(term), false);
        } else if now >= timing.step_down_at(sent_at) {
            // Too old to be of use. Never led, so asking again heals it.
            self.doubt = true;
            self.wait_after_failure(now);
        } else {
            let renew = Window::renewal(sent_at, &timing);
            // Also when the lease was released: the candidate that did so may have taken over by
            // the step and never led.
            if now < self.fresh_until {
                let lead_from = self.fresh_until;
                self.state = State::Held { term, sent_at, renew, lead_from };
            } else {
                self.lead(term, sent_at, renew, out);
            }
            if grant.asked {
                self.resign(now, Reason::Asked, true, out);
            }
        }
    }

    /// The least term that may be led: above every term led, seen, or told to stay above.
    fn least(&self) -> Option<Term> {
        self.floor().max(self.led.and_then(Term::next))
    }

    fn renew_reply(&mut self, now: Time, sent_at: Time, outcome: Outcome, out: &mut Actions) {
        match outcome {
            Outcome::Granted(grant) if Some(grant.term) == self.held_term() => {
                self.read_store_clock(now, sent_at, grant.store_clock, None, out);
                self.renewed(now, sent_at, grant, out);
            }
            Outcome::Refused(sight) | Outcome::Seen(sight) => {
                self.deposed(now, sent_at, sight, out);
            }
            Outcome::Granted(_) | Outcome::Unknown => self.renewal_in_doubt(now, out),
        }
    }

    fn renewed(&mut self, now: Time, sent: Time, grant: Grant, out: &mut Actions) {
        let timing = self.settings.timing;
        self.failures = 0;
        match &mut self.state {
            State::Leading { term, sent_at, renew }
            | State::Draining { term, sent_at, renew, .. } => {
                *sent_at = sent;
                *renew = Window::renewal(sent, &timing);
                out.push(Action::Extend {
                    term: *term,
                    step_down_at: timing.step_down_at(sent),
                    until: timing.trust_ends_at(sent),
                });
            }
            State::Held { sent_at, renew, .. } => {
                *sent_at = sent;
                *renew = Window::renewal(sent, &timing);
            }
            // The step-down was final: the grant only says that there is something to release.
            State::Ending { sent_at, .. } => *sent_at = sent,
            State::Releasing { .. } | State::Waiting { .. } | State::Out => {}
        }
        if grant.asked && self.leading().is_some() {
            self.resign(now, Reason::Asked, true, out);
        }
    }

    /// The store says that the lease is not ours: somebody else may lead at this very instant.
    fn deposed(&mut self, now: Time, sent_at: Time, sight: Sight, out: &mut Actions) {
        match &mut self.state {
            State::Leading { .. } => self.step_down(Reason::Deposed, now, out),
            State::Draining { term, sent_at, aside, .. } => {
                let (term, sent_at, aside) = (*term, *sent_at, *aside);
                let (until, aborted, ours) = (now, false, false);
                self.state = State::Ending { term, sent_at, until, aborted, ours, aside };
            }
            State::Ending { until, ours, .. } => {
                *ours = false;
                *until = (*until).min(now);
            }
            _ => {}
        }
        let next = self.look(now, sent_at, sight, out);
        if let State::Held { .. } = self.state {
            self.state = State::Waiting { next, aside: None };
        }
    }

    fn renewal_in_doubt(&mut self, now: Time, out: &mut Actions) {
        self.failures = self.failures.saturating_add(1);
        let longest = self.settings.timing.renew_every / 4;
        let again = Window::backoff(now, self.failures, longest);
        match &mut self.state {
            State::Leading { sent_at, renew, .. } => {
                *renew = again;
                if self.settings.fail_closed {
                    let until = self.settings.timing.trust_ends_at(*sent_at);
                    self.step_down(Reason::RenewalFailed, until, out);
                }
            }
            State::Held { renew, .. } | State::Draining { renew, .. } => *renew = again,
            _ => {}
        }
    }

    fn release_reply(&mut self, now: Time, sent_at: Time, outcome: Outcome, out: &mut Actions) {
        let State::Releasing { term, give_up_at, aside, .. } = self.state else {
            debug_assert!(false, "a release is answered while releasing");
            return;
        };
        match outcome {
            Outcome::Granted(grant) => {
                self.read_store_clock(now, sent_at, grant.store_clock, None, out);
                self.doubt = false;
                self.vacated(now, term, true, aside, out);
            }
            Outcome::Refused(sight) | Outcome::Seen(sight) => {
                self.look(now, sent_at, sight, out);
                self.doubt = false;
                self.vacated(now, term, true, aside, out);
            }
            Outcome::Unknown => {
                self.failures = self.failures.saturating_add(1);
                let longest = self.settings.timing.renew_every / 4;
                let next = Window::backoff(now, self.failures, longest);
                // Where no grant is known of, one try is enough; a lease that nobody renews ends.
                if term.is_none() || next.to >= give_up_at {
                    self.vacated(now, term, false, aside, out);
                } else {
                    self.state = State::Releasing { term, next, give_up_at, aside };
                }
            }
        }
    }

    fn read_reply(&mut self, now: Time, sent_at: Time, outcome: Outcome, out: &mut Actions) {
        let next = match outcome {
            Outcome::Refused(sight) | Outcome::Seen(sight) => {
                self.failures = 0;
                self.look(now, sent_at, sight, out)
            }
            Outcome::Granted(_) | Outcome::Unknown => {
                match &mut self.state {
                    // It was only for knowing sooner who follows.
                    State::Waiting { next, aside: Some(until) } => {
                        *next = Window::spread(*until, &self.settings.timing);
                    }
                    State::Waiting { .. } => self.wait_after_failure(now),
                    _ => {}
                }
                return;
            }
        };
        match (&self.state, self.want) {
            (State::Waiting { aside: Some(until), .. }, Want::Campaign) => {
                let (until, seen) = (*until, self.vacancies == 0);
                let stay = Window::spread(until, &self.settings.timing);
                let next = match next {
                    next if !seen => next.before(until),
                    next if next.from < until => stay,
                    next => next,
                };
                self.state = State::Waiting { next, aside: Some(until) };
            }
            (State::Waiting { .. }, Want::Observe) => {
                self.state = State::Waiting { next, aside: None };
            }
            // A campaign that began meanwhile waits for no observation.
            _ => {}
        }
    }

    fn wait_after_failure(&mut self, now: Time) {
        self.failures = self.failures.saturating_add(1);
        let longest = self.settings.timing.renew_every;
        let next = Window::backoff(now, self.failures, longest);
        self.state = State::Waiting { next, aside: None };
    }
}
