//! The machine: one candidate in one election.
//!
//! It owns every decision about leading and no means of acting: no clock, no random numbers, no
//! I/O. It must never trust a lease beyond `sent_at + ttl - margin` (I3), never believe a hint
//! (I5), and never take an unknown outcome for a yes or a no (I7).

mod reply;
mod sabotage;
mod sight;
mod state;
#[cfg(test)]
mod tests;
mod types;

use std::time::Duration;

pub use types::{Action, Actions, Input, Pick, Reason, Report, Settings};

#[cfg(feature = "sabotage")]
pub use sabotage::Sabotage;
#[cfg(not(feature = "sabotage"))]
use sabotage::Sabotage;
use sight::{Reading, Rival};
use state::{State, Want, Window};

use crate::{Holder, Op, Term, Time};

/// After so many unknown outcomes in a row a candidate asks by reads alone until one is answered.
/// One whose answers come too late would else be granted the lease again and again without ever
/// knowing, and keep everybody else from leading.
const PROBE_AFTER: u32 = 2;

/// One candidate in one election, as a pure state machine.
///
/// Feed it with [`handle`](Machine::handle), carry out the [`Action`]s that it writes, in order.
/// The same inputs at the same times give the same actions, always.
///
/// # Guarantees
/// - At most one [`Action::Send`] is under way at any time.
/// - Each [`Action::Lead`] is followed by exactly one [`Action::StepDown`] of the same term before
///   the next lead (I6), and no term is led twice (C1).
/// - Every call ends with exactly one [`Action::Wake`] or [`Action::Sleep`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    settings: Settings,
    want: Want,
    state: State,
    flight: Option<Flight>,
    /// Counts acquires (C2).
    seq: u64,
    /// The highest term led, or given up without being led: neither is led again (C1).
    led: Option<Term>,
    /// The highest term seen in other hands, or vacant. A store that lost its memory must issue
    /// higher ones all the same (C5).
    seen: Option<Term>,
    /// An acquire of unknown outcome may still be in flight: the store may have us as the holder
    /// (C2).
    doubt: bool,
    /// A lease of ours must not be given back before this (I8); zero if there is none such.
    runs_out_at: Time,
    /// A hint came while a request was under way; its answer may be older than the hint.
    hinted: bool,
    /// Unknown outcomes in a row.
    failures: u32,
    /// Looks in a row that found nobody leading.
    vacancies: u32,
    /// Who was last seen to lead, if anybody looked, so that only changes are told.
    leader: Option<Option<(Holder, Option<Term>)>>,
    reading: Option<Reading>,
    /// The store's clock stepped: until this instant somebody whose lease seems to have run out
    /// may still trust itself (W2).
    fresh_until: Time,
    /// The ttl of the lease that was last seen in other hands.
    rival_ttl: Option<Duration>,
    rival: Option<Rival>,
}

/// What a machine leaves to a later one of the same candidate: see [`Machine::resume`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Past {
    seq: u64,
    led: Option<Term>,
    seen: Option<Term>,
    doubt: bool,
    /// A lease of ours must not be given back before this (I8); zero if there is none such.
    runs_out_at: Time,
    reading: Option<Reading>,
    fresh_until: Time,
    rival_ttl: Option<Duration>,
}

impl Past {
    /// The same past, of a candidate that has numbered its acquires at least as far as in `other`:
    /// for when nothing else of the other one is remembered.
    #[must_use]
    pub fn numbered_after(self, other: &Past) -> Past {
        Past { seq: self.seq.max(other.seq), ..self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Flight {
    Acquire,
    Renew,
    Release,
    Read,
}

impl Machine {
    /// A candidate that takes no part yet.
    pub fn new(settings: Settings) -> Machine {
        Machine {
            settings,
            want: Want::Rest,
            state: State::Out,
            flight: None,
            seq: 0,
            led: None,
            seen: None,
            doubt: false,
            runs_out_at: Time::ZERO,
            hinted: false,
            failures: 0,
            vacancies: 0,
            leader: None,
            reading: None,
            fresh_until: Time::ZERO,
            rival_ttl: None,
            rival: None,
        }
    }

    /// A candidate that goes on where an earlier machine of the *same* candidate in the same
    /// election left off: it numbers its acquires on and takes back one that is in doubt (C2),
    /// leads no term twice (C1), remembers a step of the store's clock (W2), and gives back no
    /// lease that is to run out (I8).
    pub fn resume(settings: Settings, past: Past) -> Machine {
        let Past { seq, led, seen, doubt, runs_out_at, reading, fresh_until, rival_ttl } = past;
        let fresh = Machine::new(settings);
        Machine { seq, led, seen, doubt, runs_out_at, reading, fresh_until, rival_ttl, ..fresh }
    }

    /// What a later machine of the same candidate must know.
    pub fn past(&self) -> Past {
        Past {
            seq: self.seq,
            led: self.led,
            seen: self.seen,
            doubt: self.doubt,
            runs_out_at: self.runs_out_at,
            reading: self.reading,
            fresh_until: self.fresh_until,
            rival_ttl: self.rival_ttl,
        }
    }

    /// What it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The term it leads now: after the lead, before the step-down.
    pub fn leading(&self) -> Option<Term> {
        match &self.state {
            State::Leading { term, .. } => Some(*term),
            _ => None,
        }
    }

    /// The term that was led and whose work has not ended, or whose lease is being given back.
    pub fn ending(&self) -> Option<Term> {
        match &self.state {
            State::Draining { term, .. } | State::Ending { term, .. } => Some(*term),
            State::Releasing { term, .. } => *term,
            _ => None,
        }
    }

    /// Whether it takes no part and holds nothing.
    pub fn is_out(&self) -> bool {
        self.state == State::Out && self.flight.is_none()
    }

    /// Takes one input at the instant `now` and writes what is to be done.
    ///
    /// `now` never goes back between calls. Deadlines that have passed are honoured before the
    /// input is looked at: a grant that arrives after the step-down was due does not revive
    /// anything.
    pub fn handle(&mut self, now: Time, input: Input, out: &mut Actions) {
        let looks_first = self.sabotaged(Sabotage::LateGrantRevives);
        if !(looks_first && matches!(input, Input::Reply { .. })) {
            self.pass_deadlines(now, out);
        }
        match input {
            Input::Tick => {}
            Input::Reply { sent_at, outcome } => self.reply(now, sent_at, outcome, out),
            Input::Hint if self.sabotaged(Sabotage::HintBelieved) => self.believe(now, out),
            Input::Hint => self.hint(now),
            Input::Campaign => self.campaign(now),
            Input::Observe => {
                self.leave(now, Want::Observe, out);
                self.leader = None;
            }
            Input::Resign => self.resign(now, Reason::Resigned, true, out),
            Input::Withdraw => self.leave(now, Want::Rest, out),
            Input::Drained => self.drained(now, out),
            Input::RunOut => self.run_out(now, out),
        }
        self.pass_deadlines(now, out);
        self.send_what_is_due(now, out);
        out.push(match self.state.wake(self.flight.is_some(), &self.settings.timing) {
            Some(Window { from, to, pick }) => Action::Wake { from, to, pick },
            None => Action::Sleep,
        });
    }

    /// The four instants of a lease (I3), and the bounds of a drain.
    fn pass_deadlines(&mut self, now: Time, out: &mut Actions) {
        let timing = self.settings.timing;
        match self.state {
            State::Leading { sent_at, .. } if now >= timing.step_down_at(sent_at) => {
                self.step_down(Reason::NotRenewed, timing.trust_ends_at(sent_at), out);
            }
            State::Held { sent_at, .. } if now >= timing.step_down_at(sent_at) => {
                // Never led, so nobody is to be told; asking again heals or refuses.
                (self.doubt, self.failures) = (true, 0);
                self.state = State::Waiting { next: Window::at(now), aside: None };
            }
            State::Held { term, sent_at, renew, lead_from } if now >= lead_from => {
                self.lead(term, sent_at, renew, out);
            }
            State::Draining { term, sent_at, drain_until, aside, .. } => {
                let until = timing.trust_ends_at(sent_at);
                if now >= drain_until.min(until) {
                    let (aborted, ours) = (false, true);
                    self.state = State::Ending { term, sent_at, until: now, aborted, ours, aside };
                }
            }
            _ => {}
        }
        if let State::Ending { term, until, aborted, .. } = &mut self.state
            && !*aborted
            && now >= *until
        {
            *aborted = true;
            out.push(Action::Abort { term: *term });
        }
    }

    fn hint(&mut self, now: Time) {
        if self.flight.is_some() {
            self.hinted = true;
            return;
        }
        match &mut self.state {
            State::Waiting { next, .. } => *next = Window::at(now),
            State::Leading { renew, .. } => *renew = Window::at(now),
            _ => {}
        }
    }

    fn campaign(&mut self, now: Time) {
        if self.want == Want::Campaign {
            return;
        }
        self.want = Want::Campaign;
        if let State::Out | State::Waiting { .. } = self.state {
            self.state = State::Waiting { next: Window::at(now), aside: None };
        }
    }

    fn resign(&mut self, now: Time, reason: Reason, aside: bool, out: &mut Actions) {
        match self.state {
            State::Leading { term, sent_at, renew } => {
                let until = self.settings.timing.trust_ends_at(sent_at);
                out.push(Action::StepDown { term, reason, until });
                let drain_until = now + self.settings.timing.drain;
                self.state = State::Draining { term, sent_at, renew, drain_until, aside };
            }
            State::Held { term, .. } => self.release(now, Some(term), aside),
            _ => {}
        }
    }

    /// Takes no further part in the contest.
    fn leave(&mut self, now: Time, want: Want, out: &mut Actions) {
        self.want = want;
        match &mut self.state {
            State::Leading { .. } | State::Held { .. } => {
                self.resign(now, Reason::Resigned, false, out);
            }
            State::Draining { aside, .. }
            | State::Ending { aside, .. }
            | State::Releasing { aside, .. } => *aside = false,
            // The answer to an acquire that is under way decides what is left to give back.
            State::Waiting { .. } if self.flight == Some(Flight::Acquire) => {}
            State::Waiting { .. } | State::Out if self.doubt => self.take_back(now, out),
            State::Waiting { .. } | State::Out => self.vacated(now, None, true, false, out),
        }
    }

    fn drained(&mut self, now: Time, out: &mut Actions) {
        match self.state {
            State::Draining { term, aside, .. } => self.release(now, Some(term), aside),
            State::Ending { term, sent_at, ours, aside, .. } => {
                // A renewal under way may still be granted, so it counts as ours.
                let renewing = self.flight == Some(Flight::Renew);
                let lapsed = now >= self.settings.timing.expires_at(sent_at) && !renewing;
                if ours && !lapsed {
                    self.release(now, Some(term), aside);
                } else {
                    self.vacated(now, Some(term), !ours, aside, out);
                }
            }
            _ => {}
        }
    }

    /// Nobody works any more as far as is known, but somebody who was told "you lead" has not said
    /// that they are done: the lease is not given back, it runs out (I8). Only then is it asked for
    /// again.
    fn run_out(&mut self, now: Time, out: &mut Actions) {
        let (State::Draining { term, sent_at, aside, .. }
        | State::Ending { term, sent_at, aside, .. }) = self.state
        else {
            return;
        };
        let ours = !matches!(self.state, State::Ending { ours: false, .. });
        if ours {
            self.runs_out_at = self.settings.timing.expires_at(sent_at);
        }
        self.vacated(now, Some(term), !ours, aside, out);
        if let State::Waiting { next, aside } = &mut self.state
            && self.want == Want::Campaign
            && ours
        {
            // Until then it looks at most, whatever hints come; then it tries as everybody does.
            let until = aside.map_or(self.runs_out_at, |aside| aside.max(self.runs_out_at));
            *next = Window::spread(until, &self.settings.timing);
            *aside = Some(until);
        }
    }

    /// Takes back an acquire that may have been granted (C2), by incarnation alone. Not while a
    /// lease of ours has to run out: that would give it back (I8).
    fn take_back(&mut self, now: Time, out: &mut Actions) {
        if now < self.runs_out_at {
            self.vacated(now, None, true, false, out);
        } else {
            self.release(now, None, false);
        }
    }

    fn release(&mut self, now: Time, term: Option<Term>, aside: bool) {
        let give_up_at = now + self.settings.timing.renew_every;
        self.failures = 0;
        // The release may arrive late. It must not find the same term led (I1).
        self.led = self.led.max(term);
        self.state = State::Releasing { term, next: Window::at(now), give_up_at, aside };
    }

    /// Nothing is held any more: go on as wanted.
    fn vacated(
        &mut self,
        now: Time,
        term: Option<Term>,
        released: bool,
        aside: bool,
        out: &mut Actions,
    ) {
        out.push(Action::Vacated { term, released });
        self.leader = None;
        (self.failures, self.vacancies) = (0, 0);
        self.state = match self.want {
            Want::Rest => State::Out,
            Want::Campaign if aside => {
                let timing = &self.settings.timing;
                let until = now + timing.renew_every;
                let next = Window::soon(now, 0, timing).before(until);
                State::Waiting { next, aside: Some(until) }
            }
            Want::Campaign | Want::Observe => State::Waiting { next: Window::at(now), aside: None },
        };
    }

    fn lead(&mut self, term: Term, sent_at: Time, renew: Window, out: &mut Actions) {
        let again = self.sabotaged(Sabotage::OldTermAgain);
        debug_assert!(self.led < Some(term) || again, "no term is led twice (C1)");
        let timing = &self.settings.timing;
        out.push(Action::Lead {
            term,
            step_down_at: timing.step_down_at(sent_at),
            until: timing.trust_ends_at(sent_at),
        });
        self.led = Some(term);
        self.failures = 0;
        self.leader = Some(Some((Holder::from(&self.settings.candidate), Some(term))));
        self.state = State::Leading { term, sent_at, renew };
    }

    /// The forced end of a reign. Work may wind up until `until`; nothing revives it.
    fn step_down(&mut self, reason: Reason, until: Time, out: &mut Actions) {
        let State::Leading { term, sent_at, .. } = self.state else { return };
        out.push(Action::StepDown { term, reason, until });
        let ours = reason != Reason::Deposed;
        self.state = State::Ending { term, sent_at, until, aborted: false, ours, aside: false };
    }

    fn send_what_is_due(&mut self, now: Time, out: &mut Actions) {
        if self.flight.is_some() {
            return;
        }
        let flight = match &self.state {
            State::Waiting { next, aside } if now >= next.from => match self.want {
                Want::Campaign if aside.is_some_and(|until| now < until) => Flight::Read,
                Want::Campaign if self.failures >= PROBE_AFTER => Flight::Read,
                Want::Campaign => Flight::Acquire,
                Want::Observe => Flight::Read,
                Want::Rest => return,
            },
            State::Held { renew, .. }
            | State::Leading { renew, .. }
            | State::Draining { renew, .. }
                if now >= renew.from =>
            {
                Flight::Renew
            }
            State::Releasing { next, .. } if now >= next.from => Flight::Release,
            _ => return,
        };
        self.flight = Some(flight);
        self.hinted = false;
        let op = self.compose(flight);
        out.push(Action::Send(op));
    }

    fn compose(&mut self, flight: Flight) -> Op {
        let election = self.settings.election.clone();
        let candidate = self.settings.candidate.clone();
        let ttl = self.settings.timing.ttl;
        match flight {
            Flight::Acquire => {
                self.seq += 1;
                Op::Acquire {
                    election,
                    candidate,
                    seq: self.seq,
                    above: self.led.filter(|_| !self.sabotaged(Sabotage::OldTermAgain)),
                    floor: self.floor(),
                    ttl,
                    metadata: self.settings.metadata.clone(),
                }
            }
            Flight::Renew => {
                let term = self.held_term().expect("only a held lease is renewed");
                Op::Renew { election, candidate, term, ttl }
            }
            Flight::Release => {
                let State::Releasing { term, .. } = self.state else {
                    unreachable!("a release is sent only while releasing")
                };
                Op::Release { election, candidate, term, seq: self.seq }
            }
            Flight::Read => Op::Read { election },
        }
    }

    fn held_term(&self) -> Option<Term> {
        match self.state {
            State::Held { term, .. }
            | State::Leading { term, .. }
            | State::Draining { term, .. }
            | State::Ending { term, .. } => Some(term),
            State::Releasing { term, .. } => term,
            State::Out | State::Waiting { .. } => None,
        }
    }

    /// The least term that a grant may carry, or `None` if any will do.
    fn floor(&self) -> Option<Term> {
        self.settings.term_floor.max(self.seen.and_then(Term::next))
    }
}
