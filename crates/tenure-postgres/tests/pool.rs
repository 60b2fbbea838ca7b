//! A pool of the user's own, for all that is no renewal.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests")]

mod common;

use std::str::FromStr;
use std::time::Duration;

use deadpool_postgres::{Manager, Object, Pool, Timeouts};
use tenure_core::{ErrorKind, Op, Store};
use tenure_postgres::PostgresStore;
use tokio::time::Instant;
use tokio_postgres::NoTls;

use common::{Place, Player, granted, name};

/// A pool whose sessions can be told from those of the store.
fn pool(place: &Place, size: usize) -> Pool {
    let mut config = tokio_postgres::Config::from_str(&place.server).unwrap();
    config.application_name(format!("pool-{}", place.schema));
    let manager = Manager::new(config, NoTls);
    let timeouts = Timeouts::wait_millis(10_000);
    let builder = Pool::builder(manager).max_size(size).timeouts(timeouts);
    builder.runtime(deadpool_postgres::Runtime::Tokio1).build().unwrap()
}

fn open(place: &Place, pool: &Pool) -> PostgresStore {
    let pool = pool.clone();
    let borrow = move || {
        let pool = pool.clone();
        async move { pool.get().await }
    };
    let name = format!("application_name=own-{}", place.schema);
    let config = common::config(&place.server, &format!("schema={}&{name}", place.schema));
    config.with_call_timeout(Duration::from_secs(2)).open_with_pool(borrow, |lent: &Object| lent)
}

/// The last statement of ours in the sessions of this kind.
async fn last_query(place: &Place, kind: &str) -> String {
    let sql = format!(
        "SELECT coalesce((SELECT query FROM pg_stat_activity WHERE application_name = '{kind}-{}' \
         ORDER BY query_start DESC LIMIT 1), '')",
        place.schema
    );
    place.session().await.client.query_one(&sql, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a PostgreSQL server"]
async fn needs_postgres_the_users_pool_carries_everything_but_renewals() {
    let Some(server) = common::server() else { return };
    let place = Place::new(&server).await;
    let pool = pool(&place, 1);
    let store = open(&place, &pool);
    let a = Player::new(&store, "a", 1);
    let term = a.takes("e", 1).await;
    assert!(last_query(&place, "pool").await.contains("tenure_apply"), "an acquire is lent one");
    assert!(!last_query(&place, "own").await.contains("tenure_apply"));
    granted(a.renew("e", term).await);
    assert!(last_query(&place, "own").await.contains("tenure_apply"), "a renewal is not");
    assert_eq!(store.elections().await.unwrap(), [name("e")]);
    assert!(last_query(&place, "pool").await.contains("service_name::text"));

    // Used up: renewals do not notice, and the rest is done without it.
    let used_up = pool.get().await.unwrap();
    let started = Instant::now();
    granted(a.renew("e", term).await);
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    granted(a.release("e", term, 1).await);
    let next = a.takes("e", 2).await;
    assert!(next > term);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    drop(used_up);
}

/// Others are told through the pool, and asked for what was busy; a renewal waits for neither.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a PostgreSQL server"]
async fn needs_postgres_a_used_up_pool_holds_up_no_renewal_of_the_same_batch() {
    let Some(server) = common::server() else { return };
    let place = Place::new(&server).await;
    for busy in [false, true] {
        let pool = pool(&place, 1);
        let store = open(&place, &pool);
        let a = Player::new(&store, "a", 1);
        let (kept, given) = (format!("kept {busy}"), format!("given {busy}"));
        let term = a.takes(&kept, 1).await;
        let second = if busy {
            let foreign = place.session().await;
            foreign.run(&format!("BEGIN; SELECT try_become_leader('{given}', 'slow')")).await;
            (a.acquire_op(&given, 1), Some(foreign))
        } else {
            let term = Some(a.takes(&given, 1).await);
            let (election, candidate) = (name(&given), a.id.clone());
            (Op::Release { election, candidate, term, seq: 1 }, None)
        };
        let used_up = pool.get().await.unwrap();
        let started = Instant::now();
        let replies = store.apply(&[a.renew_op(&kept, term), second.0]).await;
        // Half of the limit of a call is what the pool would have.
        assert!(started.elapsed() < Duration::from_millis(900), "{:?}", started.elapsed());
        granted(replies[0].clone());
        drop((used_up, second.1));
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a PostgreSQL server"]
async fn needs_postgres_a_pool_that_leads_elsewhere_is_refused() {
    let Some(server) = common::server() else { return };
    let place = Place::new(&server).await;
    let other = format!("other_{}", std::process::id());
    place.session().await.run(&format!("CREATE DATABASE {other}")).await;
    let (here, _) = server.rsplit_once('/').unwrap();
    let elsewhere = Place { server: format!("{here}/{other}"), schema: place.schema.clone() };
    elsewhere.store().migrate().await.unwrap();
    let store = open(&place, &pool(&elsewhere, 1));
    let error = store.check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.message().contains("the pool leads to another database"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a PostgreSQL server"]
async fn needs_postgres_a_pool_with_dead_connections_costs_no_op() {
    let Some(server) = common::server() else { return };
    let place = Place::new(&server).await;
    let pool = pool(&place, 2);
    let store = open(&place, &pool);
    let a = Player::new(&store, "a", 1);
    let admin = place.session().await;
    let end = "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE application_name = 'pool-' || current_schema()";
    for seq in 1..=3 {
        let term = a.takes("e", seq).await;
        admin.number(end).await;
        granted(a.release("e", term, seq).await);
    }
}
