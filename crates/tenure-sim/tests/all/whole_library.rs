//! The whole library in the normal test run. More seeds: `cargo xtask sim library --seeds N`.

use tenure::Fault;
use tenure_sim::library::soak::{explain, soak};
use tenure_sim::library::{Options, run};
use tenure_sim::soak::transcripts;

const SEEDS: u64 = 1_500;
const THREADS: usize = 2;

#[test]
fn many_seeds_of_the_library_keep_every_promise() {
    let seen = match soak(&Options::new(0), SEEDS, THREADS, |_| {}) {
        Ok(seen) => seen,
        Err(options) => panic!("{}", explain(&options, &transcripts())),
    };
    println!("{seen:?}");
    // A simulation in which little happens proves little.
    assert!(seen.effects > 100 * SEEDS, "{seen:?}");
    for often in [seen.handovers, seen.stays, seen.releases, seen.calls, seen.wakes] {
        assert!(often > 2 * SEEDS, "{seen:?}");
    }
    for rare in [seen.callbacks, seen.posts, seen.ticks, seen.keys] {
        assert!(rare > SEEDS / 4, "{seen:?}");
    }
    assert!(seen.overlaps > 0, "only a store that frees leases early makes these: {seen:?}");
}

#[test]
fn the_same_seed_gives_the_same_trace_byte_for_byte() {
    for seed in 0..40 {
        let options = Options { record: true, ..Options::new(seed) };
        let (one, other) = (run(&options), run(&options));
        assert!(one.transcript.lines().count() > 100);
        assert!(one.transcript == other.transcript, "library seed {seed} differs from itself");
        assert_eq!((one.trace, one.seen), (other.trace, other.seen));
        // A transcript changes nothing.
        assert_eq!(run(&Options::new(seed)).trace, one.trace, "library seed {seed}");
    }
    assert_ne!(run(&Options::new(1)).trace, run(&Options::new(2)).trace);
}

/// Each line of `regressions/library.txt` is a seed that showed a bug once, and its story.
#[test]
fn old_bugs_of_the_library_stay_fixed() {
    let seeds = include_str!("../../regressions/library.txt");
    for line in seeds.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (seed, story) = line.split_once(' ').expect("a seed and its story");
        let options = Options::new(seed.parse().unwrap());
        if let Some(violation) = run(&options).violation {
            panic!("{violation}\n{story}\n{}", explain(&options, &transcripts()));
        }
    }
}

/// The seeds of `docs/proof-faults.md`, by which each fault is seen first.
const CAUGHT: &[(Fault, u64, &str)] = &[
    (Fault::ReleasesRelied, 18, "I8"),
    (Fault::ReleasesUnderWork, 2, "I8"),
    (Fault::IgnoresOnLost, 2, "I8"),
    (Fault::ReleasesCutOff, 2, "I8"),
    (Fault::KeepsLeadWord, 18, "I8"),
    (Fault::ForgetsDeadline, 0, "post"),
    (Fault::StopForgetsCampaign, 9, "waits"),
    (Fault::LeadsBeforeListening, 5, "M1"),
    (Fault::OldTicketBelieved, 1, "panic"),
    (Fault::ForgetsParked, 24, "alive"),
    (Fault::KeepsRemoved, 0, "alive"),
    (Fault::CrowdedBatch, 1, "contract"),
    (Fault::DriverWakes, 1, "L2"),
    (Fault::AlarmSleeps, 85, "told"),
    (Fault::StatusWakesNobody, 0, "live"),
    (Fault::AnswersUnnoted, 9, "I8"),
    (Fault::PeekVouches, 17, "prompt"),
    (Fault::LostTwice, 2, "order"),
    (Fault::LostUntold, 2, "I8"),
    (Fault::ElectedGoesOn, 2, "order"),
    (Fault::SilenceUnheard, 0, "bell"),
    (Fault::BellTooLate, 33, "bell"),
    (Fault::WindingUpForgotten, 34, "again"),
    (Fault::DropTellsNobody, 0, "alive"),
    (Fault::NameStaysTaken, 2, "name"),
    (Fault::FeedLosesLoss, 9, "order"),
    (Fault::AcknowledgesFirst, 0, "post"),
    (Fault::HandlerUncounted, 32, "I8"),
    (Fault::HandlerBellElsewhere, 5, "bell"),
    (Fault::OnceRecordsFirst, 2, "once"),
    (Fault::ClaimUnawaited, 9, "tick"),
    (Fault::UnknownAbandoned, 9, "tick"),
    (Fault::MostOnceAgain, 9, "tick"),
    (Fault::SkipsUnnoted, 9, "tick"),
    (Fault::JobBellElsewhere, 9, "bell"),
];

/// Every fault on purpose is noticed: by the seed that is written down, or else, if what a seed
/// means has changed, by another of the first two thousand.
#[test]
fn the_judge_catches_what_the_library_does_wrong() {
    assert!(CAUGHT.len() >= 25);
    for (fault, seed, rule) in CAUGHT {
        let options = Options { fault: Some(*fault), ..Options::new(*seed) };
        let found = run(&options).violation.map(|violation| violation.rule);
        if found == Some(rule) {
            continue;
        }
        let options = Options { seed: 0, ..options };
        match soak(&options, 2_000, THREADS, |_| {}) {
            Ok(_) => panic!("nobody noticed {fault:?}"),
            Err(options) => {
                let violation = run(&options).violation.expect("it failed before");
                println!("write down for {fault:?}: {}, {:?}", options.seed, violation.rule);
            }
        }
    }
}
