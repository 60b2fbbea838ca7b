//! Origins across real forks.

use tenure_fork::Origin;

use crate::common::{alone, in_child};

#[test]
fn a_child_is_elsewhere_and_makes_origins_of_its_own() {
    alone("origin::a_child_is_elsewhere_and_makes_origins_of_its_own", || {
        let origin = Origin::here().unwrap();
        assert!(origin.is_here());
        in_child(|| {
            assert!(!origin.is_here());
            let own = Origin::here().unwrap();
            assert!(own.is_here() && own != origin);
        })
        .unwrap();
        assert!(origin.is_here(), "nothing has changed for the parent");
        assert_eq!(origin, Origin::here().unwrap());
    });
}

#[test]
fn a_grandchild_is_elsewhere_for_both() {
    alone("origin::a_grandchild_is_elsewhere_for_both", || {
        let first = Origin::here().unwrap();
        in_child(|| {
            let second = Origin::here().unwrap();
            in_child(|| {
                assert!(!first.is_here() && !second.is_here());
                assert!(Origin::here().unwrap().is_here());
            })
            .unwrap();
            assert!(second.is_here() && !first.is_here());
        })
        .unwrap();
        assert!(first.is_here());
    });
}

#[test]
fn a_child_that_asks_first_does_not_take_itself_for_its_parent_later() {
    alone("origin::a_child_that_asks_first_does_not_take_itself_for_its_parent_later", || {
        // Nobody has asked for an origin before this fork, so nobody counts it.
        in_child(|| {
            let own = Origin::here().unwrap();
            assert!(own.is_here());
            in_child(|| assert!(!own.is_here())).unwrap();
            assert!(own.is_here());
        })
        .unwrap();
    });
}

#[test]
fn a_program_that_is_started_changes_nothing_here() {
    alone("origin::a_program_that_is_started_changes_nothing_here", || {
        let origin = Origin::here().unwrap();
        assert!(std::process::Command::new("true").status().unwrap().success());
        assert!(origin.is_here());
    });
}

#[test]
fn forks_while_others_ask_for_the_first_time_leave_nobody_waiting() {
    alone("origin::forks_while_others_ask_for_the_first_time_leave_nobody_waiting", || {
        let threads: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(|| (0..1000).all(|_| Origin::here().unwrap().is_here())))
            .collect();
        for _ in 0..50 {
            in_child(|| assert!(Origin::here().unwrap().is_here())).unwrap();
        }
        for thread in threads {
            assert!(thread.join().unwrap());
        }
    });
}
