//! What holds whatever comes: random inputs, random answers, stores that lie.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// One thing that happens, `after_ms` later than the last.
#[derive(Clone, Debug)]
enum Step {
    Give(Input),
    Answer(Answer),
    /// Comes when the machine asked for it: at the early or the late end of its window.
    Wake {
        late: bool,
    },
}

#[derive(Clone, Debug)]
enum Answer {
    Unknown,
    Granted { term: u64, asked: bool, expired: bool, stepped_ms: u64 },
    Refused { mine: bool, term: u64, remaining_ms: u64, stepped_ms: u64 },
    Vacant { last: u64 },
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let input = prop_oneof![
        4 => Just(Input::Tick),
        2 => Just(Input::Hint),
        4 => Just(Input::Campaign),
        1 => Just(Input::Observe),
        2 => Just(Input::Resign),
        1 => Just(Input::Withdraw),
        4 => Just(Input::Drained),
        1 => Just(Input::RunOut),
    ];
    let steps_ms = prop_oneof![4 => Just(0_u64), 1 => 0_u64..10_000];
    let answer = prop_oneof![
        2 => Just(Answer::Unknown),
        6 => (0_u64..6, any::<bool>(), any::<bool>(), steps_ms.clone()).prop_map(
            |(term, asked, expired, stepped_ms)| Answer::Granted {
                term, asked: asked && term % 2 == 0, expired, stepped_ms
            }
        ),
        2 => (any::<bool>(), 1_u64..12, 0_u64..4_000, steps_ms).prop_map(
            |(mine, term, remaining_ms, stepped_ms)| Answer::Refused {
                mine, term, remaining_ms, stepped_ms
            }
        ),
        1 => (1_u64..12).prop_map(|last| Answer::Vacant { last }),
    ];
    let step = prop_oneof![
        5 => input.prop_map(Step::Give),
        6 => answer.prop_map(Step::Answer),
        5 => any::<bool>().prop_map(|late| Step::Wake { late }),
    ];
    let after_ms = prop_oneof![4 => 0_u64..40, 4 => 0_u64..1_200, 1 => 0_u64..10_000];
    proptest::collection::vec((after_ms, step), 1..120)
}

/// Watches one machine from outside.
#[derive(Default)]
struct Watch {
    now_ms: u64,
    store_ms: u64,
    wake: Option<(Time, Time)>,
    /// The reign that was begun and not yet stepped down from.
    reign: Option<Term>,
    led: BTreeSet<Term>,
    /// Grants: which term, and until when at most it may be trusted.
    granted: Vec<(Term, Time)>,
    /// Work of a reign that has not been said to have ended.
    working: bool,
}

impl Watch {
    fn check(&mut self, actions: &[Action], drained: bool) -> Result<(), TestCaseError> {
        if drained && self.reign.is_none() {
            self.working = false;
        }
        for action in actions {
            match action {
                Action::Lead { term, step_down_at, until } => {
                    prop_assert_eq!(self.reign, None, "I6: one reign at a time");
                    prop_assert!(!self.working, "no reign while the work of the last one runs");
                    prop_assert!(self.led.insert(*term), "C1: no term is led twice");
                    prop_assert!(self.led.last() == Some(term), "I2: terms rise");
                    self.reign = Some(*term);
                    self.working = true;
                    self.check_trust(*term, *until)?;
                    prop_assert!(at(self.now_ms) < *step_down_at, "a stale grant is not led");
                }
                Action::Extend { term, until, .. } => {
                    self.check_trust(*term, *until)?;
                    prop_assert!(at(self.now_ms) < *until, "I3: nothing is revived");
                }
                Action::StepDown { term, until, .. } => {
                    prop_assert_eq!(self.reign.take(), Some(*term), "I6");
                    self.check_trust(*term, *until).or_else(|error| {
                        if *until <= at(self.now_ms) { Ok(()) } else { Err(error) }
                    })?;
                }
                Action::Send(Op::Acquire { .. } | Op::Release { .. }) => {
                    prop_assert!(!self.working, "neither is sent before the work has ended");
                }
                Action::Wake { from, to, .. } => {
                    prop_assert!(from <= to);
                    prop_assert!(*to >= at(self.now_ms), "a wake in the past would spin");
                    self.wake = Some((*from, *to));
                }
                Action::Sleep => self.wake = None,
                _ => {}
            }
        }
        Ok(())
    }

    /// I3: trust never lasts beyond what some granted request pays for.
    fn check_trust(&self, term: Term, until: Time) -> Result<(), TestCaseError> {
        let paid = self.granted.iter().any(|(granted, most)| *granted == term && until <= *most);
        prop_assert!(paid, "I3: trust in {:?} until {:?} that no grant pays for", term, until);
        Ok(())
    }

    fn outcome(&mut self, answer: &Answer, rig: &Rig) -> Outcome {
        let mut store_clock = |stepped_ms: u64| {
            self.store_ms += stepped_ms;
            Some(ms(self.store_ms + self.now_ms))
        };
        match *answer {
            Answer::Unknown => Outcome::Unknown,
            Answer::Granted { term: number, asked, expired, stepped_ms } => {
                // Mostly what an honest store would say, sometimes not.
                let term = match (rig.op(), number) {
                    (_, 0) => term(1),
                    (Op::Renew { term, .. }, _) => *term,
                    _ => term(number + self.led.last().map_or(0, |term| term.get())),
                };
                let (sent_at, _) = rig.flight.as_ref().unwrap();
                self.granted.push((term, *sent_at + ms(TRUST_MS)));
                let store_clock = store_clock(stepped_ms);
                let expired = expired.then_some(ms(TTL_MS));
                Outcome::Granted(Grant { term, asked, expired, store_clock })
            }
            Answer::Refused { mine, term, remaining_ms, stepped_ms } => {
                let who = if mine { me() } else { candidate("me", u128::from(term)) };
                let sight = held_by(&who, term, remaining_ms);
                Outcome::Refused(Sight { store_clock: store_clock(stepped_ms), ..sight })
            }
            Answer::Vacant { last } => {
                Outcome::Refused(Sight { last_term: Some(term(last)), ..Sight::default() })
            }
        }
    }
}

fn run(steps: Vec<(u64, Step)>, fail_closed: bool) -> Result<(), TestCaseError> {
    let mut rig = Rig::new(Settings { fail_closed, ..settings() });
    let mut watch = Watch::default();
    for (after_ms, step) in steps {
        watch.now_ms += after_ms;
        let (actions, drained) = match step {
            Step::Answer(answer) if rig.flight.is_some() => {
                let outcome = watch.outcome(&answer, &rig);
                (rig.answer(watch.now_ms, outcome), false)
            }
            Step::Give(input) => {
                let drained = matches!(input, Input::Drained | Input::RunOut);
                if drained && rig.machine.leading().is_some() {
                    continue; // a driver says so only after the step-down
                }
                (rig.give(watch.now_ms, input), drained)
            }
            Step::Wake { late } => {
                let Some((from, to)) = watch.wake else { continue };
                let then = if late { to } else { from };
                watch.now_ms = watch.now_ms.max(then.as_nanos().div_ceil(1_000_000));
                (rig.tick(watch.now_ms), false)
            }
            Step::Answer(_) => continue,
        };
        watch.check(&actions, drained)?;
    }
    Ok(())
}

/// Miri is a thousand times as slow.
const CASES: u32 = if cfg!(miri) { 4 } else { 4_000 };

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn the_promises_hold_whatever_comes(steps in steps(), fail_closed in any::<bool>()) {
        run(steps, fail_closed)?;
    }
}
