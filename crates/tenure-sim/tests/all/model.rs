//! The model in the normal test run, and a larger one on demand:
//! `cargo test -p tenure-sim --test all model:: -- --ignored`.

use stateright::{Checker, HasDiscoveries, Model};
use tenure_core::Sabotage::{
    HintBelieved, LateGrantRevives, OldTermAgain, ReleaseBeforeDrain, TrustFromReply,
};
use tenure_sim::model::{Bounds, World};
use tenure_sim::sabotage::Sabotage::{self, Inside};
use tenure_sim::store::StoreFault;

const THREADS: usize = 2;

fn holds(world: World) {
    let bounds = world.bounds;
    let checker = world.checker().threads(THREADS).spawn_bfs().join();
    println!("{bounds:?}: {} states, depth {}", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
}

/// How the names of "sometimes" goals begin: to reach one is no failure.
const GOALS: [&str; 6] =
    ["somebody", "hand-over", "a lost reply", "an overlap lasts", "two trust", "the fence stops"];

/// Which promises the model sees broken.
fn breaks(world: World) -> Vec<&'static str> {
    let checker = world
        .checker()
        .threads(THREADS)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let found: Vec<&'static str> = checker
        .discoveries()
        .into_keys()
        .filter(|name| !GOALS.iter().any(|goal| name.starts_with(goal)))
        .collect();
    println!("{} states: {found:?}", checker.unique_state_count());
    found
}

fn bounds(candidates: usize, ticks: u64, faults: u8, commands: u8) -> World {
    World::new(Bounds { candidates, ticks, faults, commands })
}

#[test]
fn two_candidates_and_two_faults() {
    holds(bounds(2, 9, 2, 0));
}

#[test]
fn two_candidates_a_fault_and_a_command_over_two_leases() {
    holds(bounds(2, 13, 1, 1));
}

#[test]
fn three_candidates_a_fault_and_a_command() {
    holds(bounds(3, 8, 1, 1));
}

#[test]
#[ignore = "takes minutes; run it after changes to the machine"]
fn long_larger_bounds() {
    holds(bounds(2, 13, 2, 0));
    holds(bounds(2, 8, 1, 2));
    holds(bounds(3, 9, 2, 0));
}

#[test]
fn a_store_that_frees_leases_by_itself_admits_two_leaders_and_the_fence_stops_one() {
    holds(World { connection_bound: true, ..bounds(2, 12, 2, 0) });
}

/// Otherwise the weaker promise would be the same one, and its model would show nothing.
#[test]
fn a_store_that_frees_leases_by_itself_breaks_the_stricter_promise() {
    let world = World { connection_bound: true, strict: true, ..bounds(2, 7, 2, 0) };
    assert!(breaks(world).contains(&"I1 one leader"));
}

#[test]
fn a_model_in_which_nobody_leads_fails() {
    let world = World { store_fault: StoreFault::GrantsNothing, ..bounds(2, 7, 0, 0) };
    let checker = world.checker().spawn_bfs().join();
    assert!(checker.discovery("somebody leads").is_none(), "so assert_properties would panic");
}

/// In calm weather the first leader leads on: nothing is handed over and nothing has to heal.
#[test]
fn a_model_in_which_nothing_goes_wrong_fails() {
    let checker = bounds(2, 9, 0, 0).checker().spawn_bfs().join();
    assert!(checker.discovery("somebody leads").is_some());
    for goal in ["hand-over happens", "a lost reply is healed"] {
        assert!(checker.discovery(goal).is_none(), "so assert_properties would panic: {goal}");
    }
}

#[test]
fn the_model_catches_what_the_machine_does_wrong() {
    let faults = [
        (Inside(TrustFromReply), "I3 trust is earned"),
        (Inside(ReleaseBeforeDrain), "never release first"),
        (Inside(HintBelieved), "I3 trust is earned"),
        (Inside(OldTermAgain), "C1 no term led twice"),
        (Inside(LateGrantRevives), "I3 trust is earned"),
        (Sabotage::StepsDownTwice, "I6 lead, then step down"),
        (Sabotage::LeadsTwice, "I6 lead, then step down"),
        (Sabotage::UnknownIsYes, "I7 unknown is neither"),
        (Sabotage::UnknownIsNo, "I7 unknown is neither"),
        (Sabotage::SendsTwice, "one request, one wake"),
        (Sabotage::WakesTwice, "one request, one wake"),
    ];
    for (fault, rule) in faults {
        let world = World { sabotage: Some(fault), ..bounds(2, 9, 2, 1) };
        let found = breaks(world);
        assert!(found.contains(&rule), "{fault:?}: {found:?}");
    }
}

#[test]
fn the_model_catches_what_the_store_does_wrong() {
    let faults = [
        (StoreFault::RenewIgnoresTerm, "I4 exact terms"),
        (StoreFault::GrantsHeld, "I1 one leader"),
        (StoreFault::ForgetsTerms, "I2 terms rise"),
    ];
    for (store_fault, rule) in faults {
        let world = World { store_fault, ..bounds(2, 9, 2, 1) };
        let found = breaks(world);
        assert!(found.contains(&rule), "{store_fault:?}: {found:?}");
    }
}
