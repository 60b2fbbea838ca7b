//! The reference of the small engines: one candidate, its callbacks, and who relies on it.
//!
//! Every decision about the lease is the machine's. What stands here is the part of a driver: it
//! counts the work that was told "you lead" (I8), keeps to the time of a stop, and asks by polls,
//! because a drop-in hears no hints.

use std::time::Duration;

use tenure_core::{
    Action, Actions, CandidateId, Grant, Holder, Input, Lease, Machine, Name, Op, Outcome, Reason,
    Sabotage, Settings, Sight, Term, Time, Timing,
};

/// What an engine is made with.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The instants of its lease.
    pub timing: Timing,
    /// A follower asks at least this often.
    pub poll: Duration,
    /// Step down at the first renewal of unknown outcome.
    pub fail_closed: bool,
    /// Each lead calls somebody, whose end is told by [`Event::End`].
    pub has_become: bool,
    /// Each step-down calls somebody, whose end is told by [`Event::End`] and means "done".
    pub has_lose: bool,
}

/// What happens to an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Take part.
    Start,
    /// Take no further part.
    Stop,
    /// Time has passed.
    Tick,
    /// The answer to what was sent at that instant: granted, under this term.
    Granted {
        /// When the request left.
        sent_at: Time,
        /// The term.
        term: u64,
    },
    /// Refused; somebody's lease lasts so long, if that is known.
    Refused {
        /// When the request left.
        sent_at: Time,
        /// How long that lease lasts.
        remaining: Option<Duration>,
    },
    /// Nobody knows (I7).
    Unknown {
        /// When the request left.
        sent_at: Time,
    },
    /// Somebody asks whether it leads, and relies on the answer.
    Ask,
    /// Work wants to begin, and will say when it ends.
    Begin,
    /// A callback or such work has ended.
    End,
}

/// What an engine does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Ask for the lease.
    Acquire {
        /// Counts acquires (C2).
        seq: u64,
        /// The last term led, or 0 (C1).
        above: u64,
    },
    /// Renew it.
    Renew {
        /// The term.
        term: u64,
    },
    /// Give it back. Without a term (0): whatever this incarnation holds (C2).
    Release {
        /// The term, or 0.
        term: u64,
        /// The last acquire.
        seq: u64,
    },
    /// A reign begins, or is extended.
    Lead {
        /// Whether it goes on rather than begins.
        extends: bool,
        /// Its term.
        term: u64,
        /// New work may begin until then.
        step_down_at: Time,
        /// It may be trusted until then (I3).
        until: Time,
    },
    /// It ends: work is told.
    StepDown {
        /// Its term.
        term: u64,
        /// Why.
        reason: &'static str,
        /// Work may wind up until then.
        until: Time,
    },
    /// Trust, or the drain, is over, and work is not.
    Overdue {
        /// The term.
        term: u64,
    },
    /// Nothing is held any more.
    Vacated {
        /// The term, or 0.
        term: u64,
        /// Whether the store confirmed it.
        released: bool,
    },
    /// The answer to [`Event::Ask`] and [`Event::Begin`].
    Answer(bool),
    /// Give it a tick inside this window.
    Wake(Time, Time),
    /// Nothing to wait for.
    Sleep,
}

/// One way to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Trust is counted from the reply (I3).
    TrustFromReply,
    /// A grant that comes too late revives a reign (I3).
    LateGrantRevives,
    /// An acquire does not name the last term led (C1).
    OldTermAgain,
    /// A renewal of unknown outcome counts as granted (I7).
    UnknownIsYes,
    /// A renewal of unknown outcome counts as refused (I7).
    UnknownIsNo,
    /// Two requests are under way at once.
    SendsTwice,
    /// The lease is given back before the work has ended (I8).
    ReleasesFirst,
    /// Answers to "do I lead?" hold up nothing (I8).
    ForgetsTold,
    /// A lease that must run out is given back (I8).
    ReleasesRunOut,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 9] = [
        Fault::TrustFromReply,
        Fault::LateGrantRevives,
        Fault::OldTermAgain,
        Fault::UnknownIsYes,
        Fault::UnknownIsNo,
        Fault::SendsTwice,
        Fault::ReleasesFirst,
        Fault::ForgetsTold,
        Fault::ReleasesRunOut,
    ];

    /// Its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Fault::TrustFromReply => "trust_from_reply",
            Fault::LateGrantRevives => "late_grant_revives",
            Fault::OldTermAgain => "old_term_again",
            Fault::UnknownIsYes => "unknown_is_yes",
            Fault::UnknownIsNo => "unknown_is_no",
            Fault::SendsTwice => "sends_twice",
            Fault::ReleasesFirst => "releases_first",
            Fault::ForgetsTold => "forgets_told",
            Fault::ReleasesRunOut => "releases_run_out",
        }
    }

    fn inside(self) -> Option<Sabotage> {
        match self {
            Fault::LateGrantRevives => Some(Sabotage::LateGrantRevives),
            Fault::OldTermAgain => Some(Sabotage::OldTermAgain),
            _ => None,
        }
    }
}

/// The reference.
#[derive(Clone)]
pub struct Engine {
    setup: Setup,
    fault: Option<Fault>,
    machine: Machine,
    /// Callbacks and registered work that have not ended.
    busy: u32,
    /// Somebody was told "you lead", and will not say when they are done.
    relied: bool,
    step_down_at: Time,
    led: u64,
    /// A reign was stepped down from, and its lease neither given back nor left to run out.
    ending: Option<Ending>,
    stop_by: Option<Time>,
    /// What is under way: a probe stands for the machine's read.
    flight: Option<Flight>,
    seq: u64,
    wake: Option<(Time, Time)>,
}

#[derive(Clone, Copy)]
struct Ending {
    is_orderly: bool,
    is_overdue: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flight {
    Acquire,
    Renew,
    Release,
    Probe,
}

impl Engine {
    /// A candidate that takes no part yet.
    ///
    /// # Panics
    /// Never: its names are valid.
    pub fn new(setup: Setup, fault: Option<Fault>) -> Engine {
        let election = Name::new("jobs").expect("a name");
        let candidate = CandidateId::new("a", 1).expect("a label");
        let mut settings = Settings::new(election, candidate, setup.timing);
        settings.fail_closed = setup.fail_closed;
        settings.sabotage = fault.and_then(Fault::inside);
        Engine {
            setup,
            fault,
            machine: Machine::new(settings),
            busy: 0,
            relied: false,
            step_down_at: Time::ZERO,
            led: 0,
            ending: None,
            stop_by: None,
            flight: None,
            seq: 0,
            wake: None,
        }
    }

    /// Whether a request is under way.
    pub fn is_waiting(&self) -> bool {
        self.flight.is_some()
    }

    /// Whether what is under way asks for the lease.
    pub fn is_acquiring(&self) -> bool {
        self.flight == Some(Flight::Acquire)
    }

    /// How many callbacks and pieces of work have not ended.
    pub fn busy(&self) -> u32 {
        self.busy
    }

    /// The term that a renewal is about.
    pub fn term(&self) -> u64 {
        self.led
    }

    /// When it wants a tick.
    pub fn wake(&self) -> Option<(Time, Time)> {
        self.wake
    }

    /// Whether it was stopped and holds nothing.
    pub fn is_over(&self) -> bool {
        self.stop_by.is_some() && self.machine.is_out()
    }

    /// Takes one event at the instant `now`.
    pub fn handle(&mut self, now: Time, event: Event) -> Vec<Act> {
        let mut acts = Vec::new();
        match event {
            Event::Ask | Event::Begin => {
                let leads = self.machine.leading().is_some() && now < self.step_down_at;
                match event {
                    Event::Begin => self.busy += u32::from(leads),
                    _ => self.relied |= leads,
                }
                return vec![Act::Answer(leads)];
            }
            Event::Start => self.give(now, Input::Campaign, &mut acts),
            Event::Stop => {
                self.stop_by.get_or_insert(now + self.setup.timing.drain);
                self.give(now, Input::Withdraw, &mut acts);
            }
            Event::Tick => self.give(now, Input::Tick, &mut acts),
            Event::End => {
                self.busy = self.busy.saturating_sub(1);
                self.give(now, Input::Tick, &mut acts);
            }
            Event::Granted { sent_at, .. }
            | Event::Refused { sent_at, .. }
            | Event::Unknown { sent_at } => {
                let outcome = self.outcome(event);
                let from_reply = self.fault == Some(Fault::TrustFromReply);
                let sent_at = if from_reply { now } else { sent_at };
                self.give(now, Input::Reply { sent_at, outcome }, &mut acts);
            }
        }
        while let Some(input) = self.settle(now) {
            self.give(now, input, &mut acts);
        }
        acts.push(match self.wake {
            Some((from, to)) => Act::Wake(from, to),
            None => Act::Sleep,
        });
        acts
    }

    /// What a reply is to the machine.
    fn outcome(&mut self, event: Event) -> Outcome {
        let flight = self.flight.take();
        match (flight, event) {
            (Some(Flight::Probe), Event::Granted { .. } | Event::Refused { .. }) => {
                Outcome::Seen(Sight::default())
            }
            // A term that was led before is not led again, and no more is known of it.
            (Some(Flight::Acquire), Event::Granted { term, .. }) if term <= self.led => {
                Outcome::Unknown
            }
            (_, Event::Granted { term, .. }) => Outcome::Granted(Grant::new(term_of(term))),
            (_, Event::Refused { remaining, .. }) => Outcome::Refused(self.sight(remaining)),
            (Some(Flight::Renew), _) if self.fault == Some(Fault::UnknownIsYes) => {
                Outcome::Granted(Grant::new(term_of(self.led)))
            }
            (Some(Flight::Renew), _) if self.fault == Some(Fault::UnknownIsNo) => {
                Outcome::Refused(self.sight(None))
            }
            _ => Outcome::Unknown,
        }
    }

    /// Somebody else's lease: it is asked for when it ends, and at each poll.
    fn sight(&self, remaining: Option<Duration>) -> Sight {
        let poll = self.setup.poll;
        let least = self.setup.timing.ttl / 100;
        let remaining = remaining.map_or(poll, |left| left.max(least).min(poll));
        let lease = Lease {
            holder: Holder::new("b#2"),
            term: None,
            remaining,
            ttl: None,
            since_unix_ms: None,
            metadata: None,
        };
        Sight { lease: Some(lease), ..Sight::default() }
    }

    /// What becomes of a reign that was stepped down from, as soon as that is clear (I8).
    fn settle(&mut self, now: Time) -> Option<Input> {
        let Ending { is_orderly, is_overdue } = self.ending?;
        let first = self.fault == Some(Fault::ReleasesFirst);
        let is_relied = self.relied && !self.setup.has_lose;
        let input = if self.busy > 0 && !first {
            self.stop_by.filter(|by| now >= *by).map(|_| Input::RunOut)?
        } else if !is_relied || self.fault == Some(Fault::ForgetsTold) {
            Input::Drained
        } else if is_orderly {
            is_overdue.then_some(Input::Drained)?
        } else {
            Input::RunOut
        };
        self.ending = None;
        let gives_back = self.fault == Some(Fault::ReleasesRunOut);
        Some(if gives_back { Input::Drained } else { input })
    }

    fn give(&mut self, now: Time, input: Input, acts: &mut Vec<Act>) {
        let mut out = Actions::new();
        self.machine.handle(now, input, &mut out);
        for action in out.drain() {
            self.carry_out(now, action, acts);
        }
        // A stop is kept to, also by one that waits for work of an earlier loss.
        if let (Some(by), true) = (self.stop_by, self.ending.is_some()) {
            self.wake = match self.wake {
                Some((from, to)) if from <= by => Some((from, to.min(by))),
                _ => Some((by, by)),
            };
        }
    }

    fn carry_out(&mut self, now: Time, action: Action, acts: &mut Vec<Act>) {
        match action {
            Action::Send(op) => {
                let act = self.send(op);
                if self.fault == Some(Fault::SendsTwice) {
                    acts.push(act.clone());
                }
                acts.push(act);
            }
            Action::Lead { term, step_down_at, until } => {
                self.step_down_at = step_down_at;
                (self.relied, self.led) = (false, term.get());
                self.busy += u32::from(self.setup.has_become);
                acts.push(Act::Lead { extends: false, term: self.led, step_down_at, until });
            }
            Action::Extend { term, step_down_at, until } => {
                self.step_down_at = step_down_at;
                acts.push(Act::Lead { extends: true, term: term.get(), step_down_at, until });
            }
            Action::StepDown { term, reason, until } => {
                let is_orderly = reason == Reason::Resigned;
                self.ending = Some(Ending { is_orderly, is_overdue: false });
                self.busy += u32::from(self.setup.has_lose);
                let (term, reason, until) = (term.get(), reason.as_str(), until.max(now));
                acts.push(Act::StepDown { term, reason, until });
            }
            Action::Abort { term } => {
                if let Some(ending) = &mut self.ending {
                    ending.is_overdue = true;
                    acts.push(Act::Overdue { term: term.get() });
                }
            }
            Action::Vacated { term, released } => {
                acts.push(Act::Vacated { term: term.map_or(0, Term::get), released });
            }
            Action::Wake { from, to, .. } => self.wake = Some((from, to)),
            Action::Sleep => self.wake = None,
            _ => {}
        }
    }

    fn send(&mut self, op: Op) -> Act {
        match op {
            Op::Acquire { seq, above, .. } => {
                self.flight = Some(Flight::Acquire);
                self.seq = seq;
                Act::Acquire { seq, above: above.map_or(0, Term::get) }
            }
            Op::Renew { term, .. } => {
                self.flight = Some(Flight::Renew);
                Act::Renew { term: term.get() }
            }
            Op::Release { term, seq, .. } => {
                self.flight = Some(Flight::Release);
                Act::Release { term: term.map_or(0, Term::get), seq }
            }
            // It has no way to read: it takes back what it may hold, and hears whether it is heard.
            Op::Read { .. } | Op::Ask { .. } => {
                self.flight = Some(Flight::Probe);
                Act::Release { term: 0, seq: self.seq }
            }
        }
    }
}

fn term_of(term: u64) -> Term {
    Term::new(term).expect("stories count terms from 1")
}
