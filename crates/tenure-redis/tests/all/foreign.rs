//! Clients that know three plain commands and nothing of tenure, in the same election (R5).

use tenure_core::{Op, StoreExt};

use crate::common::{Server, Stores as _, granted, ms, player, refused, wait};

const RENEW: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
    return redis.call('PEXPIRE', KEYS[1], ARGV[2]) else return 0 end";
const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
    return redis.call('DEL', KEYS[1]) else return 0 end";

/// A client of the old design.
struct Foreign<'a> {
    server: &'a Server,
    key: &'a str,
    id: &'a str,
}

impl Foreign<'_> {
    fn takes(&self, ttl: &str) -> bool {
        self.server.run(&["SET", self.key, self.id, "NX", "PX", ttl]) == "+OK"
    }

    fn renews(&self, ttl: &str) -> bool {
        self.server.run(&["EVAL", RENEW, "1", self.key, self.id, ttl]) == ":1"
    }

    fn releases(&self) -> bool {
        self.server.run(&["EVAL", RELEASE, "1", self.key, self.id]) == ":1"
    }
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_foreign_holder_is_shown_without_a_term_and_respected() {
    let server = Server::start();
    let (store, a) = (server.settled(), player("leader:cron", "a", ms(3_000)));
    let foreign = Foreign { server: &server, key: "leader:cron", id: "node-7" };
    assert!(foreign.takes("30000"));
    let sight = refused(a.acquire(&store, 1).await);
    let lease = sight.lease.unwrap();
    assert_eq!(lease.holder.as_str(), "node-7");
    assert_eq!((lease.term, lease.ttl, lease.since_unix_ms), (None, None, None));
    assert!(lease.remaining > ms(29_000) && lease.remaining <= ms(30_000), "{lease:?}");
    assert!(foreign.renews("30000"));
    let ask = store.apply_one(&Op::Ask { election: a.election.clone(), term: None }).await;
    refused(ask);
    refused(a.release(&store, None, 1).await);
    assert!(foreign.releases());
    a.takes(&store, 2).await;
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_foreign_client_is_kept_out_while_tenure_holds() {
    let server = Server::start();
    let (store, a) = (server.settled(), player("leader:cron", "a", ms(300)));
    let foreign = Foreign { server: &server, key: "leader:cron", id: "node-7" };
    let term = a.takes(&store, 1).await.term;
    assert_eq!(server.run(&["GET", "leader:cron"]), a.candidate.as_str(), "exactly that");
    assert!(!foreign.takes("30000") && !foreign.renews("30000") && !foreign.releases());
    granted(a.renew(&store, term).await);
    wait(ms(320)).await;
    assert!(foreign.takes("200"), "it ran out for everyone");
    let lease = refused(a.renew(&store, term).await).lease.unwrap();
    assert_eq!(lease.holder.as_str(), "node-7");
    assert_eq!((lease.term, lease.ttl, lease.metadata), (None, None, None), "R5: not ours");
    refused(store.apply_one(&Op::Ask { election: a.election.clone(), term: Some(term) }).await);
    refused(a.release(&store, Some(term), 1).await);
    wait(ms(220)).await;
    let next = a.takes(&store, 2).await.term;
    assert!(next > term, "I2: the reign in between had no term");
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_mixed_fleet_changes_hands_a_hundred_times() {
    let server = Server::start();
    let (store, a) = (server.settled(), player("jobs", "a", ms(3_000)));
    let foreign = Foreign { server: &server, key: "jobs", id: "node-7" };
    let mut last = None;
    for seq in 1..=50 {
        let term = a.takes(&store, seq).await.term;
        assert!(last < Some(term), "I2");
        last = Some(term);
        assert!(!foreign.takes("3000"));
        granted(a.release(&store, Some(term), seq).await);
        assert!(foreign.takes("3000"));
        refused(a.acquire(&store, seq + 1).await);
        refused(a.renew(&store, term).await);
        assert!(foreign.releases());
    }
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_foreign_key_without_an_expiry_holds() {
    let server = Server::start();
    let (store, a) = (server.settled(), player("jobs", "a", ms(3_000)));
    server.run(&["SET", "jobs", "somebody"]);
    let lease = refused(a.acquire(&store, 1).await).lease.unwrap();
    assert!(!lease.remaining.is_zero(), "{lease:?}");
    server.run(&["DEL", "jobs"]);
    a.takes(&store, 2).await;
}

/// Somebody deleted our notes: the lease is still ours, its term is not known any more.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_lease_without_its_notes_gets_a_new_term() {
    let server = Server::start();
    let (store, a) = (server.settled(), player("jobs", "a", ms(3_000)));
    let term = a.takes(&store, 1).await.term;
    server.run(&["DEL", "{jobs}:tenure"]);
    refused(a.renew(&store, term).await);
    refused(player("jobs", "bb", ms(3_000)).acquire(&store, 1).await);
    let again = granted(store.apply_one(&a.acquire_op(2, Some(term))).await);
    assert!(again.term > term, "C1");
}
