//! The clock and the boot: what ends a lease and what does not.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{Op, RELEASE_MEMORY, StoreExt};
use tenure_sqlite::{Host, SqliteConfig, SqliteStore};

use crate::common::*;

#[tokio::test]
async fn after_a_reboot_every_lease_is_over_and_terms_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let machine = Machine::new();
    let before = machine.open(&path).unwrap();
    let a = Player::new(&before, "a", 1);
    for election in ["e", "f"] {
        granted(a.acquire(election, 1).await);
    }
    drop((before, a));

    let mut rebooted = machine.clone();
    rebooted.host = machine.host.clone().with_boot_id("another boot");
    let after = rebooted.open(&path).unwrap();
    // Reading changes nothing, and yet sees nobody.
    assert!(after.read(&name("e")).await.unwrap().lease.is_none());
    let b = Player::new(&after, "b", 2);
    let grant = granted(b.acquire("e", 1).await);
    assert_eq!((grant.term, grant.expired), (term(2), None), "of that boot nobody is left");
    let a = Player::new(&after, "a", 1);
    refused(a.renew("f", term(1)).await);
    let sight = after.read(&name("f")).await.unwrap();
    assert_eq!((sight.lease, sight.last_term), (None, Some(term(1))));
}

#[tokio::test]
async fn a_lease_lasts_its_ttl_on_the_boot_clock_to_the_nanosecond() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let machine = Machine::new();
    let store = machine.open(&path).unwrap();
    let (a, b) = (Player::new(&store, "a", 1), Player::new(&store, "b", 2));
    let first = granted(a.acquire("e", 1).await);
    machine.advance(TTL - Duration::from_nanos(1));
    let lease = refused(b.acquire("e", 1).await).lease.unwrap();
    assert_eq!((lease.remaining, lease.ttl), (Duration::from_nanos(1), Some(TTL)));
    granted(a.renew("e", first.term).await);
    machine.advance(TTL);
    refused(a.renew("e", first.term).await);
    let grant = granted(b.acquire("e", 1).await);
    assert_eq!((grant.term, grant.expired), (term(2), Some(TTL)));
}

#[tokio::test]
async fn the_wall_clock_is_shown_and_nothing_more() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let store = SqliteStore::open(&path).unwrap();
    let (a, b) = (Player::new(&store, "a", 1), Player::new(&store, "b", 2));
    let grant = granted(a.acquire("e", 1).await);
    let lease = store.read(&name("e")).await.unwrap().lease.unwrap();
    assert!(lease.since_unix_ms.unwrap() > 1_600_000_000_000, "{lease:?}");
    // As if the wall clock had stood elsewhere when the lease was granted.
    let conn = rusqlite::Connection::open(&path).unwrap();
    for since in [0_i64, i64::MAX, -1] {
        conn.execute("UPDATE lease SET since_unix_ms = ?1", [since]).unwrap();
        let lease = refused(b.acquire("e", 1).await).lease.unwrap();
        assert!(lease.remaining > TTL / 2 && lease.remaining <= TTL);
        granted(a.renew("e", grant.term).await);
    }
}

#[tokio::test]
async fn an_overtaken_acquire_is_refused_for_as_long_as_releases_are_remembered() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let machine = Machine::new();
    let store = machine.open(&path).unwrap();
    let a = Player::new(&store, "a", 1);
    let grant = granted(a.acquire("e", 1).await);
    granted(a.release("e", grant.term, 1).await);
    machine.advance(RELEASE_MEMORY);
    // Any other release tidies up.
    refused(Player::new(&store, "b", 2).release("f", term(1), 1).await);
    refused(a.acquire("e", 1).await);
    machine.advance(Duration::from_nanos(1));
    refused(Player::new(&store, "b", 2).release("f", term(1), 1).await);
    let conn = rusqlite::Connection::open(&path).unwrap();
    let left: i64 = conn.query_row("SELECT count(*) FROM released", (), |row| row.get(0)).unwrap();
    assert_eq!(left, 1, "only the last one");
}

#[tokio::test]
async fn a_late_release_without_a_term_leaves_a_newer_lease_alone() {
    let directory = tempfile::tempdir().unwrap();
    let store = Machine::new().open(&directory.path().join("x.db")).unwrap();
    let a = Player::new(&store, "a", 1);
    granted(store.apply_one(&a.acquire_op("e", 2)).await);
    let (election, candidate) = (name("e"), a.id.clone());
    let late = Op::Release { election: election.clone(), candidate, term: None, seq: 1 };
    refused(store.apply_one(&late).await);
    assert!(store.read(&election).await.unwrap().lease.is_some());
}

#[tokio::test]
async fn the_clock_is_read_when_nobody_else_can_write_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    drop(SqliteStore::open(&path).unwrap());
    let other = rusqlite::Connection::open(&path).unwrap();
    other.busy_timeout(Duration::ZERO).unwrap();
    let (other, readings) = (Mutex::new(other), Arc::new(Mutex::new(Vec::new())));
    let (noted, real) = (readings.clone(), Host::detect().unwrap());
    let clock = move || {
        let can_write = other.lock().unwrap().execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok();
        noted.lock().unwrap().push(can_write);
        real.now_ns()
    };
    let host = Host::detect().unwrap().with_clock(clock);
    let store = SqliteConfig::new(&path).with_host(host).open().unwrap();
    let me = Player::new(&store, "me", 1);
    let grant = granted(me.acquire("e", 1).await);
    readings.lock().unwrap().clear();
    granted(me.renew("e", grant.term).await);
    assert_eq!(*readings.lock().unwrap(), [false], "others could still write");
}

#[tokio::test]
async fn all_elections_that_were_ever_led_are_listed_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("x.db")).unwrap();
    assert!(store.elections().await.unwrap().is_empty());
    let me = Player::new(&store, "me", 1);
    for election in ["b", "a", "c"] {
        let grant = granted(me.acquire(election, 1).await);
        granted(me.release(election, grant.term, 1).await);
    }
    assert_eq!(store.elections().await.unwrap(), ["a", "b", "c"].map(name));
}

/// S2, O1: under a boot id that may be a container's, the lease is watched on our own clock.
#[tokio::test]
async fn a_lease_under_a_boot_id_of_a_container_is_taken_only_when_it_stayed_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let host = Machine::new();
    let mut container = host.clone();
    container.host = host.host.clone().with_boot_id_of_container("made up");
    let (inside, outside) = (container.open(&path).unwrap(), host.open(&path).unwrap());
    for (holds, follows, number) in [(&inside, &outside, 1), (&outside, &inside, 3)] {
        let holder = Player::new(holds, "holder", number.into());
        let follower = Player::new(follows, "follower", number.into());
        let grant = granted(holder.acquire("e", 1).await);
        assert_eq!(grant.term, term(number));
        refused(follower.acquire("e", 1).await);
        host.advance(TTL - Duration::from_nanos(1));
        granted(holder.renew("e", grant.term).await);
        // It changed: the count begins anew, and as often as it is renewed.
        host.advance(TTL - Duration::from_nanos(1));
        let lease = refused(follower.acquire("e", 1).await).lease.unwrap();
        assert_eq!((lease.remaining, lease.ttl), (TTL + TTL / 100, Some(TTL)));
        assert!(follower.store.read(&name("e")).await.unwrap().lease.is_some());
        host.advance(TTL + TTL / 100 - Duration::from_nanos(1));
        refused(follower.acquire("e", 1).await);
        host.advance(Duration::from_nanos(1));
        let next = granted(follower.acquire("e", 1).await);
        assert_eq!((next.term, next.expired), (term(number + 1), Some(TTL)));
        // Its end came on its own clock too.
        refused(holder.renew("e", grant.term).await);
        granted(follower.release("e", next.term, 1).await);
    }
}

/// A reboot that only the host can tell ends no lease of a container.
#[tokio::test]
async fn a_reboot_ends_the_leases_of_the_host_and_leaves_those_of_containers_to_be_watched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let host = Machine::new();
    let (mut container, mut rebooted) = (host.clone(), host.clone());
    container.host = host.host.clone().with_boot_id_of_container("made up");
    rebooted.host = host.host.clone().with_boot_id("another boot");
    granted(Player::new(&host.open(&path).unwrap(), "a", 1).acquire("host", 1).await);
    granted(Player::new(&container.open(&path).unwrap(), "b", 2).acquire("container", 1).await);
    let after = rebooted.open(&path).unwrap();
    let c = Player::new(&after, "c", 3);
    granted(c.acquire("host", 1).await);
    refused(c.acquire("container", 1).await);
    host.advance(TTL + TTL / 100);
    granted(c.acquire("container", 1).await);
}
