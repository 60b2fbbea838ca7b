//! What a seed means: who takes part, how long, and what goes wrong.

use std::time::Duration;

use fastrand::Rng;
use tenure_core::Timing;

use crate::clock::{PPM_MAX, SkewedClock};
use crate::sabotage::Sabotage;
use crate::store::StoreFault;

/// A kind of trouble that can be switched off as a whole, so that a failure can be shrunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Requests and replies are lost.
    Loss,
    /// Requests and replies take long and overtake each other.
    Delay,
    /// Requests arrive twice.
    Double,
    /// A call fails at once, though its request is still on its way.
    Reset,
    /// Some ops of a batch fail, done or not.
    Partial,
    /// Processes stand still while their clocks go on.
    Freeze,
    /// A process is cut off, in one direction or in both.
    Partition,
    /// A process dies and comes back as a new incarnation.
    Crash,
    /// The store is down for a while; what it has granted stays.
    StoreDown,
    /// The store takes long to answer anybody.
    SlowStore,
    /// The store's clock steps.
    Steps,
    /// Clocks run at different rates.
    Drift,
    /// People resign, ask, withdraw and campaign.
    Commands,
    /// Work takes long to end after the step-down, or does not end.
    LateWork,
    /// Hints come for no reason, late, twice or not at all.
    BadHints,
    /// Timers fire late.
    LateWakes,
    /// The clock of a candidate stands still for a while, and the process does not.
    StoppedClocks,
}

impl Class {
    /// All of them.
    pub const ALL: [Class; 17] = [
        Class::Loss,
        Class::Delay,
        Class::Double,
        Class::Reset,
        Class::Partial,
        Class::Freeze,
        Class::Partition,
        Class::Crash,
        Class::StoreDown,
        Class::SlowStore,
        Class::Steps,
        Class::Drift,
        Class::Commands,
        Class::LateWork,
        Class::BadHints,
        Class::LateWakes,
        Class::StoppedClocks,
    ];

    fn bit(self) -> u32 {
        1 << (self as u32)
    }
}

/// How the store's clock steps in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steps {
    /// It does not.
    None,
    /// Never so far that a lease loses more than its margin pays for: I1 holds.
    Small,
    /// Far ahead, but only while every candidate has read the clock before, no answer takes
    /// long and all choose the same ttl: W2 covers it, so I1 holds.
    Covered,
    /// Any way, any time: I1 is not promised, terms and fences are (W1).
    Wild,
}

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which run.
    pub seed: u64,
    /// Classes that are switched off, as bits.
    pub off: u32,
    /// At most so many candidates.
    pub nodes_max: usize,
    /// At most so many elections.
    pub elections_max: usize,
    /// How much of the eventful part is run, in per cent.
    pub length_pct: u64,
    /// A fault of the candidates.
    pub sabotage: Option<Sabotage>,
    /// A fault of the store.
    pub store_fault: StoreFault,
    /// Whether to write a transcript.
    pub record: bool,
}

impl Options {
    /// The whole run of this seed.
    pub fn new(seed: u64) -> Options {
        Options {
            seed,
            off: 0,
            nodes_max: usize::MAX,
            elections_max: usize::MAX,
            length_pct: 100,
            sabotage: None,
            store_fault: StoreFault::None,
            record: false,
        }
    }

    /// The same without one class of trouble.
    #[must_use]
    pub fn without(mut self, class: Class) -> Options {
        self.off |= class.bit();
        self
    }

    /// Whether this class is switched off.
    pub fn is_off(&self, class: Class) -> bool {
        self.off & class.bit() != 0
    }
}

/// How often a message meets which fate, in one of a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// Lost.
    pub lose: u32,
    /// Delayed by up to [`Plan::delay_max_ns`].
    pub delay: u32,
    /// Delivered twice.
    pub double: u32,
    /// Reported as failed, and delivered all the same.
    pub reset: u32,
    /// One op of a batch fails.
    pub partial: u32,
    /// A hint is lost, delayed or doubled.
    pub hint: u32,
    /// A timer fires late.
    pub late_wake: u32,
}

/// Which instant of a wake window is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeAt {
    /// The first.
    Early,
    /// The last.
    Late,
    /// Any.
    Random,
}

/// Everything about a run that is decided before it begins.
#[derive(Clone, Debug)]
pub struct Plan {
    /// One timing per candidate.
    pub timings: Vec<Timing>,
    /// One clock per candidate.
    pub clocks: Vec<SkewedClock>,
    /// The store's clock, before steps.
    pub store_clock: SkewedClock,
    /// How it steps.
    pub steps: Steps,
    /// The largest offset that steps may add up to, if they are small.
    pub step_max_ns: u64,
    /// How many elections there are.
    pub elections: usize,
    /// When trouble ends and the calm tail begins.
    pub quiet_at: u64,
    /// When it would end if the run were not cut short.
    pub full_ns: u64,
    /// People withdraw and campaign again all the time.
    pub restless: bool,
    /// The fates of messages before that.
    pub weather: Weather,
    /// The longest delay of a message.
    pub delay_max_ns: u64,
    /// The usual time that one way to the store takes, at most.
    pub way_max_ns: u64,
    /// Which instants are taken to wake.
    pub wake_at: WakeAt,
    /// Drivers give up waiting after so many call timeouts.
    pub patience: u32,
    /// Whether candidates step down at the first unknown renewal.
    pub fail_closed: bool,
    /// Whether replies carry the store's time.
    pub tells_clock: bool,
    /// How many incidents of each kind to expect.
    pub incidents: u32,
}

impl Plan {
    /// Draws the plan of a seed.
    pub fn draw(options: &Options) -> Plan {
        let mut rng = Rng::with_seed(options.seed);
        let crowd = rng.u32(..500) == 0;
        let nodes = if crowd { rng.usize(2..=3) } else { rng.usize(1..=5) };
        let elections = match rng.u32(..10) {
            _ if crowd => rng.usize(1_000..=3_000),
            0..=6 => 1,
            _ => rng.usize(2..=4),
        };
        let nodes = nodes.min(options.nodes_max);
        let elections = elections.min(options.elections_max);
        let mut timings = draw_timings(&mut rng, nodes);
        let ttl_ns = timings.iter().map(|timing| nanos(timing.ttl)).max().unwrap_or(1);
        let steps = match rng.u32(..10) {
            0..=4 => Steps::None,
            5..=6 => Steps::Small,
            7..=8 => Steps::Covered,
            _ => Steps::Wild,
        };
        let steps = if options.is_off(Class::Steps) { Steps::None } else { steps };
        if steps == Steps::Covered {
            timings = vec![timings[0]; nodes];
        }
        let drift = rng.u32(..4) != 0 && !options.is_off(Class::Drift);
        let mut clock = |_| draw_clock(&mut rng, drift);
        let clocks: Vec<SkewedClock> = (0..nodes).map(&mut clock).collect();
        let store_clock = clock(0);
        let ttls = if crowd { 3 } else { rng.u64(4..=24) };
        let full_ns = ttl_ns * ttls;
        let quiet_at = full_ns / 100 * options.length_pct;
        let clocks = stop_some(options, clocks, quiet_at, 3 * ttl_ns);
        let restless = !crowd && rng.u32(..8) == 0;
        Plan {
            step_max_ns: timings.iter().map(step_bound_ns).min().unwrap_or(0),
            weather: draw_weather(&mut rng, options),
            delay_max_ns: ttl_ns * rng.u64(1..=3),
            way_max_ns: timings.iter().map(|t| nanos(t.renew_every) / 100).min().unwrap_or(1),
            wake_at: [WakeAt::Early, WakeAt::Late, WakeAt::Random][rng.usize(..3)],
            patience: if steps == Steps::Covered { 1 } else { *pick(&mut rng, &[1, 1, 1, 4]) },
            fail_closed: rng.u32(..8) == 0,
            tells_clock: steps != Steps::None || rng.bool(),
            incidents: if crowd { 1 } else { rng.u32(0..=4) },
            timings,
            clocks,
            store_clock,
            steps,
            elections,
            quiet_at,
            full_ns,
            restless,
        }
    }

    /// The longest ttl of all candidates.
    pub fn ttl_max_ns(&self) -> u64 {
        self.timings.iter().map(|timing| nanos(timing.ttl)).max().unwrap_or(0)
    }

    /// Whether all clocks run at the rate of true time and the store's never steps.
    pub fn clocks_are_true(&self) -> bool {
        self.steps == Steps::None
            && self.store_clock.is_true()
            && self.clocks.iter().all(SkewedClock::is_true)
    }
}

/// One of several.
pub fn pick<'a, T>(rng: &mut Rng, choices: &'a [T]) -> &'a T {
    &choices[rng.usize(..choices.len())]
}

/// A span as nanoseconds.
pub fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn draw_timings(rng: &mut Rng, nodes: usize) -> Vec<Timing> {
    let one = |rng: &mut Rng| {
        let ttl = Duration::from_millis(*pick(rng, &[300, 1_000, 3_000, 30_000]));
        let plain = Timing::new(ttl);
        match rng.u32(..4) {
            0 => Timing { margin: ttl / 100, ..plain },
            1 => Timing { margin: ttl / 10, drain: ttl / 5, renew_every: ttl / 6, ..plain },
            2 => Timing { drain: ttl / 50, renew_every: ttl / 4, ..plain },
            _ => plain,
        }
    };
    let first = one(rng);
    // Now and then the fleet is mixed: the holder's ttl decides, not the follower's.
    let mixed = rng.u32(..5) == 0;
    (0..nodes)
        .map(|_| {
            let other = one(rng);
            let close = other.ttl <= first.ttl * 10 && first.ttl <= other.ttl * 10;
            if mixed && close { other } else { first }
        })
        .collect()
}

fn draw_clock(rng: &mut Rng, drift: bool) -> SkewedClock {
    let start_ns = rng.u64(..10_000_000_000_000);
    let ppm = match rng.u32(..4) {
        0 => PPM_MAX,
        1 => -PPM_MAX,
        _ => rng.i64(-PPM_MAX..=PPM_MAX),
    };
    SkewedClock::new(start_ns, if drift { ppm } else { 0 })
}

fn draw_weather(rng: &mut Rng, options: &Options) -> Weather {
    let mut rate = |class: Class, most: u32| {
        let rate = [0, most / 8, most / 2, most][rng.usize(..4)];
        if options.is_off(class) { 0 } else { rate }
    };
    Weather {
        lose: rate(Class::Loss, 300),
        delay: rate(Class::Delay, 300),
        double: rate(Class::Double, 300),
        reset: rate(Class::Reset, 200),
        partial: rate(Class::Partial, 100),
        hint: rate(Class::BadHints, 500),
        late_wake: rate(Class::LateWakes, 200),
    }
}

/// Has clocks stand still in one run of sixteen, but not in the calm end. By dice of its own: what
/// a seed means otherwise is older than this.
fn stop_some(
    options: &Options,
    clocks: Vec<SkewedClock>,
    quiet_at: u64,
    longest_ns: u64,
) -> Vec<SkewedClock> {
    let mut rng = Rng::with_seed(options.seed ^ 0x57a2_d5c1_0c45);
    if rng.u32(..16) != 0 || options.is_off(Class::StoppedClocks) {
        return clocks;
    }
    let stop = |clock: SkewedClock| {
        let (at, ns) = (rng.u64(..=quiet_at), rng.u64(..=longest_ns));
        let ns = ns.min(quiet_at - at);
        if rng.bool() { clock.stopping(at, ns) } else { clock }
    };
    clocks.into_iter().map(stop).collect()
}

/// By how much the store's clock may step ahead in all: the margin pays for it beside a rate that
/// is 1 % off.
fn step_bound_ns(timing: &Timing) -> u64 {
    let (ttl, margin) = (nanos(timing.ttl), nanos(timing.margin));
    (margin + margin / 100).saturating_sub(ttl / 100 + 2_000)
}
