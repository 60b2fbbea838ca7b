//! Watching an election without taking part in it.

use std::time::Duration;

use tenure::Event;

use crate::common::{TTL, World, event};

#[tokio::test]
async fn an_observer_sees_who_leads_and_never_leads_itself() {
    let world = World::new();
    let observer = world.election("watcher").build().unwrap();
    let mut seen = observer.events();
    observer.observe().await.unwrap();
    let first = event(&mut seen, |event| match event {
        Event::LeaderChanged { leader } => Some(leader),
        _ => None,
    })
    .await;
    assert_eq!(first, None);
    assert!(!observer.is_leader(), "nobody led, and still it does not");

    let leader = world.election("a").start().await.unwrap();
    world.pass_until(|| observer.last_seen_leader().is_some()).await;
    assert!(observer.last_seen_leader().unwrap().holder.is(leader.candidate()));
    leader.stop().await.unwrap();
    world.pass_until(|| observer.last_seen_leader().is_none()).await;
    assert!(!observer.is_leader());
    observer.stop().await.unwrap();
}

#[tokio::test]
async fn an_observer_that_starts_takes_part_and_goes_back_when_it_stops() {
    let world = World::new();
    let election = world.election("a").build().unwrap();
    election.observe().await.unwrap();
    assert!(!election.is_leader());
    election.start().await.unwrap();
    assert!(election.is_leader());
    election.stop().await.unwrap();
    assert_eq!(election.current_leader().await.unwrap(), None);
    election.observe().await.unwrap();
    assert!(!election.is_leader());
}

#[tokio::test]
async fn events_carry_the_instant_at_which_they_happened() {
    let world = World::new();
    let election = world.election("a").build().unwrap();
    let mut events = election.events();
    election.start().await.unwrap();
    let then = world.now();
    world.clock.advance(std::time::Duration::from_secs(1));
    let (at, first) = events.next_at().await.unwrap();
    assert!(matches!(first, Event::Campaigning));
    assert_eq!(at, then, "read late, stamped in time");
}

#[tokio::test]
async fn how_long_the_lease_lasts_is_known_though_nothing_changes_hands() {
    let world = World::new();
    let leader = world.election("a").start().await.unwrap();
    let follower = world.election("b").start().await.unwrap();
    let left = || follower.last_seen_leader().unwrap().remaining;
    let started = world.now();
    let told = left();
    assert!(told <= TTL);
    world.pass_until(|| world.now() >= started + TTL / 2).await;
    assert!(left() < told, "it counts down");
    world.pass_until(|| world.now() >= started + TTL + TTL / 2).await;
    assert!(leader.is_leader() && !left().is_zero(), "and starts again with each renewal seen");
}

#[tokio::test]
async fn observing_what_takes_part_already_waits_for_nothing() {
    let world = World::new();
    let leader = world.election("a").start().await.unwrap();
    let follower = world.election("b").start().await.unwrap();
    // No time passes, so the store is asked nothing more.
    for election in [&leader, &follower] {
        let observed = tokio::time::timeout(Duration::from_secs(10), election.observe()).await;
        observed.expect("it is answered").unwrap();
    }
}
