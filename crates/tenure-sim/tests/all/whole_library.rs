//! The whole library in the normal test run. More seeds: `cargo xtask sim library --seeds N`.

use tenure::Fault;
use tenure_sim::library::soak::{differs, explain, soak};
use tenure_sim::library::{Options, run};
use tenure_sim::soak::transcripts;
use tenure_sim::store::StoreFault;

const SEEDS: u64 = 4_000;
/// How many of them are run twice.
const SAME_TWICE: u64 = 400;
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
    for rare in [seen.callbacks, seen.posts, seen.ticks, seen.keys, seen.asked, seen.transactions] {
        assert!(rare > SEEDS / 4, "{seen:?}");
    }
    assert!(seen.children > SEEDS && seen.losses > SEEDS / 40, "{seen:?}");
    for few in [seen.silences, seen.from_callbacks, seen.panics] {
        assert!(few > SEEDS / 20, "{seen:?}");
    }
    assert!(seen.overlaps > 0, "only a store that frees leases early makes these: {seen:?}");
}

#[test]
fn the_same_seed_gives_the_same_trace_byte_for_byte() {
    assert_eq!(differs(&Options::new(0), SAME_TWICE, THREADS), None, "not the same twice");
    // It had two traces when wakers were called in an order that nobody had chosen (ADR 36).
    assert_eq!(differs(&Options::new(27_023), 1, 1), None, "not the same twice");
    for seed in 0..20 {
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

/// The seeds of `docs/proof-faults.md`, by which each fault is seen first, and as what.
const CAUGHT: &[(Fault, u64, &str)] = &[
    (Fault::ReleasesRelied, 9, "I8"),
    (Fault::ReleasesUnderWork, 2, "I8"),
    (Fault::IgnoresOnLost, 2, "I8"),
    (Fault::ReleasesCutOff, 2, "I8"),
    (Fault::KeepsLeadWord, 9, "I8"),
    (Fault::ForgetsDeadline, 0, "post"),
    (Fault::StopForgetsCampaign, 9, "waits"),
    (Fault::LeadsBeforeListening, 5, "M1"),
    (Fault::ForgetsFirstReply, 209, "overdue"),
    (Fault::StoreClockUnread, 219, "I1"),
    (Fault::ChildBelieved, 3, "L3"),
    (Fault::OldTicketBelieved, 1, "panic"),
    (Fault::ForgetsParked, 7, "alive"),
    (Fault::KeepsRemoved, 0, "alive"),
    (Fault::CrowdedBatch, 9, "contract"),
    (Fault::DriverWakes, 1, "L2"),
    (Fault::AlarmSleeps, 131, "told"),
    (Fault::StatusWakesNobody, 0, "live"),
    (Fault::AnswersUnnoted, 18, "I8"),
    (Fault::PeekVouches, 6, "prompt"),
    (Fault::LostTwice, 2, "order"),
    (Fault::LostUntold, 2, "I8"),
    (Fault::ElectedGoesOn, 2, "order"),
    (Fault::SilenceUnheard, 0, "bell"),
    (Fault::RenewsUnvouched, 3, "vouch"),
    (Fault::AcquiresUnvouched, 19, "vouch"),
    (Fault::BellTooLate, 0, "bell"),
    (Fault::WindingUpForgotten, 40, "again"),
    (Fault::DropTellsNobody, 0, "alive"),
    (Fault::NameStaysTaken, 2, "name"),
    (Fault::ExitForgotten, 4, "withdraws"),
    (Fault::FeedLosesLoss, 4, "order"),
    (Fault::AcknowledgesFirst, 0, "post"),
    (Fault::HandlerUncounted, 40, "I8"),
    (Fault::HandlerBellElsewhere, 5, "bell"),
    (Fault::OnceRecordsFirst, 2, "once"),
    (Fault::OnceUnchecked, 473, "I1"),
    (Fault::ClaimUnawaited, 9, "tick"),
    (Fault::TickUnchecked, 58, "I1"),
    (Fault::UnknownAbandoned, 102, "tick"),
    (Fault::OpenForgotten, 9, "tick"),
    (Fault::RequestsUnseen, 9, "asked"),
    (Fault::ConfirmUnasked, 9, "exactly"),
    (Fault::MostOnceAgain, 9, "tick"),
    (Fault::SkipsUnnoted, 9, "tick"),
    (Fault::JobBellElsewhere, 9, "bell"),
];

/// The same for faults of its store.
const CAUGHT_IN_STORE: &[(StoreFault, u64, &str)] =
    &[(StoreFault::NeverSettles, 109, "I1"), (StoreFault::CountsAnew, 3, "I1")];

/// Every fault on purpose is noticed, by the seed that is written down and as what is written
/// down. If what a seed means has changed, look for another: `cargo xtask sim library --fault
/// FAULT --seeds 2000`.
#[test]
fn the_judge_catches_what_the_library_does_wrong() {
    for fault in Fault::ALL {
        assert!(CAUGHT.iter().any(|(known, ..)| *known == fault), "no seed shows {fault:?}");
    }
    let of_library = CAUGHT.iter().map(|(fault, seed, rule)| {
        (format!("{fault:?}"), Options { fault: Some(*fault), ..Options::new(*seed) }, *rule)
    });
    let of_store = CAUGHT_IN_STORE.iter().map(|(fault, seed, rule)| {
        (format!("{fault:?}"), Options { store_fault: Some(*fault), ..Options::new(*seed) }, *rule)
    });
    let page = include_str!("../../../../docs/proof-faults.md");
    let mut wrong = Vec::new();
    for (name, options, rule) in of_library.chain(of_store) {
        assert!(options.seed < 2_000);
        let found = run(&options).violation.map(|violation| violation.rule);
        let row = format!("| {rule} | {} |", options.seed);
        let written = page.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        if found != Some(rule) {
            wrong.push(format!("{name}: seed {} shows {found:?}, not {rule}", options.seed));
        } else if !written.is_some_and(|line| line.ends_with(&row)) {
            wrong.push(format!("{name}: docs/proof-faults.md does not say `{row}`"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
