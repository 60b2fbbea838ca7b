//! What the model is held to, told apart from how it moves.

use stateright::Property;
use tenure_core::{Action, Input, Op, Outcome, Reason, Term, Time};

use super::{State, TTL_TICKS, World};

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
    handed_over: bool,
    healed: bool,
    refused_by_fence: bool,
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
    Drain,
    Calls,
}

/// The promises as stateright wants them. I5 is in all of them: hints come for no reason.
pub(super) fn properties(connection_bound: bool, strict: bool) -> Vec<Property<World>> {
    let mut all = vec![
        Property::always("I2 terms rise", |_, s: &State| s.ghost.broken != Some(Rule::I2)),
        Property::always("I3 trust is earned", |_, s: &State| s.ghost.broken != Some(Rule::I3)),
        Property::always("I4 exact terms", |_, s: &State| s.ghost.broken != Some(Rule::I4)),
        Property::always("I6 lead, then step down", |_, s: &State| {
            s.ghost.broken != Some(Rule::I6)
        }),
        Property::always("I7 unknown is neither", |_, s: &State| s.ghost.broken != Some(Rule::I7)),
        Property::always("C1 no term led twice", |_, s: &State| s.ghost.broken != Some(Rule::C1)),
        Property::always("never release first", |_, s: &State| s.ghost.broken != Some(Rule::Drain)),
        Property::always("one request, one wake", |_, s: &State| {
            s.ghost.broken != Some(Rule::Calls)
        }),
        Property::sometimes("somebody leads", |_, s: &State| s.trusting().next().is_some()),
        Property::sometimes("hand-over happens", |_, s: &State| s.ghost.handed_over),
        Property::sometimes("a lost reply is healed", |_, s: &State| s.ghost.healed),
    ];
    if connection_bound {
        // The weaker promise, as it is: the server may free a lease that its holder still trusts,
        // for less than a ttl. The fence then stops the older of the two.
        all.push(Property::always("an overlap ends within a ttl", |_, s: &State| {
            s.trusted_since_freed() < Some(u64::from(TTL_TICKS))
        }));
        // The bound is a close one: a lease may be freed as soon as it was renewed.
        all.push(Property::sometimes("an overlap lasts as long as trust", |_, s: &State| {
            s.trusted_since_freed() >= Some(u64::from(TTL_TICKS) - 2)
        }));
        all.push(Property::sometimes("two trust themselves", |_, s: &State| {
            s.trusting().count() > 1
        }));
        all.push(Property::sometimes("the fence stops one", |_, s: &State| {
            s.ghost.refused_by_fence
        }));
    }
    if strict || !connection_bound {
        all.push(Property::always("I1 one leader", |_, s: &State| s.trusting().count() <= 1));
    }
    all
}

impl Ghost {
    pub(super) fn new(candidates: usize) -> Ghost {
        Ghost {
            shadows: vec![Shadow::default(); candidates],
            broken: None,
            highest: None,
            fence: None,
            freed: Vec::new(),
            handed_over: false,
            healed: false,
            refused_by_fence: false,
        }
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
            Input::Drained if shadow.reign.is_none() => (shadow.work, shadow.trust) = (None, None),
            _ => {}
        }
        let ordered = !world.connection_bound;
        for action in actions {
            self.action(node, now, input, action, ordered);
        }
        let naps = actions.iter().filter(|a| matches!(a, Action::Wake { .. } | Action::Sleep));
        if naps.count() != 1 {
            self.breaks(Rule::Calls);
        }
    }

    fn action(&mut self, node: usize, now: Time, input: &Input, action: &Action, ordered: bool) {
        let shadow = &mut self.shadows[node];
        match action {
            Action::Send(Op::Acquire { .. } | Op::Release { .. }) if shadow.work.is_some() => {
                self.breaks(Rule::Drain);
            }
            Action::Send(Op::Renew { term, .. })
                if shadow.earned.is_none_or(|(earned, _)| earned != *term) =>
            {
                self.breaks(Rule::I4);
            }
            Action::Lead { term, until, .. } => {
                self.leads(node, *term, ordered);
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
                let led = shadow.reign.take();
                shadow.trust = shadow.trust.map(|(term, before)| (term, before.min(*until)));
                shadow.resigning = matches!(reason, Reason::Resigned | Reason::Asked);
                if led != Some(*term) {
                    self.breaks(Rule::I6);
                }
                let unknown = matches!(input, Input::Reply { outcome: Outcome::Unknown, .. });
                if unknown && *reason == Reason::Deposed {
                    self.breaks(Rule::I7);
                }
            }
            Action::Abort { .. } => shadow.trust = None,
            _ => {}
        }
    }

    /// `ordered`: where one leader at a time is promised, terms are also led in their order.
    fn leads(&mut self, node: usize, term: Term, ordered: bool) {
        let shadow = &mut self.shadows[node];
        let twice = shadow.led >= Some(term);
        let (open, working) = (shadow.reign.is_some(), shadow.work.is_some());
        let fell =
            self.highest.is_some_and(|(highest, _)| highest == term || (ordered && highest > term));
        self.healed |= std::mem::take(&mut shadow.in_doubt);
        (shadow.reign, shadow.work, shadow.led) = (Some(term), Some(term), Some(term));
        shadow.resigning = false;
        self.handed_over |= self.highest.is_some_and(|(_, who)| who != node);
        self.highest = self.highest.max(Some((term, node)));
        for (broken, rule) in
            [(open, Rule::I6), (working, Rule::Drain), (twice, Rule::C1), (fell, Rule::I2)]
        {
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
            self.refused_by_fence = true;
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
