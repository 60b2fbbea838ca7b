//! The model in the normal test run, and a larger one on demand:
//! `cargo test -p tenure-sim --test all model:: -- --ignored`.

use stateright::{Checker, HasDiscoveries, Model};
use tenure_core::Sabotage::{HintBelieved, LateGrantRevives, OldTermAgain};
use tenure_core::Term;
use tenure_sim::model::{Bounds, GOAL, Scope, World};
use tenure_sim::sabotage::Sabotage::{self, Inside};
use tenure_sim::store::StoreFault;

const THREADS: usize = 2;

fn holds(world: World) {
    let bounds = world.bounds;
    let checker = world.checker().threads(THREADS).spawn_bfs().join();
    println!("{bounds:?}: {} states, depth {}", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
}

/// Which promises the model sees broken.
fn breaks(world: World) -> Vec<&'static str> {
    let checker = world
        .checker()
        .threads(THREADS)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let found: Vec<&'static str> =
        checker.discoveries().into_keys().filter(|name| !name.starts_with(GOAL)).collect();
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

#[needs(long)]
#[test]
fn long_larger_bounds() {
    holds(bounds(2, 13, 2, 0));
    holds(bounds(2, 8, 1, 2));
    holds(bounds(3, 9, 2, 0));
}

#[needs(long)]
#[test]
fn long_larger_bounds_of_each_scope() {
    holds(with(forgets(), bounds(2, 12, 2, 0)));
    holds(with(steps(), bounds(2, 11, 2, 0)));
    holds(with(observes(), bounds(2, 9, 1, 1)));
    holds(with(resumes(), bounds(2, 11, 1, 1)));
    holds(with(fail_closed(), bounds(2, 11, 2, 0)));
    holds(with(floor(), bounds(2, 9, 1, 1)));
    holds(with(relies(), bounds(2, 9, 1, 1)));
    holds(with(live(), bounds(2, 11, 2, 0)));
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
    assert!(
        checker.discovery("goal: somebody leads").is_none(),
        "so assert_properties would panic"
    );
}

/// In calm weather the first leader leads on: nothing is handed over and nothing has to heal.
#[test]
fn a_model_in_which_nothing_goes_wrong_fails() {
    let checker = bounds(2, 9, 0, 0).checker().spawn_bfs().join();
    assert!(checker.discovery("goal: somebody leads").is_some());
    for goal in ["goal: hand-over happens", "goal: a lost reply is healed"] {
        assert!(checker.discovery(goal).is_none(), "so assert_properties would panic: {goal}");
    }
}

fn with(scope: Scope, world: World) -> World {
    World { scope, ..world }
}

fn forgets() -> Scope {
    Scope { forgets: true, ..Scope::default() }
}

fn steps() -> Scope {
    Scope { steps: true, ..Scope::default() }
}

fn observes() -> Scope {
    Scope { observes: true, ..Scope::default() }
}

fn resumes() -> Scope {
    Scope { resumes: true, ..Scope::default() }
}

fn fail_closed() -> Scope {
    Scope { fail_closed: true, ..Scope::default() }
}

fn floor() -> Scope {
    Scope { floor: Term::new(5), ..Scope::default() }
}

fn relies() -> Scope {
    Scope { relies: true, ..Scope::default() }
}

fn live() -> Scope {
    Scope { live: true, ..Scope::default() }
}

#[test]
fn a_store_that_forgot_settles_before_anybody_follows() {
    holds(with(forgets(), bounds(2, 12, 1, 0)));
}

#[test]
fn a_step_of_the_stores_clock_makes_nobody_lead_too_early() {
    holds(with(steps(), bounds(2, 10, 2, 0)));
}

#[test]
fn whoever_observes_asks_for_nothing() {
    holds(with(observes(), bounds(2, 7, 1, 1)));
}

#[test]
fn a_machine_that_is_built_again_leads_no_term_twice() {
    holds(with(resumes(), bounds(2, 9, 1, 1)));
}

#[test]
fn who_fails_closed_steps_down_at_the_first_unknown_renewal() {
    holds(with(fail_closed(), bounds(2, 9, 2, 0)));
}

#[test]
fn no_term_below_the_floor_is_led() {
    holds(with(floor(), bounds(2, 7, 1, 1)));
}

#[test]
fn a_lease_is_kept_for_those_who_were_told_that_they_lead() {
    holds(with(relies(), bounds(2, 8, 1, 1)));
}

#[test]
fn in_calm_weather_somebody_leads() {
    holds(with(live(), bounds(2, 13, 1, 0)));
}

/// What is wrong, in a world that has room for it, and the promise that it breaks.
#[test]
fn the_model_catches_what_is_wrong_with_the_rest() {
    let candidate = |sabotage, world: World| World { sabotage: Some(sabotage), ..world };
    let store = |store_fault, world: World| World { store_fault, ..world };
    let worlds = [
        (store(StoreFault::NeverSettles, with(forgets(), bounds(2, 8, 1, 0))), "I1 one leader"),
        (store(StoreFault::CountsAnew, with(forgets(), bounds(2, 12, 1, 1))), "I2 terms rise"),
        (candidate(Sabotage::StepsUnseen, with(steps(), bounds(2, 8, 1, 0))), "I1 one leader"),
        (
            candidate(Sabotage::ObserverCampaigns, with(observes(), bounds(2, 8, 0, 1))),
            "an observer asks for nothing",
        ),
        (
            candidate(Sabotage::ForgetsPast, with(resumes(), bounds(2, 8, 1, 1))),
            "C1 no term led twice",
        ),
        (candidate(Sabotage::StaysOpen, with(fail_closed(), bounds(2, 8, 1, 0))), "fail closed"),
        (
            store(
                StoreFault::IgnoresFloor,
                candidate(Inside(OldTermAgain), with(floor(), bounds(2, 8, 1, 1))),
            ),
            "C5 terms above the floor",
        ),
        (
            candidate(Sabotage::ForgetsTold, with(relies(), bounds(2, 8, 0, 1))),
            "I8 kept for those who were told",
        ),
        (
            candidate(Sabotage::ReleasesRunOut, with(relies(), bounds(2, 8, 1, 0))),
            "I8 kept for those who were told",
        ),
        (
            store(StoreFault::GrantsNothing, with(live(), bounds(2, 12, 0, 0))),
            "live: in calm weather somebody leads",
        ),
        (
            candidate(Sabotage::Oversleeps, with(live(), bounds(2, 12, 1, 0))),
            "live: in calm weather somebody leads",
        ),
    ];
    for (world, rule) in worlds {
        let what = (world.sabotage, world.store_fault);
        let found = breaks(world);
        assert!(found.contains(&rule), "{what:?}: {found:?}");
    }
}

#[test]
fn the_model_catches_what_the_machine_does_wrong() {
    let faults = [
        (Sabotage::TrustFromReply, "I3 trust is earned"),
        (Sabotage::ReleaseBeforeDrain, "never release first"),
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
