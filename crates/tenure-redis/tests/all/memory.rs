//! What a server that lost its memory must not do: issue an old term again (R1), or grant a
//! lease while a leader that it forgot may still trust itself (R2).

use std::time::Duration;

use tenure_core::{Op, Reply, StoreExt, Term, Time};
use tenure_redis::{RedisStore, Settle};

use crate::common::{Player, Server, Stores as _, granted, ms, now, player, refused, wait};

/// How long servers settle here, and the ttl of all leaders.
const SETTLE: Duration = Duration::from_millis(1_000);

/// A store that settles, on a server that has settled.
async fn settled_store(server: &Server) -> RedisStore {
    let store = server.store(Settle::For(SETTLE));
    takes_in_time(&store, &player("first", "first", SETTLE), 1).await;
    store
}

/// Asks until granted; returns the term, and the instant after which it was granted.
async fn takes_in_time(store: &RedisStore, player: &Player, from_seq: u64) -> (Term, Time) {
    for attempt in 0..400 {
        let sent = now();
        match player.acquire(store, from_seq + attempt).await {
            Reply::Granted(grant) => return (grant.term, sent),
            Reply::Refused(sight) => {
                let left = sight.settling.unwrap_or_default();
                assert!(left <= SETTLE, "it settles for {left:?}");
            }
            _ => {}
        }
        wait(ms(10)).await;
    }
    panic!("{} was never granted anything", player.candidate);
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_terms_do_not_fall_after_flushall() {
    let server = Server::start();
    let (store, a) = (server.settled(), player("jobs", "a", ms(500)));
    let term = a.takes(&store, 1).await.term;
    // Terms are milliseconds: without settling, one that was lost is safe once they have moved on.
    wait(ms(5)).await;
    server.run(&["FLUSHALL"]);
    let next = a.takes(&store, 2).await.term;
    assert!(next > term, "R1: {next} after {term}");
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_terms_do_not_fall_after_a_restart_without_data() {
    let mut server = Server::start();
    let (store, a) = (server.settled(), player("jobs", "a", ms(500)));
    let term = a.takes(&store, 1).await.term;
    server.restart();
    let (next, _) = takes_in_time(&store, &a, 2).await;
    assert!(next > term, "R1: {next} after {term}");
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_terms_do_not_fall_after_a_restart_from_an_old_snapshot() {
    let mut server = Server::start();
    let (store, a) = (server.settled(), player("jobs", "a", ms(300)));
    let old = a.takes(&store, 1).await.term;
    granted(a.release(&store, Some(old), 1).await);
    server.run(&["SAVE"]);
    let mut last = old;
    for seq in 2..20 {
        last = a.takes(&store, seq).await.term;
        granted(a.release(&store, Some(last), seq).await);
    }
    server.restart();
    let (next, _) = takes_in_time(&store, &a, 20).await;
    assert!(next > last, "R1: {next} after {last}, the snapshot knew {old}");
}

/// A replica that was cut off before the last reign is promoted.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_lagging_replica_neither_repeats_a_term_nor_grants_early() {
    let primary = Server::start();
    let store = settled_store(&primary).await;
    let replica = follow(&primary).await;
    let (a, b) = (player("jobs", "a", SETTLE), player("jobs", "bb", SETTLE));
    replica.run(&["REPLICAOF", "NO", "ONE"]);
    let sent = now();
    let term = a.takes(&store, 1).await.term;
    drop(primary);

    let promoted = replica.store(Settle::For(SETTLE));
    refused(b.acquire(&promoted, 1).await).settling.expect("R2: it settles");
    let (next, granted_after) = takes_in_time(&promoted, &b, 2).await;
    assert!(next > term, "R1: {next} after {term}");
    assert!(granted_after + ms(20) - sent >= SETTLE, "R2: granted while a trusts itself");
}

/// A replica that has all that its primary has.
async fn follow(primary: &Server) -> Server {
    let port = primary.port.to_string();
    let replica = Server::start_with(&["--replicaof", "127.0.0.1", &port]);
    for _ in 0..500 {
        if replica.run(&["INFO", "replication"]).contains("master_link_status:up") {
            return replica;
        }
        wait(ms(10)).await;
    }
    panic!("the replica never followed");
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_nothing_is_granted_after_a_restart_while_a_frozen_leader_may_trust_itself() {
    let mut server = Server::start();
    let store = settled_store(&server).await;
    let (a, b) = (player("jobs", "a", SETTLE), player("jobs", "bb", SETTLE));
    let sent = now();
    let term = a.takes(&store, 1).await.term;
    // From here on `a` is frozen: it trusts what it was granted, and hears of nothing.
    server.restart();
    let (next, granted_after) = takes_in_time(&store, &b, 1).await;
    assert!(next > term, "R1: {next} after {term}");
    assert!(granted_after - sent >= SETTLE, "R2: granted {:?} after", granted_after - sent);
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_nothing_is_granted_after_flushall_while_a_leader_may_trust_itself() {
    let server = Server::start();
    let store = settled_store(&server).await;
    let (a, b) = (player("jobs", "a", SETTLE), player("jobs", "bb", SETTLE));
    let sent = now();
    let term = a.takes(&store, 1).await.term;
    server.run(&["FLUSHALL"]);
    let sight = refused(b.acquire(&store, 1).await);
    assert!(sight.lease.is_none() && sight.settling.is_some(), "R2: {sight:?}");
    assert!(b.sight(&store).await.settling.is_some(), "a read shows it too");
    refused(a.renew(&store, term).await);
    let (next, granted_after) = takes_in_time(&store, &b, 2).await;
    assert!(next > term, "R1: {next} after {term}");
    assert!(granted_after + ms(20) - sent >= SETTLE, "R2: granted too early");
}

/// The old data came back: its leader goes on, and nobody else gets anything, not even the leader
/// by a new acquire.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_settling_server_renews_and_grants_nothing_new() {
    let mut server = Server::start();
    let store = settled_store(&server).await;
    let (a, b) = (player("jobs", "a", ms(10_000)), player("other", "bb", SETTLE));
    let (term, _) = takes_in_time(&store, &Player { ttl: SETTLE, ..a.clone() }, 1).await;
    granted(a.renew(&store, term).await);
    server.run(&["SAVE"]);
    server.restart();
    let _cut = a.renew(&store, term).await;
    granted(a.renew(&store, term).await);
    let sight = refused(a.acquire(&store, 2).await);
    assert!(sight.settling.is_some(), "R2: not even the own lease again: {sight:?}");
    assert!(refused(b.acquire(&store, 1).await).settling.is_some(), "R2: nor a new one");
    granted(a.renew(&store, term).await);
}

/// The leader came back first and renewed. When it resigns later, nobody waits.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_settling_begins_when_the_first_client_is_back() {
    let mut server = Server::start();
    let store = settled_store(&server).await;
    let (a, b) = (player("jobs", "a", SETTLE * 5), player("jobs", "bb", SETTLE));
    let (term, _) = takes_in_time(&store, &Player { ttl: SETTLE, ..a.clone() }, 1).await;
    granted(a.renew(&store, term).await);
    server.run(&["SAVE"]);
    server.restart();
    let _cut = a.renew(&store, term).await;
    // For as long as the last leader may have trusted itself.
    for _ in 0..5 {
        granted(a.renew(&store, term).await);
        wait(SETTLE).await;
    }
    granted(a.release(&store, Some(term), 1).await);
    b.takes(&store, 1).await;
}

/// Whoever asks has a short ttl and the last leader had a long one: what the server remembers of
/// it tells how long another one like it may trust itself.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_settling_is_as_long_as_the_ttl_of_the_last_leader() {
    let mut server = Server::start();
    let store = settled_store(&server).await;
    let (a, b) = (player("jobs", "a", SETTLE * 30), player("jobs", "bb", SETTLE));
    let (term, _) = takes_in_time(&store, &Player { ttl: SETTLE, ..a.clone() }, 1).await;
    granted(a.renew(&store, term).await);
    granted(a.release(&store, Some(term), 1).await);
    server.run(&["SAVE"]);
    // It leads once more, and the server forgets that.
    server.restart();
    let mut left = None;
    for seq in 1..100 {
        // The old connection has to be found out.
        if let Reply::Refused(sight) = b.acquire(&store, seq).await {
            left = sight.settling;
            break;
        }
    }
    let left = left.expect("R2: it settles");
    assert!(left > SETTLE * 25, "{left:?}");
    assert!(b.sight(&store).await.settling.is_some_and(|seen| seen > SETTLE * 25));
    let other = refused(player("other", "bb", SETTLE).acquire(&store, 1).await);
    assert!(other.settling.is_some_and(|left| left <= SETTLE), "others do not wait for it");
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_new_name_on_a_settled_server_is_granted_at_once() {
    let server = Server::start();
    let store = settled_store(&server).await;
    for name in ["one", "two", "three"] {
        player(name, "a", SETTLE).takes(&store, 1).await;
    }
    let other = server.store(Settle::For(SETTLE));
    let started = now();
    player("four", "a", SETTLE).takes(&other, 1).await;
    assert!(now() - started < SETTLE, "another process does not wait either");
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_server_that_nobody_knows_settles_once() {
    let server = Server::start();
    // Now it may have granted something.
    server.run(&["EVAL", "return 1", "0"]);
    let (store, a) = (server.store(Settle::For(SETTLE)), player("jobs", "a", SETTLE));
    let sight = refused(a.acquire(&store, 1).await);
    let left = sight.settling.expect("R2: the marker is missing");
    assert!(left <= SETTLE && left > SETTLE / 2, "{left:?}");
    wait(left).await;
    a.takes(&store, 2).await;
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_settling_is_as_long_as_the_longest_ttl_asked_for() {
    let server = Server::start();
    let store = settled_store(&server).await;
    server.run(&["FLUSHALL"]);
    let long = player("jobs", "a", SETTLE * 60);
    let left = refused(long.acquire(&store, 1).await).settling.unwrap();
    assert!(left > SETTLE * 50, "a leader with this ttl may trust itself as long: {left:?}");
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_settle_off_grants_at_once() {
    let mut server = Server::start();
    let (store, a) = (server.settled(), player("jobs", "a", SETTLE));
    a.takes(&store, 1).await;
    server.restart();
    let store = server.settled();
    player("jobs", "bb", SETTLE).takes(&store, 1).await;
}

/// Behind a proxy that keeps the client's connection, another server may answer.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_another_run_on_the_same_connection_settles_too() {
    let server = Server::start();
    let store = settled_store(&server).await;
    server.run(&["HSET", "tenure:server", "run", "0123456789abcdef", "from", "1000"]);
    let sight = refused(player("jobs", "a", SETTLE).acquire(&store, 1).await);
    assert!(sight.settling.is_some(), "R2: {sight:?}");
}

/// An election that nobody uses leaves nothing behind for ever. While somebody leads, the notes
/// have no expiry: `volatile-*` would evict them.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_the_notes_of_an_election_that_nobody_uses_expire() {
    let server = Server::start();
    let (store, a) = (server.settled(), player("jobs", "a", SETTLE));
    let left = || -> i64 { server.run(&["PTTL", "{jobs}:tenure"])[1..].parse().unwrap() };
    let days = |days: i64| days * 24 * 3_600 * 1_000;
    for seq in 1..=2 {
        let term = a.takes(&store, seq).await.term;
        assert_eq!(left(), -1, "held");
        granted(a.renew(&store, term).await);
        assert_eq!(left(), -1, "held");
        granted(a.release(&store, Some(term), seq).await);
        assert!(left() > days(29) && left() <= days(30), "released: {}", left());
    }
    // A term that is ahead of the clock has to be known: the clock would repeat it (R1).
    let clock = a.takes(&store, 3).await.term.get();
    let mut op = a.acquire_op(4, Term::new(clock));
    if let Op::Acquire { floor, .. } = &mut op {
        *floor = Term::new(clock + days(100).unsigned_abs());
    }
    let ahead = granted(store.apply_one(&op).await).term;
    granted(a.release(&store, Some(ahead), 4).await);
    assert_eq!(left(), -1, "released");
}

/// Lua writes large numbers with an exponent unless told otherwise (R1).
#[needs(redis)]
#[tokio::test]
async fn needs_redis_terms_are_exact_up_to_the_last_one() {
    let server = Server::start();
    let store = server.settled();
    for floor in [100_000_000_000_001, 1 << 50, Term::MAX.get() - 1] {
        let a = player(&format!("from {floor}"), "a", SETTLE);
        let mut op = a.acquire_op(1, None);
        if let Op::Acquire { floor: wish, .. } = &mut op {
            *wish = Term::new(floor);
        }
        let term = granted(store.apply_one(&op).await).term;
        assert_eq!(term.get(), floor);
        granted(a.renew(&store, term).await);
        let above = granted(store.apply_one(&a.acquire_op(2, Some(term))).await);
        assert_eq!(above.term.get(), floor + 1);
        assert_eq!(a.sight(&store).await.last_term, Some(above.term));
    }
    let last = player(&format!("from {}", Term::MAX.get() - 1), "a", SETTLE);
    let beyond = store.apply_one(&last.acquire_op(3, Some(Term::MAX))).await;
    assert!(matches!(beyond, Reply::Unknown(_)), "2^53 is no term: {beyond:?}");
    granted(last.renew(&store, Term::MAX).await);
}
