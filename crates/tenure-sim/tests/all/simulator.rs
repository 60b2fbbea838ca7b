//! The simulator in the normal test run. More seeds: `cargo run -p tenure-sim -- --seeds N`.

use tenure_sim::plan::Options;
use tenure_sim::run;
use tenure_sim::soak::{explain, soak, transcripts};

const SEEDS: u64 = 10_000;
const THREADS: usize = 2;

#[test]
fn ten_thousand_seeds_keep_every_promise() {
    let seen = match soak(&Options::new(0), SEEDS, THREADS, |_| {}) {
        Ok(seen) => seen,
        Err(options) => panic!("{}", explain(&options, &transcripts())),
    };
    println!("{seen:?}");
    // A simulator in which little happens proves little.
    assert!(seen.leads > 5 * SEEDS, "{seen:?}");
    assert!(seen.handovers > 2 * SEEDS, "{seen:?}");
    for rare in [seen.healed, seen.not_renewed, seen.asked, seen.aborts] {
        assert!(rare > SEEDS / 10, "{seen:?}");
    }
    for rarer in [seen.deposed, seen.overlaps] {
        assert!(rarer > 0, "only wild steps and stopped clocks make these: {seen:?}");
    }
    assert!(seen.stopped_clocks > SEEDS / 50, "{seen:?}");
}

#[test]
fn the_same_seed_gives_the_same_history_byte_for_byte() {
    for seed in 0..200 {
        let options = Options { record: true, elections_max: 4, ..Options::new(seed) };
        let (one, other) = (run(&options), run(&options));
        assert!(one.transcript.lines().count() > 10);
        assert!(one.transcript == other.transcript, "seed {seed} differs from itself");
        assert_eq!(one.seen, other.seen);
    }
}

#[test]
fn a_transcript_changes_nothing() {
    for seed in 0..50 {
        let plain = Options { elections_max: 4, ..Options::new(seed) };
        let told = Options { record: true, ..plain.clone() };
        assert_eq!(run(&plain).seen, run(&told).seen);
    }
}

#[test]
fn seeds_differ() {
    let told = |seed| run(&Options { record: true, ..Options::new(seed) }).transcript;
    assert_ne!(told(1), told(2));
}

/// Each line of `regressions/seeds.txt` is a seed that showed a bug once, and its story.
#[test]
fn old_bugs_stay_fixed() {
    let seeds = include_str!("../../regressions/seeds.txt");
    for line in seeds.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (seed, story) = line.split_once(' ').expect("a seed and its story");
        let options = Options::new(seed.parse().unwrap());
        if let Some(violation) = run(&options).violation {
            panic!("{violation}\n{story}\n{}", explain(&options, &transcripts()));
        }
    }
}
