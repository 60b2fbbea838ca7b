//! What a seed means for the simulation of the library.

use std::time::Duration;

use fastrand::Rng;
use tenure::Timing;
use tenure_core::Expiry;
use tenure_testkit::Faults;

use crate::store::StoreFault;

/// The rates of two clocks differ by at most one per cent.
const PPM_MAX: i32 = 5_000;

/// What to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which run.
    pub seed: u64,
    /// A fault of the library, on every host.
    pub fault: Option<tenure::Fault>,
    /// A fault of the store.
    pub store_fault: Option<StoreFault>,
    /// Whether to write a transcript.
    pub record: bool,
}

impl Options {
    /// The run of this seed.
    pub fn new(seed: u64) -> Options {
        Options { seed, fault: None, store_fault: None, record: false }
    }
}

/// A kind of program, or what a process takes part in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Polling,
    Looking,
    Campaigning,
    Leading,
    LeadingEach,
    IfLeading,
    Reading,
    Following,
    Meddling,
}

/// Something that goes wrong at some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incident {
    pub(crate) after: Duration,
    pub(crate) host: usize,
    pub(crate) kind: Trouble,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    /// The host stands still.
    Freeze(Duration),
    /// It does so when the clock is read for the so manieth time.
    Pause { reads: u64, span: Duration, stale: bool },
    /// The process dies, and another one begins after a while.
    Kill(Duration),
    /// The user's runtime ends; the process is replaced after a while.
    EndRuntime(Duration),
    /// Nothing gets through to the store.
    Cut(Duration),
    /// The next call to the store blocks the thread that makes it.
    BlockStore(Duration),
    /// The store's clock steps ahead.
    StepStore(Duration),
    /// The time of day of a host steps.
    StepWall(i64),
    /// The store ends the connection of a host, and its leases with it.
    Disconnect,
    /// The host stands still when its next claim was granted and before it learns of that (K1).
    PauseAtClaim(Duration),
    /// The store's clock steps by so many nanoseconds, ahead or back.
    StepFar(i64),
    /// The store loses its memory, and settles (R2).
    Forget,
}

/// What only some runs have: see [`Plan::has_more`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct More {
    pub(crate) on: bool,
    /// The store may lose its memory.
    pub(crate) forgetful: bool,
    /// Handles are used in forked children.
    pub(crate) forks: bool,
    /// There is an election that everybody leaves again soon.
    pub(crate) visits: bool,
    /// There is an election whose programs vouch for themselves, and fall silent.
    pub(crate) vouches: bool,
    /// Work under a lease panics.
    pub(crate) panics: bool,
    /// Callbacks call the election that they belong to.
    pub(crate) calls_back: bool,
}

/// One host, as it begins.
#[derive(Clone, Debug)]
pub(crate) struct HostPlan {
    pub(crate) ppm: i32,
    pub(crate) ahead: Duration,
    pub(crate) width: u32,
    pub(crate) programs: Vec<Program>,
    /// Whether its elections have callbacks, and `on_lost` among them.
    pub(crate) callbacks: Option<bool>,
    /// Whether it has all jobs at first.
    pub(crate) has_least: bool,
}

/// Everything that is decided before a run begins.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) timing: Timing,
    pub(crate) expiry: Expiry,
    pub(crate) store_ppm: i32,
    pub(crate) hosts: Vec<HostPlan>,
    /// Which elections there are beside `work`.
    pub(crate) churn: bool,
    pub(crate) mail: bool,
    pub(crate) cron: bool,
    pub(crate) once: bool,
    pub(crate) hostile: bool,
    /// Nobody relies on answers, so a hand-over must be prompt.
    pub(crate) prompt: bool,
    /// A log that blocks now and then.
    pub(crate) slow_log: bool,
    pub(crate) storm: Duration,
    pub(crate) faults: Faults,
    pub(crate) slow_one_in: u32,
    pub(crate) fails_one_in: u32,
    pub(crate) incidents: Vec<Incident>,
    pub(crate) more: More,
}

impl Plan {
    /// Whether a seed means more than it did when the first bugs were found by their seeds. The
    /// others still mean the same, so that those bugs are still looked for.
    fn has_more(seed: u64) -> bool {
        seed % 5 >= 3
    }

    pub(crate) fn draw(seed: u64) -> Plan {
        let mut plan = Plan::draw_first(seed);
        if Plan::has_more(seed) {
            plan.draw_more(&mut Rng::with_seed(seed ^ 0x3c6e_f372));
            // By itself, so that the rest stays as it was.
            let mut rng = Rng::with_seed(seed ^ 0x510e_527f);
            plan.more.vouches = plan.hostile && rng.u32(..3) == 0;
            plan.more.panics = plan.hostile && rng.bool();
            plan.more.calls_back = plan.hostile;
        }
        plan
    }

    fn draw_more(&mut self, rng: &mut Rng) {
        let ttl = self.timing.ttl;
        let hosts = self.hosts.len();
        let up_to = |rng: &mut Rng, longest: Duration| {
            Duration::from_nanos(rng.u64(..=u64::try_from(longest.as_nanos()).unwrap_or(1)))
        };
        let incident = |rng: &mut Rng, longest: Duration, kind: Trouble| Incident {
            after: up_to(rng, longest),
            host: rng.usize(..hosts),
            kind,
        };
        self.more =
            More { on: true, forks: rng.bool(), visits: rng.u32(..3) == 0, ..More::default() };
        if self.cron || self.once {
            for _ in 0..rng.u32(..=3) {
                let span = ttl + up_to(rng, Duration::from_secs(3));
                self.incidents.push(incident(rng, self.storm, Trouble::PauseAtClaim(span)));
            }
        }
        if self.expiry != Expiry::StoreClock {
            return;
        }
        match rng.u32(..3) {
            0 => {
                self.more.forgetful = true;
                for _ in 0..rng.u32(1..=2) {
                    self.incidents.push(incident(rng, self.storm, Trouble::Forget));
                }
            }
            1 => self.step_far(rng),
            _ => {
                for _ in 0..rng.u32(1..=2) {
                    let back = -nanos(up_to(rng, ttl * 2));
                    self.incidents.push(incident(rng, self.storm, Trouble::StepFar(back)));
                }
            }
        }
    }

    /// The store's clock steps far ahead and back, where W2 covers that: everybody has read it
    /// before each step, and no answer takes long.
    fn step_far(&mut self, rng: &mut Rng) {
        let ttl = self.timing.ttl;
        (self.churn, self.mail, self.cron, self.once) = (false, false, false, false);
        (self.slow_one_in, self.fails_one_in, self.slow_log) = (0, 0, false);
        // Work that blocks for long keeps its host from asking the store between two steps.
        self.hostile = false;
        (self.faults, self.more.visits) = (Faults::none(rng.u64(..)), false);
        for host in &mut self.hosts {
            let active = [Program::Campaigning, Program::Leading, Program::LeadingEach];
            host.programs = vec![active[rng.usize(..3)]];
            host.callbacks = None;
        }
        let step = |rng: &mut Rng| nanos(ttl) + rng.i64(0..nanos(ttl));
        let (first, back) = (step(rng), rng.bool());
        let by = if back { [-first, first] } else { [first, step(rng)] };
        self.incidents = [4, 8]
            .into_iter()
            .zip(by)
            .map(|(at, by)| Incident { after: ttl * at, host: 0, kind: Trouble::StepFar(by) })
            .collect();
        self.storm = ttl * 12;
    }

    fn draw_first(seed: u64) -> Plan {
        let mut rng = Rng::with_seed(seed ^ 0x11b2_a27e);
        let ttl = Duration::from_millis([600, 1_000, 3_000][rng.usize(..3)]);
        let timing = Timing::new(ttl);
        let expiry = match rng.u32(..8) {
            0..=3 => Expiry::HostClock,
            4..=6 => Expiry::StoreClock,
            _ => Expiry::Connection,
        };
        let kind = rng.u32(..8);
        let prompt = rng.u32(..5) == 0;
        let hosts = 1 + rng.usize(..3);
        let hosts = (0..hosts).map(|_| draw_host(&mut rng, expiry, prompt)).collect::<Vec<_>>();
        let storm = ttl * rng.u32(5..=16);
        let mut plan = Plan {
            timing,
            expiry,
            store_ppm: if expiry == Expiry::StoreClock { draw_ppm(&mut rng) } else { 0 },
            churn: matches!(kind, 0 | 5),
            mail: matches!(kind, 1 | 6),
            cron: matches!(kind, 2 | 7),
            once: matches!(kind, 3 | 5),
            hostile: rng.u32(..5) != 0,
            prompt,
            slow_log: rng.u32(..6) == 0,
            storm,
            faults: draw_faults(&mut rng),
            slow_one_in: [0, 40, 10][rng.usize(..3)],
            fails_one_in: [0, 40, 12][rng.usize(..3)],
            incidents: Vec::new(),
            more: More::default(),
            hosts,
        };
        let count = rng.u32(..=6);
        plan.incidents = (0..count).map(|_| plan.draw_incident(&mut rng)).collect();
        plan
    }

    fn draw_incident(&self, rng: &mut Rng) -> Incident {
        let ttl = self.timing.ttl;
        let mut span = |longest: Duration| {
            Duration::from_nanos(rng.u64(..=u64::try_from(longest.as_nanos()).unwrap_or(1)))
        };
        let (after, long, step) = (span(self.storm), span(ttl * 5 / 2), span(ttl / 100));
        let kind = match rng.u32(..20) {
            0..=2 => Trouble::Freeze(long),
            3..=6 => Trouble::Pause { reads: rng.u64(1..200), span: long, stale: rng.bool() },
            7..=9 => Trouble::Kill(long),
            10 => Trouble::EndRuntime(long),
            11..=13 => Trouble::Cut(long),
            14..=16 => Trouble::BlockStore(long),
            17 if self.expiry == Expiry::Connection => Trouble::Disconnect,
            17 | 18 => Trouble::StepStore(step),
            _ => Trouble::StepWall(rng.i64(-2_500..2_500)),
        };
        Incident { after, host: rng.usize(..self.hosts.len()), kind }
    }
}

fn draw_host(rng: &mut Rng, expiry: Expiry, prompt: bool) -> HostPlan {
    use Program::{
        Campaigning, Following, IfLeading, Leading, LeadingEach, Looking, Meddling, Polling,
        Reading,
    };
    // Candidates that share a host have one clock.
    let ppm = if expiry == Expiry::HostClock { 0 } else { draw_ppm(rng) };
    let ahead = match expiry {
        Expiry::HostClock => Duration::ZERO,
        _ => Duration::from_millis(rng.u64(..100_000)),
    };
    let active: &[Program] = if prompt {
        &[Campaigning, Leading, LeadingEach]
    } else {
        &[Polling, Polling, Campaigning, Campaigning, Leading, LeadingEach, IfLeading]
    };
    let mut programs = vec![active[rng.usize(..active.len())]];
    if rng.u32(..3) == 0 {
        programs.push(active[rng.usize(..active.len())]);
    }
    if rng.bool() {
        programs.push(Looking);
    }
    let mut callbacks = None;
    if !prompt {
        if rng.u32(..3) == 0 {
            programs.push(if rng.bool() { Reading } else { Following });
        }
        if rng.u32(..3) == 0 {
            programs.push(Meddling);
        }
        callbacks = (rng.u32(..3) == 0).then(|| rng.u32(..4) != 0);
    }
    let (width, has_least) = ([1, 1, 2][rng.usize(..3)], rng.bool());
    HostPlan { ppm, ahead, width, programs, callbacks, has_least }
}

fn draw_ppm(rng: &mut Rng) -> i32 {
    match rng.u32(..4) {
        0 => PPM_MAX,
        1 => -PPM_MAX,
        _ => rng.i32(-PPM_MAX..=PPM_MAX),
    }
}

fn draw_faults(rng: &mut Rng) -> Faults {
    let seed = rng.u64(..);
    match rng.u32(..3) {
        0 => Faults::none(seed),
        1 => Faults { lose_reply: 0.1, delay: 0.1, ..Faults::none(seed) },
        _ => Faults::mixed(seed),
    }
}

fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}
