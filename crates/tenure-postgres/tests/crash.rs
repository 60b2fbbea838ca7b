//! A server that crashes right after a grant: no term is ever issued twice.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests")]

mod common;

use std::time::Duration;

use tenure_core::Reply;
use tenure_postgres::PostgresConfig;

use common::own::OwnServer;
use common::{Player, real_wait, until};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a PostgreSQL server"]
async fn needs_postgres_no_term_is_issued_twice_over_crashes() {
    // What reaches the disk by itself is to come as late as possible.
    let settings = ["synchronous_commit=off", "wal_writer_delay=10s"];
    let Some(mut server) = OwnServer::new(&settings) else { return };
    server.start();
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port);
    let store = PostgresConfig::from_url(&url).unwrap().open();
    until("the server is up", || async { store.migrate().await.is_ok() }).await;
    let mut last = 0;
    for round in 1..=10 {
        let player = Player::new(&store, "a", round).with_ttl(Duration::from_millis(100));
        let mut granted = 0;
        for seq in 1.. {
            if let Reply::Granted(grant) = player.acquire("e", seq).await {
                granted = grant.term.get();
                break;
            }
            assert!(seq < 1_000, "nobody is granted anything any more");
            real_wait(Duration::from_millis(20)).await;
        }
        server.crash();
        assert!(granted > last, "after {last} came {granted}");
        last = granted;
    }
}
