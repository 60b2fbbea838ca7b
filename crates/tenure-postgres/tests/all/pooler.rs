//! Through PgBouncer in transaction mode: everything but hints works, and nothing is wrong.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Op, Reply, Store};
use tenure_testbed::postgres::Pooler;
use tokio::runtime::Handle;

use crate::common::group::Group;
use crate::common::{self, Place, Player, granted, real_wait, refused, until};

const TTL: Duration = Duration::from_secs(2);

/// Whether the pooler takes the next of its sessions for each transaction, or the last one again.
pub(crate) async fn round_robin(pooler: &Pooler, on: bool) {
    let (server, _) = pooler.url.rsplit_once('/').unwrap();
    let console = common::Session::open(&format!("{server}/pgbouncer")).await;
    console.run(&format!("SET server_round_robin = {}", i32::from(on))).await;
}

/// A schema behind the pooler, migrated through it; and the same one without the pooler.
async fn behind(pooler: &Pooler) -> (Place, Place) {
    let behind = Place::empty(&pooler.url);
    behind.store().migrate().await.unwrap();
    let schema = behind.schema.clone();
    (behind, Place { server: common::server(), schema })
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_store_works_behind_a_pooler_that_shares_sessions() {
    let pooler = Pooler::take();
    works(&pooler).await;
}

/// Then hardly two transactions of a client in a row have the same session.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_store_works_behind_a_pooler_that_turns_its_sessions_round() {
    let pooler = Pooler::take();
    round_robin(&pooler, true).await;
    works(&pooler).await;
    let mut sessions = BTreeSet::new();
    let client = common::Session::open(&pooler.url).await;
    for _ in 0..8 {
        for row in client.client.simple_query("SELECT pg_backend_pid()").await.unwrap() {
            if let tokio_postgres::SimpleQueryMessage::Row(row) = row {
                sessions.insert(row.get(0).unwrap().to_owned());
            }
        }
    }
    assert!(sessions.len() > 1, "it does what was asked of it: {sessions:?}");
    round_robin(&pooler, false).await;
}

async fn works(pooler: &Pooler) {
    let (place, direct) = behind(pooler).await;
    // More clients than the pooler has sessions, all at once.
    let mut running = Vec::new();
    for number in 0..20_u128 {
        let store = place.store();
        running.push(Handle::current().spawn(async move {
            let player = Player::new(&store, "a", number);
            for seq in 1..=20 {
                let election = format!("e{}", (number + u128::from(seq)) % 7);
                if let Reply::Granted(grant) = player.acquire(&election, seq).await {
                    granted(player.renew(&election, grant.term).await);
                    granted(player.release(&election, grant.term, seq).await);
                }
            }
            let batch: Vec<Op> =
                (0..50).map(|i| player.acquire_op(&format!("{number} {i}"), 1)).collect();
            for reply in store.apply(&batch).await {
                granted(reply);
            }
        }));
    }
    for client in running {
        client.await.unwrap();
    }
    // What went in by one door is seen through the other, also by the older clients.
    let ours = Player::new(&place.store(), "ours", 1);
    let term = ours.takes("door", 1).await;
    let session = direct.session().await;
    assert!(!session.truth("SELECT try_become_leader('door', 'theirs')").await);
    refused(Player::new(&direct.store(), "other", 2).acquire("door", 1).await);
    // No setting outlives its transaction in a session that others get next.
    let leaks = "SELECT count(*) FROM pg_settings WHERE name IN ('synchronous_commit', \
                 'idle_in_transaction_session_timeout', 'lock_timeout') AND source = 'session'";
    let pooled = common::Session::open(&place.server).await;
    pooled
        .client
        .simple_query(&format!(
            "BEGIN; SELECT {}.tenure_fence('door', {term}); COMMIT",
            place.schema
        ))
        .await
        .unwrap();
    for row in pooled.client.simple_query(leaks).await.unwrap() {
        if let tokio_postgres::SimpleQueryMessage::Row(row) = row {
            assert_eq!(row.get(0), Some("0"));
        }
    }
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_group_behind_a_pooler_has_one_leader_without_hints() {
    let pooler = Pooler::take();
    let (place, direct) = behind(&pooler).await;
    let stores: Vec<Arc<dyn Store>> =
        (0..3).map(|_| Arc::new(place.config().open()) as Arc<dyn Store>).collect();
    let group = Group::start(stores, TTL).await;
    let mut last = group.leads_within(TTL).await;
    for _ in 0..3 {
        // Given up: nobody need hear of it, and somebody leads all the same.
        group.members[last.member].election.resign().await.unwrap();
        let next = group.leader_above(last.term.get(), TTL * 2).await;
        println!("handed over in {:?}", next.at - last.at);
        last = next;
    }
    // The sessions between the pooler and the server end under it.
    let admin = direct.session().await;
    let end = format!(
        "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity \
         WHERE pid <> pg_backend_pid() AND query LIKE '%{}%'",
        place.schema
    );
    // A session is known by its last query, which may be one of the pooler's own.
    until("the end of a session", || async { admin.number(&end).await > 0 }).await;
    // Long enough for a lease that was not renewed since to have run out.
    real_wait(TTL).await;
    group.leads_within(TTL).await;
    assert_eq!(group.leading(), 1);
    group.finish().await;
}
