//! A server that crashes right after a grant: no term is ever issued twice.

use std::time::Duration;

use tenure_core::Reply;
use tenure_postgres::PostgresConfig;
use tenure_testbed::postgres::OwnServer;

use crate::common::{Player, real_wait, until};

const ROUNDS: u128 = 50;

/// The server dies right after each grant, as `pg_ctl -m immediate` ends it.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_no_term_is_issued_twice_over_fifty_crashes() {
    // What leaves the server by itself is to do so as late as possible. It is the server that
    // crashes and not the machine, so what it has given to the kernel need not be on the disk.
    let settings = ["synchronous_commit=off", "wal_writer_delay=10s", "fsync=off"];
    let mut server = OwnServer::new(&settings);
    server.start();
    let store = PostgresConfig::from_url(&server.url("postgres")).unwrap().open();
    until("the server is up", || async { store.migrate().await.is_ok() }).await;
    let mut last = 0;
    for round in 1..=ROUNDS {
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
    assert!(last >= ROUNDS as u64, "each round has a term of its own");
}
