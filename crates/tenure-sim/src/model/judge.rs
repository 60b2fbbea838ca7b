//! What the model is held to, told apart from how it moves.

use stateright::Property;
use tenure_core::{Action, Input, Op, Outcome, Reason, Report, Term, Time};

use super::{CALM_TICKS, State, TTL_TICKS, World};

/// What the judge remembers. It sees inputs and actions, never the inside of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ghost {
    pub(super) shadows: Vec<Shadow>,
    /// The first promise that was broken.
    pub(super) broken: Option<Rule>,
    /// The highest term led, and by whom.
    highest: Option<(Term, usize)>,
    /// The highest term that a fenced write has passed under.
    fence: Option<Term>,
    /// Leases that the store freed by itself, and when, in ticks.
    pub(super) freed: Vec<(Term, u64)>,
    pub(super) reached: Reached,
}

/// What has happened, for the goals: a model in which little happens shows little.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Reached {
    handed_over: bool,
    healed: bool,
    refused_by_fence: bool,
    /// Somebody led after the store had lost its memory, or was told to wait for it.
    settled: bool,
    /// A lease was led that had been held back after a step of the store's clock.
    held_back: bool,
    /// An observer was told who leads.
    observed: bool,
    /// A machine that was built from its past led.
    resumed: bool,
    /// A renewal of unknown outcome ended a reign.
    closed: bool,
    /// A lease was left to run out for those who were told "you lead".
    ran_out: bool,
    /// A lease was given back because everybody who was told is done.
    done: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Shadow {
    pub(super) trust: Option<(Term, Time)>,
    pub(super) reign: Option<Term>,
    resigning: bool,
    work: Option<Term>,
    led: Option<Term>,
    earned: Option<(Term, Time)>,
    in_doubt: bool,
    observes: bool,
    built_again: bool,
    settling: bool,
    /// Told "you lead" without being registered, and not said to be done.
    relied_upon: bool,
    /// Until when those who were told may still be at work after the step-down.
    pub(super) works_until: Time,
    /// The lease of a reign that they rely on is not given back before this instant.
    kept_until: Time,
    /// Nor is another one asked for before this one.
    asks_from: Time,
}

impl Shadow {
    /// Nobody is to be waited for any more (I8).
    fn forget_told(&mut self) {
        self.relied_upon = false;
        (self.works_until, self.kept_until, self.asks_from) = (Time::ZERO, Time::ZERO, Time::ZERO);
    }
}

/// A promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Rule {
    I2,
    I3,
    I4,
    I6,
    I7,
    C1,
    C5,
    I8,
    Drain,
    Calls,
    Observer,
    Closed,
}

/// The promises as stateright wants them. I5 is in all of them: hints come for no reason.
pub(super) fn properties(world: &World) -> Vec<Property<World>> {
    let mut all = always();
    all.extend(goals(world));
    if world.connection_bound {
        all.extend(connection_bound());
    }
    if world.strict || !world.connection_bound {
        all.push(Property::always("I1 one leader", |_, s: &State| s.trusting().count() <= 1));
    }
    if world.scope.relies {
        all.push(Property::always("I8 one at work", |_, s: &State| s.at_work() <= 1));
    }
    if world.scope.live {
        all.push(Property::always("live: in calm weather somebody leads", |_, s: &State| {
            s.calm <= CALM_TICKS || s.trusting().next().is_some() || !s.somebody_is_willing()
        }));
    }
    all
}

fn always() -> Vec<Property<World>> {
    vec![
        Property::always("I2 terms rise", |_, s: &State| s.ghost.broken != Some(Rule::I2)),
        Property::always("I3 trust is earned", |_, s: &State| s.ghost.broken != Some(Rule::I3)),
        Property::always("I4 exact terms", |_, s: &State| s.ghost.broken != Some(Rule::I4)),
        Property::always("I6 lead, then step down", |_, s: &State| {
            s.ghost.broken != Some(Rule::I6)
        }),
        Property::always("I7 unknown is neither", |_, s: &State| s.ghost.broken != Some(Rule::I7)),
        Property::always("I8 kept for those who were told", |_, s: &State| {
            s.ghost.broken != Some(Rule::I8)
        }),
        Property::always("C1 no term led twice", |_, s: &State| s.ghost.broken != Some(Rule::C1)),
        Property::always("C5 terms above the floor", |_, s: &State| {
            s.ghost.broken != Some(Rule::C5)
        }),
        Property::always("never release first", |_, s: &State| s.ghost.broken != Some(Rule::Drain)),
        Property::always("one request, one wake", |_, s: &State| {
            s.ghost.broken != Some(Rule::Calls)
        }),
        Property::always("an observer asks for nothing", |_, s: &State| {
            s.ghost.broken != Some(Rule::Observer)
        }),
        Property::always("fail closed", |_, s: &State| s.ghost.broken != Some(Rule::Closed)),
    ]
}

/// How the names of goals begin: to reach one is no failure, not to reach it is.
pub const GOAL: &str = "goal: ";

fn goals(world: &World) -> Vec<Property<World>> {
    let scope = world.scope;
    let mut all = vec![Property::sometimes("goal: somebody leads", |_, s: &State| {
        s.trusting().next().is_some()
    })];
    let mut goal = |wanted: bool, name: &'static str, reached: fn(&World, &State) -> bool| {
        if wanted {
            all.push(Property::sometimes(name, reached));
        }
    };
    goal(true, "goal: hand-over happens", |_, s| s.ghost.reached.handed_over);
    goal(true, "goal: a lost reply is healed", |_, s| s.ghost.reached.healed);
    goal(scope.forgets, "goal: somebody leads after the store has settled", |_, s| {
        s.ghost.reached.settled
    });
    goal(scope.steps, "goal: a lease is held back after a step", |_, s| s.ghost.reached.held_back);
    goal(scope.observes, "goal: an observer sees a leader", |_, s| s.ghost.reached.observed);
    goal(scope.resumes, "goal: a machine built again leads", |_, s| s.ghost.reached.resumed);
    goal(scope.fail_closed, "goal: an unknown renewal ends a reign", |_, s| s.ghost.reached.closed);
    goal(scope.relies, "goal: a lease runs out for those who were told", |_, s| {
        s.ghost.reached.ran_out
    });
    goal(scope.relies, "goal: a lease is given back when all are done", |_, s| {
        s.ghost.reached.done
    });
    goal(scope.live, "goal: it stays calm for long enough", |_, s| s.calm > CALM_TICKS);
    all
}

/// The weaker promise, as it is: the server may free a lease that its holder still trusts, for less
/// than a ttl. The fence then stops the older of the two.
fn connection_bound() -> Vec<Property<World>> {
    vec![
        Property::always("an overlap ends within a ttl", |_, s: &State| {
            s.trusted_since_freed() < Some(u64::from(TTL_TICKS))
        }),
        // The bound is a close one: a lease may be freed as soon as it was renewed.
        Property::sometimes("goal: an overlap lasts as long as trust", |_, s: &State| {
            s.trusted_since_freed() >= Some(u64::from(TTL_TICKS) - 2)
        }),
        Property::sometimes("goal: two trust themselves", |_, s: &State| s.trusting().count() > 1),
        Property::sometimes("goal: the fence stops one", |_, s: &State| {
            s.ghost.reached.refused_by_fence
        }),
    ]
}

impl Ghost {
    pub(super) fn new(candidates: usize) -> Ghost {
        Ghost {
            shadows: vec![Shadow::default(); candidates],
            broken: None,
            highest: None,
            fence: None,
            freed: Vec::new(),
            reached: Reached::default(),
        }
    }

    /// Somebody was told "you lead".
    pub(super) fn told(&mut self, node: usize) {
        self.shadows[node].relied_upon = true;
    }

    /// Everybody who was told is done.
    pub(super) fn done(&mut self, node: usize) {
        let shadow = &mut self.shadows[node];
        self.reached.done |= shadow.works_until > Time::ZERO;
        shadow.forget_told();
    }

    /// A machine was built from the past of another one.
    pub(super) fn built_again(&mut self, node: usize) {
        self.shadows[node].built_again = true;
    }

    fn breaks(&mut self, rule: Rule) {
        self.broken = self.broken.or(Some(rule));
    }

    /// Looks at a request that is sent, perhaps while another one is under way.
    pub(super) fn sends(&mut self, another: bool) {
        if another {
            self.breaks(Rule::Calls);
        }
    }

    /// Looks at one call of a machine.
    pub(super) fn call(
        &mut self,
        world: &World,
        node: usize,
        now: Time,
        input: &Input,
        answers: Option<&Op>,
        actions: &[Action],
    ) {
        let margin_ends = |sent_at: Time| world.machine_timing().trust_ends_at(sent_at);
        let shadow = &mut self.shadows[node];
        match input {
            Input::Reply { outcome: Outcome::Unknown, .. } => {
                shadow.in_doubt |= matches!(answers, Some(Op::Acquire { .. }));
                if actions.iter().any(|action| matches!(action, Action::Extend { .. })) {
                    self.breaks(Rule::I7);
                }
            }
            Input::Reply { sent_at, outcome: Outcome::Granted(grant) } => {
                if let Some(Op::Acquire { .. } | Op::Renew { .. }) = answers {
                    let until = margin_ends(*sent_at);
                    let best = shadow.earned.filter(|(term, _)| *term == grant.term);
                    let until = best.map_or(until, |(_, earlier)| until.max(earlier));
                    shadow.earned = Some((grant.term, until));
                }
            }
            Input::Drained | Input::RunOut if shadow.reign.is_none() => {
                (shadow.work, shadow.trust) = (None, None);
                self.reached.ran_out |= *input == Input::RunOut;
            }
            Input::Campaign | Input::Observe | Input::Withdraw => {
                shadow.observes = *input == Input::Observe;
                // A candidate that comes back after that asks anew, once the work is over.
                shadow.asks_from = shadow.asks_from.min(shadow.works_until);
            }
            _ => {}
        }
        let shadow = &self.shadows[node];
        let unknown = matches!(input, Input::Reply { outcome: Outcome::Unknown, .. });
        let renews = matches!(answers, Some(Op::Renew { .. }));
        let open = world.scope.fail_closed && unknown && renews && shadow.reign.is_some();
        for action in actions {
            self.action(world, node, now, input, action);
        }
        if open && self.shadows[node].reign.is_some() {
            self.breaks(Rule::Closed);
        }
        let naps = actions.iter().filter(|a| matches!(a, Action::Wake { .. } | Action::Sleep));
        if naps.count() != 1 {
            self.breaks(Rule::Calls);
        }
    }

    fn action(&mut self, world: &World, node: usize, now: Time, input: &Input, action: &Action) {
        self.kept(node, now, action);
        let shadow = &mut self.shadows[node];
        match action {
            Action::Send(Op::Acquire { .. }) if shadow.observes => self.breaks(Rule::Observer),
            Action::Send(Op::Acquire { .. } | Op::Release { .. }) if shadow.work.is_some() => {
                self.breaks(Rule::Drain);
            }
            Action::Send(Op::Renew { term, .. })
                if shadow.earned.is_none_or(|(earned, _)| earned != *term) =>
            {
                self.breaks(Rule::I4);
            }
            Action::Report(Report::Settling { .. }) => shadow.settling = true,
            Action::Observed(Some(_)) => self.reached.observed |= shadow.observes,
            Action::Lead { term, until, .. } => {
                // Held back: a timer or a renewal makes it lead, and not the grant itself.
                let granted = matches!(input, Input::Reply { .. });
                self.reached.held_back |= world.scope.steps && !granted;
                self.leads(world, node, *term);
                self.trusts(node, *term, *until);
            }
            Action::Extend { term, until, .. } => {
                let known = shadow.trust.is_some_and(|(t, until)| t == *term && now < until);
                if !known || (shadow.reign.is_none() && !shadow.resigning) {
                    self.breaks(Rule::I3);
                }
                self.trusts(node, *term, *until);
            }
            Action::StepDown { term, reason, until } => {
                self.reached.closed |= *reason == Reason::RenewalFailed;
                steps_down(shadow, world, now, *reason, *until);
                let led = shadow.reign.take();
                shadow.trust = shadow.trust.map(|(term, before)| (term, before.min(*until)));
                shadow.resigning = matches!(reason, Reason::Resigned | Reason::Asked);
                if led != Some(*term) {
                    self.breaks(Rule::I6);
                }
                let unknown = matches!(input, Input::Reply { outcome: Outcome::Unknown, .. });
                let closed = *reason == Reason::RenewalFailed && !world.scope.fail_closed;
                if (unknown && *reason == Reason::Deposed) || closed {
                    self.breaks(Rule::I7);
                }
            }
            Action::Abort { .. } => shadow.trust = None,
            _ => {}
        }
    }

    /// I8: what was told "you lead" is done, or its time is over, before the lease is given back or
    /// another one is asked for.
    fn kept(&mut self, node: usize, now: Time, action: &Action) {
        let shadow = &self.shadows[node];
        let due = match action {
            Action::Send(Op::Release { .. }) => shadow.kept_until,
            Action::Send(Op::Acquire { .. }) | Action::Lead { .. } => shadow.asks_from,
            _ => return,
        };
        if now < due {
            self.breaks(Rule::I8);
        }
    }

    fn leads(&mut self, world: &World, node: usize, term: Term) {
        // Where one leader at a time is promised, terms are also led in their order.
        let ordered = !world.connection_bound;
        let shadow = &mut self.shadows[node];
        let low = world.floor(node) > Some(term);
        self.reached.settled |= std::mem::take(&mut shadow.settling);
        self.reached.resumed |= shadow.built_again;
        shadow.forget_told();
        let twice = shadow.led >= Some(term);
        let (open, working) = (shadow.reign.is_some(), shadow.work.is_some());
        let fell =
            self.highest.is_some_and(|(highest, _)| highest == term || (ordered && highest > term));
        self.reached.healed |= std::mem::take(&mut shadow.in_doubt);
        (shadow.reign, shadow.work, shadow.led) = (Some(term), Some(term), Some(term));
        shadow.resigning = false;
        self.reached.handed_over |= self.highest.is_some_and(|(_, who)| who != node);
        self.highest = self.highest.max(Some((term, node)));
        for (broken, rule) in [
            (open, Rule::I6),
            (working, Rule::Drain),
            (twice, Rule::C1),
            (low, Rule::C5),
            (fell, Rule::I2),
        ] {
            if broken {
                self.breaks(rule);
            }
        }
    }

    fn trusts(&mut self, node: usize, term: Term, until: Time) {
        let shadow = &mut self.shadows[node];
        shadow.trust = Some((term, until));
        if !shadow.earned.is_some_and(|(granted, most)| granted == term && until <= most) {
            self.breaks(Rule::I3);
        }
        // Every leader writes at once, through the fence: a higher term shuts lower ones out.
        if self.fence > Some(term) {
            self.reached.refused_by_fence = true;
        } else {
            self.fence = Some(term);
        }
    }

    /// Looks at what the store granted (I4).
    pub(super) fn granted(&mut self, op: &Op, before: Option<(String, Term)>) {
        let exact = match op {
            Op::Renew { candidate, term, .. } | Op::Release { candidate, term: Some(term), .. } => {
                before == Some((candidate.as_str().to_owned(), *term))
            }
            _ => true,
        };
        if !exact {
            self.breaks(Rule::I4);
        }
    }
}

/// How long those who were told "you lead" may be at work, and the lease is kept for them (I8): in
/// order, for the drain, as long as trust lasts; otherwise until the lease has run out by itself.
fn steps_down(shadow: &mut Shadow, world: &World, now: Time, reason: Reason, until: Time) {
    if !shadow.relied_upon {
        return;
    }
    let timing = world.machine_timing();
    if let Reason::Resigned | Reason::Asked = reason {
        shadow.works_until = (now + timing.drain).min(until);
        shadow.kept_until = shadow.works_until;
    } else {
        shadow.works_until = until;
        shadow.kept_until = until + timing.margin;
    }
    shadow.asks_from = shadow.kept_until;
}
