//! What hurts the person on call: locks that were left, clients that froze, standbys that are gone.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tenure_core::{Checkup, Level, Reply, Store, StoreExt};
use tenure_testbed::postgres::OwnServer;
use tokio::runtime::Handle;

use crate::common::{self, Place, Player, Session, granted, name, now, real_wait, until};

/// `FOR UPDATE` on the whole table, and the transaction left open: whoever it is has a name.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_whoever_has_locked_an_election_and_left_is_named() {
    let server = common::server();
    let place = Place::new(&server).await;
    let store = place.store();
    let a = Player::new(&store, "a", 1).with_ttl(Duration::from_secs(10));
    let term = a.takes("e", 1).await;
    let careless = place.session().await;
    let pid = careless.pid().await;
    careless.run("BEGIN; SELECT FROM leader_election FOR UPDATE").await;
    let named = format!("backend {pid} has locked this election");
    until("it is named", || async {
        match a.renew("e", term).await {
            Reply::Unknown(error) => error.to_string().contains(&named),
            other => panic!("{other:?}"),
        }
    })
    .await;
    careless.run("ROLLBACK").await;
    until("it is renewed", || async { matches!(a.renew("e", term).await, Reply::Granted(_)) })
        .await;
}

/// A client that listens and does not read: its session holds a snapshot and the queue.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_frozen_client_that_listens_is_ended_under_a_flood() {
    let server = common::server();
    let place = Place::new(&server).await;
    let label = format!("frozen-{}", place.schema);
    let options = format!("schema={}&application_name={label}", place.schema);
    let config = common::config(&server, &options);
    let (listens, is_listening) = mpsc::channel();
    let (thaw, frozen) = mpsc::channel::<()>();
    // A runtime of its own, which stands still while this thread does.
    let client = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = config.open();
            let _hints = store.hints();
            store.read(&name("e")).await.unwrap();
            // Until it was seen that notifications are heard.
            real_wait(Duration::from_secs(2)).await;
            listens.send(()).unwrap();
            frozen.recv().ok();
        });
    });
    let session = place.session().await;
    let waited = Handle::current().spawn_blocking(move || is_listening.recv());
    waited.await.unwrap().unwrap();
    let hints = tenure_channel(&place.schema);
    let flood = format!(
        "SELECT pg_notify('{hints}', i || repeat('x', 7000)) FROM generate_series(1, 4000) AS i"
    );
    let blocked = format!(
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = '{label}' \
         AND wait_event = 'ClientWrite' AND backend_xmin IS NOT NULL"
    );
    until("it blocks, and holds a snapshot", || async {
        session.run(&flood).await;
        session.truth(&blocked).await
    })
    .await;
    let began = now();
    while session.truth(&blocked).await {
        assert!(now() - began < Duration::from_secs(120), "nobody ends it");
        real_wait(Duration::from_millis(500)).await;
    }
    println!("ended after {:?}", now() - began);
    thaw.send(()).unwrap();
    client.join().unwrap();
    let a = Player::new(&place.store(), "a", 1);
    let term = a.takes("e", 1).await;
    granted(a.release("e", term, 1).await);
}

/// The channel of hints of a schema.
fn tenure_channel(schema: &str) -> String {
    let hash = format!("{schema}.leader_election")
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    format!("tenure:{hash:016x}")
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_synchronous_standby_that_is_gone_is_told() {
    let mut server = OwnServer::new(&["synchronous_standby_names=gone"]);
    server.start();
    let store = common::config(&server.url("postgres"), "schema=none").open();
    until("the doctor tells", || async {
        let report = store.examine(common::TTL).await;
        let told = |what: &str| what.contains("no synchronous standby is connected");
        report.findings.iter().any(|found| found.level == Level::Safety && told(&found.what))
    })
    .await;
    // It is as bad as that: a commit waits, and no timeout of the server's ends it.
    let session = Session::open(&server.url("postgres")).await;
    let url = server.url("postgres");
    let stuck = Handle::current().spawn(async move {
        let session = Session::open(&url).await;
        session.run("SET statement_timeout = '100ms'").await;
        session.try_run("CREATE TABLE x (a integer)").await
    });
    let waits = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep' \
                 AND now() - query_start > interval '1 second'";
    until("it waits beyond its timeout", || async { session.truth(waits).await }).await;
    stuck.abort();
}
