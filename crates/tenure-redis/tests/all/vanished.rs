//! The key of a lease vanishes alone: deleted by hand, or evicted. Its noted end stands (R6).

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tenure::Election;
use tenure_core::{CandidateId, Op, Reply, StoreExt, Term, Time};
use tenure_redis::fence::{Fence, FenceError};
use tenure_redis::{RedisStore, Settle};

use crate::common::fleet::ClusterSet;
use crate::common::{
    Player, Server, Stores as _, granted, ms, now, player, refused, unknown, wait,
};

const TTL: Duration = Duration::from_millis(1_500);

/// How long to wait for what ought to happen soon.
const PATIENCE: Duration = Duration::from_secs(30);

const NOBODY: &str = "$-1";

/// Asks until granted; the term, and the instant after which it was granted.
async fn takes_in_time(store: &RedisStore, player: &Player, from_seq: u64) -> (Term, Time) {
    for attempt in 0..1_000 {
        let sent = now();
        if let Reply::Granted(grant) = player.acquire(store, from_seq + attempt).await {
            return (grant.term, sent);
        }
        wait(ms(10)).await;
    }
    panic!("{} was never granted anything", player.candidate);
}

fn ask(player: &Player, term: Term) -> Op {
    Op::Ask { election: player.election.clone(), term: Some(term) }
}

/// The whole life of it: nobody else is granted it before its end, everybody sees who has it.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_lease_whose_key_is_deleted_is_granted_to_nobody_else() {
    let server = Server::start();
    let (store, a, b) = (server.settled(), player("jobs", "a", TTL), player("jobs", "bb", TTL));
    let sent = now();
    let term = a.takes(&store, 1).await.term;
    assert_eq!(server.run(&["DEL", "jobs"]), ":1");
    let sights = [refused(b.acquire(&store, 1).await), b.sight(&store).await];
    for lease in sights.map(|sight| sight.lease.expect("R6: it is held")) {
        assert_eq!(lease.holder.as_str(), a.candidate.as_str());
        assert_eq!((lease.term, lease.ttl), (Some(term), Some(TTL)));
        assert!(lease.remaining <= TTL && lease.remaining > ms(1), "{lease:?}");
        assert!(lease.since_unix_ms.is_some());
    }
    let (next, granted_after) = takes_in_time(&store, &b, 2).await;
    assert!(next > term, "I2: {next} after {term}");
    assert!(granted_after + ms(20) - sent >= TTL, "R6: {:?}", granted_after - sent);
}

/// Far beyond the end that was noted with the grant.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_each_renewal_notes_the_end_of_the_lease() {
    let server = Server::start();
    let (store, a, b) = (server.settled(), player("jobs", "a", TTL), player("jobs", "bb", TTL));
    let first = now();
    let term = a.takes(&store, 1).await.term;
    let mut sent = first;
    while sent - first < TTL * 2 {
        wait(TTL / 5).await;
        sent = now();
        granted(a.renew(&store, term).await);
    }
    server.run(&["DEL", "jobs"]);
    let lease = refused(b.acquire(&store, 1).await).lease.expect("R6: it is held");
    assert_eq!(lease.term, Some(term));
    let (_, granted_after) = takes_in_time(&store, &b, 2).await;
    assert!(granted_after + ms(20) - sent >= TTL, "R6: {:?}", granted_after - sent);
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_the_renewal_of_a_lease_whose_key_vanished_makes_the_key_again() {
    let server = Server::start();
    let (store, a, b) = (server.settled(), player("jobs", "a", TTL), player("jobs", "bb", TTL));
    let term = a.takes(&store, 1).await.term;
    for _ in 0..3 {
        server.run(&["DEL", "jobs"]);
        // A replay does no harm.
        for _ in 0..2 {
            assert_eq!(granted(a.renew(&store, term).await).term, term);
        }
        assert_eq!(server.run(&["GET", "jobs"]), a.candidate.as_str());
        let left: u64 = server.run(&["PTTL", "jobs"]).trim_start_matches(':').parse().unwrap();
        assert!(u128::from(left) <= TTL.as_millis(), "{left}");
    }
    server.run(&["DEL", "jobs"]);
    let stale = Term::new(term.get() - 1).unwrap();
    refused(a.renew(&store, stale).await);
    refused(b.renew(&store, term).await);
    assert_eq!(server.run(&["GET", "jobs"]), NOBODY, "I4: only the exact one");
    // From its noted end on it is vacant for everyone, its last holder too.
    let lease = a.sight(&store).await.lease.unwrap();
    wait(lease.remaining + ms(20)).await;
    assert!(a.sight(&store).await.lease.is_none());
    refused(a.renew(&store, term).await);
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_the_noted_holder_may_take_its_lease_again_at_once() {
    let server = Server::start();
    let (store, a) = (server.settled(), player("jobs", "a", TTL));
    let term = a.takes(&store, 1).await.term;
    server.run(&["DEL", "jobs"]);
    // The reply to the first was lost (C1).
    assert_eq!(a.takes(&store, 2).await.term, term);
    assert_eq!(server.run(&["GET", "jobs"]), a.candidate.as_str());
    server.run(&["DEL", "jobs"]);
    let again = granted(store.apply_one(&a.acquire_op(3, Some(term))).await);
    assert!(again.term > term, "C1: it has led that one");
    assert_eq!(again.expired, None, "nothing ran out");
    server.run(&["DEL", "jobs"]);
    let restarted = Player { candidate: CandidateId::new("a", 99).unwrap(), ..a.clone() };
    let lease = refused(restarted.acquire(&store, 1).await).lease.unwrap();
    assert_eq!(lease.term, Some(again.term), "another incarnation is somebody else");
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_lease_whose_key_vanished_can_be_asked_for_and_released() {
    let server = Server::start();
    let (store, a, b) = (server.settled(), player("jobs", "a", TTL), player("jobs", "bb", TTL));
    let term = a.takes(&store, 1).await.term;
    server.run(&["DEL", "jobs"]);
    granted(store.apply_one(&ask(&a, term)).await);
    assert!(granted(a.renew(&store, term).await).asked, "it hears of it");
    server.run(&["DEL", "jobs"]);
    granted(a.release(&store, Some(term), 1).await);
    assert!(b.sight(&store).await.lease.is_none());
    let next = b.takes(&store, 1).await;
    assert!(next.term > term && next.expired.is_none(), "{next:?}");
    server.run(&["DEL", "jobs"]);
    granted(b.release(&store, None, 1).await);
    assert_eq!(server.run(&["HEXISTS", "{jobs}:tenure", "ends"]), ":0", "nothing is left of it");
    a.takes(&store, 2).await;
}

/// A client of the old design knows nothing of notes. Its key is the store's truth while it is
/// there, and nothing stays behind of its reign.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_foreign_client_that_takes_the_key_is_believed() {
    let server = Server::start();
    let (store, a, b) = (server.settled(), player("jobs", "a", TTL), player("jobs", "bb", TTL));
    let sent = now();
    let term = a.takes(&store, 1).await.term;
    server.run(&["DEL", "jobs"]);
    assert_eq!(server.run(&["SET", "jobs", "node-7", "NX", "PX", "30000"]), "+OK");
    for reply in [a.renew(&store, term).await, b.acquire(&store, 1).await] {
        let lease = refused(reply).lease.unwrap();
        assert_eq!((lease.holder.as_str(), lease.term), ("node-7", None));
    }
    refused(a.acquire(&store, 2).await);
    server.run(&["DEL", "jobs"]);
    // The last leader may still be winding up.
    refused(b.acquire(&store, 2).await);
    let (next, granted_after) = takes_in_time(&store, &b, 3).await;
    assert!(next > term, "I2");
    assert!(granted_after + ms(20) - sent >= TTL, "R6: {:?}", granted_after - sent);
    granted(b.release(&store, Some(next), 2_000).await);
}

/// It says that it is done, though the key is somebody else's by now.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_release_under_a_foreign_holder_takes_back_the_noted_end() {
    let server = Server::start();
    let a = player("jobs", "a", PATIENCE);
    let (store, b) = (server.settled(), player("jobs", "bb", PATIENCE));
    let term = a.takes(&store, 1).await.term;
    server.run(&["DEL", "jobs"]);
    server.run(&["SET", "jobs", "node-7", "NX", "PX", "30000"]);
    refused(b.release(&store, Some(term), 1).await);
    assert_eq!(server.run(&["HEXISTS", "{jobs}:tenure", "ends"]), ":1", "that was not its own");
    refused(a.release(&store, Some(term), 1).await);
    assert_eq!(server.run(&["GET", "jobs"]), "node-7", "I4: not ours to free");
    server.run(&["DEL", "jobs"]);
    assert!(b.takes(&store, 2).await.term > term, "I2: at once");
}

/// An end of ours that is over blocks nobody.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_foreign_client_that_frees_its_key_frees_it_at_once() {
    let server = Server::start();
    let (store, a) = (server.settled(), player("jobs", "a", ms(200)));
    let term = a.takes(&store, 1).await.term;
    wait(ms(220)).await;
    assert_eq!(server.run(&["SET", "jobs", "node-7", "NX", "PX", "30000"]), "+OK");
    server.run(&["DEL", "jobs"]);
    let next = player("jobs", "bb", TTL).takes(&store, 1).await;
    assert!(next.term > term, "I2");
}

/// Only keys that expire are evicted under such a policy: leases, and not their notes.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_an_evicted_lease_is_granted_to_nobody_else() {
    let server = Server::start_with(&["--maxmemory-policy", "volatile-ttl"]);
    let a = player("jobs", "a", PATIENCE);
    let (store, b) = (server.settled(), player("jobs", "bb", PATIENCE));
    let term = a.takes(&store, 1).await.term;
    server.run(&["CONFIG", "SET", "maxmemory", "1"]);
    let full = server.run(&["SET", "more", "data"]);
    assert!(full.starts_with("-OOM"), "{full}");
    assert_eq!(server.run(&["GET", "jobs"]), NOBODY, "the control: it was evicted");
    server.run(&["CONFIG", "SET", "maxmemory", "0"]);
    let lease = refused(b.acquire(&store, 1).await).lease.expect("R6: it is held");
    assert_eq!(lease.term, Some(term));
    server.run(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(granted(a.renew(&store, term).await).term, term, "full as it is");
    server.run(&["CONFIG", "SET", "maxmemory", "0"]);
    granted(a.renew(&store, term).await);
    assert_eq!(server.run(&["GET", "jobs"]), a.candidate.as_str());
}

/// A server that is full notes the end as well.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_full_server_notes_the_end_of_a_renewed_lease() {
    let server = Server::start();
    let a = player("jobs", "a", ms(500));
    let (store, b) = (server.settled(), player("jobs", "bb", ms(500)));
    let term = a.takes(&store, 1).await.term;
    server.run(&["CONFIG", "SET", "maxmemory", "1"]);
    let long = Player { ttl: PATIENCE, ..a.clone() };
    granted(long.renew(&store, term).await);
    wait(ms(520)).await;
    server.run(&["DEL", "jobs"]);
    let lease = refused(b.acquire(&store, 1).await).lease.expect("R6: it is held");
    assert!(lease.remaining > PATIENCE / 2, "{lease:?}");
    granted(long.renew(&store, term).await);
    assert_eq!(server.run(&["GET", "jobs"]), a.candidate.as_str());
    unknown(player("other", "a", TTL).acquire(&store, 1).await);
}

/// The notes came back with the server, and the key did not. Settling is off, so nothing else keeps
/// others out.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_noted_end_outlives_a_restart_with_its_data() {
    let mut server = Server::start();
    let a = player("jobs", "a", PATIENCE);
    let (store, b) = (server.settled(), player("jobs", "bb", PATIENCE));
    let term = a.takes(&store, 1).await.term;
    server.run(&["DEL", "jobs"]);
    server.run(&["SAVE"]);
    server.restart();
    let store = server.settled();
    let lease = refused(b.acquire(&store, 1).await).lease.expect("R6: it is held");
    assert_eq!(lease.term, Some(term));
    granted(a.renew(&store, term).await);
    assert_eq!(server.run(&["GET", "jobs"]), a.candidate.as_str());
}

/// A server that settles renews what it remembers, and grants nothing new: not even to the noted
/// holder, which may have led once more since (R2).
#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_settling_server_makes_the_key_again_for_a_renewal_alone() {
    let server = Server::start();
    let a = player("jobs", "a", PATIENCE);
    let term = a.takes(&server.settled(), 1).await.term;
    server.run(&["DEL", "jobs"]);
    let store = server.store(Settle::For(PATIENCE));
    let sight = refused(a.acquire(&store, 2).await);
    assert!(sight.settling.is_some() && sight.lease.is_some(), "R2: {sight:?}");
    assert_eq!(server.run(&["GET", "jobs"]), NOBODY);
    granted(a.renew(&store, term).await);
    assert_eq!(server.run(&["GET", "jobs"]), a.candidate.as_str());
}

/// What the script of the fence says.
async fn fenced(fence: &Fence, connection: &mut MultiplexedConnection) -> Result<(), FenceError> {
    let write = redis::cmd("SET").arg("stock").arg(4).to_owned();
    fence.run(connection, &write, &["stock"]).await
}

/// The leader by the notes may write, and nobody else can be granted anything meanwhile.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_the_fence_counts_up_to_the_noted_end() {
    let server = Server::start();
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let (store, a) = (server.settled(), player("jobs", "a", TTL));
    let term = a.takes(&store, 1).await.term;
    let fence = Fence::new("", &a.election, term).unwrap();
    let is_stale = |outcome| matches!(outcome, Err(FenceError::Stale(_)));
    server.run(&["DEL", "jobs"]);
    fenced(&fence, &mut connection).await.unwrap();
    let older = Fence::new("", &a.election, Term::new(term.get() - 1).unwrap()).unwrap();
    assert!(is_stale(fenced(&older, &mut connection).await));
    server.run(&["SET", "jobs", "node-7", "NX", "PX", "30000"]);
    assert!(is_stale(fenced(&fence, &mut connection).await), "a foreign holder");
    server.run(&["DEL", "jobs"]);
    granted(a.renew(&store, term).await);
    server.run(&["DEL", "jobs"]);
    let left = a.sight(&store).await.lease.unwrap().remaining;
    wait(left + ms(20)).await;
    assert!(is_stale(fenced(&fence, &mut connection).await), "its end is over");
    let term = a.takes(&store, 2).await.term;
    let fence = Fence::new("", &a.election, term).unwrap();
    server.run(&["DEL", "jobs"]);
    granted(a.release(&store, Some(term), 2).await);
    assert!(is_stale(fenced(&fence, &mut connection).await), "it was given up");
}

/// The leader goes on, the other one keeps waiting, and a hand-over is as quick as ever.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_deleting_the_key_of_a_leader_makes_no_second_one() {
    let server = Server::start();
    let ttl = Duration::from_secs(3);
    let candidate = async |label: &str| {
        let store = Arc::new(server.settled());
        Election::builder("jobs", store).label(label).ttl(ttl).start().await.unwrap()
    };
    let (a, b) = (candidate("a").await, candidate("b").await);
    let reign = tokio::time::timeout(PATIENCE, a.campaign()).await.unwrap().unwrap();
    let rival = tokio::runtime::Handle::current()
        .spawn(async move { b.campaign().await.map(|reign| (reign, b)) });
    // b has asked, and waits for the end of what it saw.
    let started = now();
    let mut deleted = 0;
    while now() - started < ttl * 2 {
        if server.run(&["DEL", "jobs"]) == ":1" {
            deleted += 1;
        }
        server.run(&["PUBLISH", "tenure:hints:0", "jobs"]);
        assert!(!(rival.is_finished() && reign.is_current()), "I1: two lead");
        wait(ms(20)).await;
    }
    assert!(deleted >= 3, "each renewal makes the key again: {deleted}");
    assert!(reign.is_current(), "it leads on");
    reign.resign().await.unwrap();
    let (next, _b) = tokio::time::timeout(PATIENCE, rival).await.unwrap().unwrap().unwrap();
    assert!(next.is_current());
}

/// What the guide says of a mixed fleet: the key is the truth, and the leader before it goes.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_leader_whose_key_a_foreign_client_took_steps_down() {
    let server = Server::start();
    let store = Arc::new(server.settled());
    let builder = Election::builder("jobs", store).label("a").ttl(Duration::from_secs(3));
    let election = builder.start().await.unwrap();
    let reign = tokio::time::timeout(PATIENCE, election.campaign()).await.unwrap().unwrap();
    let take = "redis.call('DEL', KEYS[1]) \
        return redis.call('SET', KEYS[1], 'node-7', 'NX', 'PX', '10000')";
    assert_eq!(server.run(&["EVAL", take, "1", "jobs"]), "+OK");
    tokio::time::timeout(PATIENCE, reign.lost()).await.expect("its renewal is refused");
    assert!(!election.is_leader());
    assert_eq!(server.run(&["GET", "jobs"]), "node-7", "nobody took it back");
    let term = reign.term();
    drop(reign);
    // Such a client tells nobody. At the latest the end that was seen of its lease is waited for.
    server.run(&["DEL", "jobs"]);
    let again = tokio::time::timeout(PATIENCE, election.campaign()).await.unwrap().unwrap();
    assert!(again.term() > term, "I2");
}

#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_cluster_keeps_a_lease_whose_key_vanished() {
    let set = ClusterSet::start();
    let store = set.config().with_settle(Settle::Off).open().unwrap();
    for name in set.a_name_on_each() {
        let server = &set.servers[set.home_of(&name)];
        let (a, b) = (player(&name, "a", PATIENCE), player(&name, "bb", PATIENCE));
        let term = a.takes(&store, 1).await.term;
        assert_eq!(server.run(&["DEL", &name]), ":1");
        let lease = refused(b.acquire(&store, 1).await).lease.expect("R6: it is held");
        assert_eq!(lease.term, Some(term));
        granted(a.renew(&store, term).await);
        assert_eq!(server.run(&["GET", &name]), a.candidate.as_str());
    }
}
