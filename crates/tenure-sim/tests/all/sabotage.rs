//! The checkers must be able to fail. `docs/proof-faults.md` is the table of what is caught here.

use tenure_core::Sabotage::{HintBelieved, LateGrantRevives, OldTermAgain};
use tenure_sim::plan::Options;
use tenure_sim::run;
use tenure_sim::sabotage::Sabotage::{self, Inside};
use tenure_sim::shrink::shrink;
use tenure_sim::soak::{explain, soak};
use tenure_sim::store::StoreFault;

/// Runs seeds until one fails, and tells which promise was broken first.
fn caught(options: &Options) -> (u64, &'static str) {
    let failed = soak(options, 2_000, 1, |_| {}).expect_err("nobody noticed");
    let violation = run(&failed).violation.expect("it failed before");
    println!("seed {}: {violation}", failed.seed);
    (failed.seed, violation.rule)
}

fn machine(sabotage: Sabotage) -> Options {
    Options { sabotage: Some(sabotage), ..Options::new(0) }
}

fn store(store_fault: StoreFault) -> Options {
    Options { store_fault, ..Options::new(0) }
}

#[test]
fn the_simulator_catches_what_the_machine_does_wrong() {
    let faults = [
        (Sabotage::TrustFromReply, "I3"),
        (Sabotage::ReleaseBeforeDrain, "drain"),
        (Inside(HintBelieved), "I3"),
        (Inside(OldTermAgain), "C1"),
        (Inside(LateGrantRevives), "I3"),
        (Sabotage::StepsDownTwice, "I6"),
        (Sabotage::LeadsTwice, "I6"),
        (Sabotage::UnknownIsYes, "I7"),
        (Sabotage::UnknownIsNo, "I7"),
        (Sabotage::SendsTwice, "calls"),
        (Sabotage::WakesTwice, "calls"),
        (Sabotage::StepsUnseen, "I1"),
        (Sabotage::ObserverCampaigns, "observer"),
        (Sabotage::StaysOpen, "closed"),
        (Sabotage::Oversleeps, "live"),
    ];
    for (fault, rule) in faults {
        assert_eq!(caught(&machine(fault)).1, rule, "{fault:?}");
    }
}

#[test]
fn the_simulator_catches_what_the_store_does_wrong() {
    let faults = [
        (StoreFault::RenewIgnoresTerm, "I4"),
        (StoreFault::ReleaseIgnoresSeq, "I1"),
        (StoreFault::AcquireIgnoresRelease, "C2"),
        (StoreFault::GrantsHeld, "I1"),
        (StoreFault::ForgetsTerms, "I2"),
        (StoreFault::GrantsNothing, "live"),
    ];
    for (fault, rule) in faults {
        assert_eq!(caught(&store(fault)).1, rule, "{fault:?}");
    }
}

#[test]
fn a_failure_is_shrunk_and_told() {
    let options = machine(Inside(LateGrantRevives));
    let (seed, _) = caught(&options);
    let options = Options { seed, ..options };
    let (small, run) = shrink(&options);
    assert!(run.violation.is_some());
    assert!(run.transcript.contains("BROKEN"), "{}", run.transcript);
    assert!(small.length_pct < 100 && small.off != 0, "{small:?}");
    let dir = std::env::temp_dir().join(format!("tenure-sim-{}", std::process::id()));
    let told = explain(&options, &dir);
    assert!(told.contains(&format!("seed {seed} fails at commit ")), "{told}");
    let transcript = std::fs::read_to_string(dir.join(format!("seed-{seed}.txt"))).unwrap();
    assert!(transcript.contains("BROKEN"));
    std::fs::remove_dir_all(&dir).unwrap();
}
