//! Stories, drawn by seed: what happens to one candidate, and when.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use tenure_core::{Time, Timing};

use super::engine::{Act, Engine, Event, Fault, Setup};
use super::json::at;

/// One step of a story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// When.
    pub at: Time,
    /// What happened.
    pub event: Event,
    /// What the engine did.
    pub acts: Vec<Act>,
}

impl Step {
    pub(super) fn json(&self) -> Value {
        let acts: Vec<Value> = self.acts.iter().map(Act::json).collect();
        json!([at(self.at), self.event.json(), acts])
    }
}

/// One story.
#[derive(Clone, Debug)]
pub struct Story {
    /// The seed that it was drawn from.
    pub seed: u64,
    /// What its engine was made with.
    pub setup: Setup,
    /// Its steps, in order.
    pub steps: Vec<Step>,
}

const STEPS_MAX: usize = 30;

/// Draws a story, and has the reference tell it.
pub fn tell(seed: u64) -> Story {
    let mut teller = Teller::new(seed);
    teller.step(Event::Start);
    for _ in 0..STEPS_MAX {
        if teller.engine.is_over() && teller.rng.u8(..) < 128 {
            break;
        }
        teller.go_on();
    }
    Story { seed, setup: teller.setup, steps: teller.steps }
}

/// The same story told by a wrong engine, up to the first step that it takes otherwise.
pub(super) fn tell_wrongly(story: &Story, fault: Fault) -> Option<Story> {
    let mut engine = Engine::new(story.setup.clone(), Some(fault));
    let mut steps = Vec::new();
    for step in &story.steps {
        let acts = engine.handle(step.at, step.event);
        let differs = acts != step.acts;
        steps.push(Step { acts, ..*step });
        if differs {
            return Some(Story { seed: story.seed, setup: story.setup.clone(), steps });
        }
    }
    None
}

struct Teller {
    rng: Rng,
    setup: Setup,
    engine: Engine,
    now: Time,
    sent_at: Time,
    /// The last term that the store issued.
    term: u64,
    is_stopped: bool,
    steps: Vec<Step>,
}

impl Teller {
    fn new(seed: u64) -> Teller {
        let mut rng = Rng::with_seed(seed);
        let setup = setup(&mut rng);
        let engine = Engine::new(setup.clone(), None);
        let now = Time::ZERO + Duration::from_secs(1);
        let (sent_at, steps) = (now, Vec::new());
        Teller { rng, setup, engine, now, sent_at, term: 0, is_stopped: false, steps }
    }

    fn step(&mut self, event: Event) {
        let acts = self.engine.handle(self.now, event);
        let sends = |act: &Act| {
            matches!(act, Act::Acquire { .. } | Act::Renew { .. } | Act::Release { .. })
        };
        if acts.iter().any(sends) {
            self.sent_at = self.now;
        }
        self.steps.push(Step { at: self.now, event, acts });
    }

    /// The next thing that happens.
    fn go_on(&mut self) {
        let draw = self.rng.u32(0..100);
        match draw {
            0..10 => return self.after(0..40, Event::Ask),
            10..15 => return self.after(0..40, Event::Begin),
            15..33 if self.engine.busy() > 0 => return self.after(0..200, Event::End),
            33..39 if !self.is_stopped && self.steps.len() > 4 => {
                self.is_stopped = true;
                return self.after(0..100, Event::Stop);
            }
            39..42 => return self.after(0..100, Event::Tick),
            _ => {}
        }
        let answers_at = self.engine.is_waiting().then(|| self.now + self.delay());
        match (answers_at, self.engine.wake()) {
            (Some(answers_at), Some((from, _))) if answers_at < from || self.rng.u8(..) < 40 => {
                self.answer(answers_at);
            }
            (Some(answers_at), None) => self.answer(answers_at),
            (_, Some((from, to))) => {
                let from = from.max(self.now);
                let span = at(to.max(from)) - at(from);
                let most = if self.rng.u8(..) < 24 { self.ttl() } else { 0 };
                let late = at_most(&mut self.rng, most);
                self.now = from + Duration::from_millis(self.rng.u64(0..=span) + late);
                self.step(Event::Tick);
            }
            (None, None) => self.after(1..500, Event::Ask),
        }
    }

    fn after(&mut self, span: std::ops::Range<u64>, event: Event) {
        self.now = self.now + Duration::from_millis(self.rng.u64(span));
        self.step(event);
    }

    fn ttl(&self) -> u64 {
        super::ms(self.setup.timing.ttl)
    }

    /// How long an answer takes: mostly little, at times almost too long, and too long for one
    /// that was frozen.
    fn delay(&mut self) -> Duration {
        let ttl = self.ttl();
        Duration::from_millis(match self.rng.u32(0..10) {
            0..6 => self.rng.u64(0..20),
            6..9 => at_most(&mut self.rng, ttl / 6),
            _ => at_most(&mut self.rng, ttl * 6 / 5),
        })
    }

    fn answer(&mut self, answers_at: Time) {
        self.now = answers_at;
        let sent_at = self.sent_at;
        let unknown = Event::Unknown { sent_at };
        let draw = self.rng.u32(0..100);
        let event = if self.engine.is_acquiring() {
            match draw {
                0..62 => {
                    self.term += 1;
                    Event::Granted { sent_at, term: self.term }
                }
                // One that was led before, from a store that forgot.
                62..65 if self.term > 0 => Event::Granted { sent_at, term: self.term },
                62..82 => self.refused(sent_at),
                _ => unknown,
            }
        } else {
            match draw {
                0..72 => Event::Granted { sent_at, term: self.engine.term().max(1) },
                72..80 => self.refused(sent_at),
                _ => unknown,
            }
        };
        self.step(event);
    }

    fn refused(&mut self, sent_at: Time) -> Event {
        let ttl = self.ttl();
        let known = self.rng.u8(..) < 200;
        let remaining = known.then(|| Duration::from_millis(at_most(&mut self.rng, ttl)));
        Event::Refused { sent_at, remaining }
    }
}

fn at_most(rng: &mut Rng, most: u64) -> u64 {
    rng.u64(0..=most)
}

/// Timings whose every part is whole milliseconds.
fn setup(rng: &mut Rng) -> Setup {
    let (ttl, renew, margin, drain, poll) = match rng.u32(0..3) {
        0 => (4_800, 1_600, 240, 640, 1_600),
        1 => (38_400, 12_800, 1_920, 4_000, 12_800),
        _ => (4_800, 640, 240, 640, 640),
    };
    let ms = Duration::from_millis;
    Setup {
        timing: Timing {
            ttl: ms(ttl),
            renew_every: ms(renew),
            margin: ms(margin),
            drain: ms(drain),
        },
        poll: ms(poll),
        fail_closed: rng.u32(0..4) == 0,
        has_become: rng.bool(),
        has_lose: rng.u32(0..3) > 0,
    }
}
