//! A server that crashes right after a grant: no term is ever issued twice (A1).

use std::time::Duration;

use tenure_core::{Reply, Term};
use tenure_postgres::AdvisoryConfig;
use tenure_testbed::postgres::OwnServer;

use crate::advisory_common::{Player, advisory_url};
use crate::common::{real_wait, until};

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_no_transaction_number_is_a_term_twice_over_crashes() {
    crash_after_each_grant(8, false).await;
}

/// Where each grant leaves its term in a table.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_with_tables_no_term_is_issued_twice_over_crashes() {
    crash_after_each_grant(8, true).await;
}

#[needs(long, postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn long_postgres_no_transaction_number_is_a_term_twice_over_fifty_crashes() {
    crash_after_each_grant(50, false).await;
    crash_after_each_grant(50, true).await;
}

async fn crash_after_each_grant(rounds: usize, migrated: bool) {
    // What reaches the disk by itself is to come as late as possible.
    let settings = ["synchronous_commit=off", "wal_writer_delay=10s", "autovacuum=off"];
    let mut server = OwnServer::new(&settings);
    server.start();
    let config = AdvisoryConfig::from_url(&advisory_url(&server.url("postgres"))).unwrap();
    let store = config.open();
    if migrated {
        until("the server is up", || async { store.migrate().await.is_ok() }).await;
    }
    let mut granted: Vec<Term> = Vec::new();
    for round in 0..rounds {
        let player = Player::new(&store, "a");
        let mut tries = 0;
        loop {
            if let Reply::Granted(grant) = player.acquire("e").await {
                granted.push(grant.term);
                break;
            }
            tries += 1;
            assert!(tries < 1_000, "round {round}: nobody is granted anything any more");
            real_wait(Duration::from_millis(20)).await;
        }
        server.crash();
    }
    println!("terms over {rounds} crashes: {granted:?}");
    assert!(granted.is_sorted_by(|a, b| a < b), "I2: {granted:?}");
}
