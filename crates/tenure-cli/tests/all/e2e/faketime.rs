//! A wall clock that is stepped changes nothing but what people read.

use std::process::Command;
use std::time::Duration;

use tenure_testbed::fake_wall_clock;

use super::fleet::{CandidateEvent, Fleet, Role, TTL, wall};

#[needs(faketime)]
#[test]
fn needs_faketime_a_wall_clock_stepped_by_an_hour_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("wall-clock");
    let envs = fake_wall_clock(&file);
    let step = |by: &str| std::fs::write(&file, format!("{by}\n")).unwrap();
    step("+0h");
    let mut fleet = Fleet::new(directory, Role::Campaign, envs.clone());
    for _ in 0..3 {
        fleet.add();
    }
    let first = fleet.leader();
    assert!((wall_offset_hours(&first) - real_offset_hours()).abs() < 0.1);

    for (by, hours) in [("+1h", 1.0), ("-1h", -1.0), ("+0h", 0.0), ("+1h", 1.0)] {
        step(by);
        // The control: other programs under the same library see it.
        assert!((date_is_ahead_hours(&envs) - hours).abs() < 0.1, "{by}");
        let before = fleet.told().len();
        // Longer than a lease lasts: it is renewed meanwhile, or lost.
        fleet.listen(TTL + Duration::from_millis(500));
        assert_eq!(
            fleet.told()[before..].iter().map(|told| &told.event).collect::<Vec<_>>(),
            [""; 0]
        );
    }

    // And so did tenure itself: its events show the stepped clock, and are otherwise in order.
    fleet.dismiss(first.process);
    let next = fleet.successor(&first);
    assert_eq!((first.term, next.term), (1, 2), "leadership had not changed");
    let own = |told: &&CandidateEvent| told.process == first.process && told.is("stepped_down");
    let moved = |told: &CandidateEvent| wall_offset_hours(told) - wall_offset_hours(&first);
    fleet.listen(Duration::from_millis(100));
    let stepped_down = fleet.told().iter().find(own).unwrap().clone();
    assert!((moved(&stepped_down) - 1.0).abs() < 0.1, "{stepped_down:?}");
    assert!((moved(&next) - 1.0).abs() < 0.1, "{next:?}");
    assert!(stepped_down.at <= next.at, "by the clock that counts, one came after the other");
}

/// How far the wall clock of `date` is ahead of the real one.
fn date_is_ahead_hours(envs: &[(String, String)]) -> f64 {
    let output = Command::new("date").arg("+%s").envs(envs.iter().cloned()).output().unwrap();
    let faked: i64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    (faked - jiff::Timestamp::now().as_second()) as f64 / 3600.0
}

/// The wall clock less the boot clock, as an event shows them.
fn wall_offset_hours(told: &CandidateEvent) -> f64 {
    (wall(told).as_nanosecond() - i128::from(told.at.as_nanos())) as f64 / 3.6e12
}

fn real_offset_hours() -> f64 {
    let boot = crate::common::now();
    (jiff::Timestamp::now().as_nanosecond() - i128::from(boot.as_nanos())) as f64 / 3.6e12
}
