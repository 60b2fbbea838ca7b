//! Terms that go on above those of a former store (C5), in both kinds of elections.

use tenure_core::{StoreExt, Term};
use tenure_postgres::PostgresConfig;

use crate::advisory_common::{Database, Player as Locker};
use crate::common::{self, Place, Player, Session, granted, name, refused};

/// What Redis issues: its time in milliseconds.
const REDIS: u64 = 1_794_960_000_123;

fn term(number: u64) -> Term {
    Term::new(number).unwrap()
}

async fn passes(session: &Session, election: &str, term: impl std::fmt::Display) -> bool {
    let fence = format!("BEGIN; SELECT tenure_fence('{election}', {term}); COMMIT");
    let passed = session.try_run(&fence).await;
    if let Err(says) = &passed {
        assert!(says.starts_with("TN001"), "{says}");
        session.run("ROLLBACK").await;
    }
    passed.is_ok()
}

async fn full(session: &Session, election: &str) -> u64 {
    let last = session.number(&format!("SELECT tenure_term('{election}')")).await;
    u64::try_from(last).unwrap()
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_terms_of_leases_go_on_above_those_of_another_store() {
    let server = common::server();
    let place = Place::new(&server).await;
    let (store, session) = (place.store(), place.session().await);
    let a = Player::new(&store, "a", 1);
    let before = a.takes("e", 1).await;
    assert_eq!(store.raise_terms(term(REDIS)).await.unwrap().get(), REDIS);
    // Lower ones change nothing, and the same one neither.
    for lower in [1, REDIS - 1, REDIS] {
        assert_eq!(store.raise_terms(term(lower)).await.unwrap().get(), REDIS);
    }
    assert_eq!(session.number("SELECT count(*) FROM tenure_floor").await, 1);

    // The leader goes on under the term that it has.
    granted(a.renew("e", before).await);
    assert!(passes(&session, "e", before).await);
    let lease = refused(Player::new(&store, "b", 2).acquire("e", 1).await).lease.unwrap();
    assert_eq!(lease.term, Some(before));
    granted(a.release("e", before, 1).await);
    assert_eq!(store.read(&name("e")).await.unwrap().last_term, Some(before));

    // The next one is above it, for tenure and for the clients of the table.
    let mut last = REDIS;
    for seq in 2..=4 {
        let next = a.takes("e", seq).await;
        assert!(next.get() > last, "{next} after {last}");
        last = next.get();
        assert!(passes(&session, "e", next).await && !passes(&session, "e", before).await);
        assert!(!passes(&session, "e", last - 1).await && !passes(&session, "e", last + 1).await);
        assert_eq!(granted(a.renew("e", next).await).term, next);
        let sight = store.read(&name("e")).await.unwrap();
        assert_eq!((sight.lease.unwrap().term, sight.last_term), (Some(next), Some(next)));
        granted(a.release("e", next, seq).await);
    }
    for client in ["x", "y"] {
        assert!(session.truth(&format!("SELECT try_become_leader('e', '{client}', 30)")).await);
        let (_, column) = place.row("e").await;
        assert!(full(&session, "e").await > last);
        last = full(&session, "e").await;
        // It knows the column alone, and that is enough for its fence.
        assert!(passes(&session, "e", column).await && passes(&session, "e", last).await);
        assert!(!passes(&session, "e", column - 1).await);
        assert!(session.truth(&format!("SELECT leader_heartbeat('e', '{client}')")).await);
        assert!(session.truth(&format!("SELECT step_down('e', '{client}')")).await);
    }
    // A new name, taken by whichever of them: ours, a function, an insert, an update by hand.
    assert!(Player::new(&store, "n", 3).takes("new 1", 1).await.get() > REDIS);
    assert!(session.truth("SELECT try_become_leader('new 2', 'x', 30)").await);
    session
        .run("INSERT INTO leader_election (service_name, leader_id) VALUES ('new 3', 'x')")
        .await;
    session.run("INSERT INTO leader_election (service_name, leader_id) VALUES ('new 4', '')").await;
    session
        .run(
            "UPDATE leader_election SET leader_id = 'x', term = term + 1 \
              WHERE service_name = 'new 4'",
        )
        .await;
    for new in ["new 2", "new 3", "new 4"] {
        assert!(full(&session, new).await > REDIS, "{new}");
    }
    let says = session.try_run("UPDATE leader_election SET tenure_base = 0").await.unwrap_err();
    assert!(says.starts_with("TN003"), "{says}");
    assert!(store.raise_terms(Term::MAX).await.is_err());
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_terms_of_locks_go_on_above_those_of_another_store() {
    let server = common::server();
    let database = Database::new(&server).await;
    let store = database.store();
    store.migrate().await.unwrap();
    let session = database.session().await;
    let (a, b) = (Locker::new(&store, "a"), Locker::new(&database.store(), "b"));
    let before = a.takes("e").await;
    assert_eq!(store.raise_terms(term(REDIS)).await.unwrap().get(), REDIS);
    granted(a.renew("e", before).await);
    assert!(passes(&session, "e", before).await);
    assert_eq!(refused(b.acquire("e").await).lease.unwrap().term, Some(before));
    granted(a.release("e", before).await);
    let mut last = REDIS;
    for player in [&b, &a, &b] {
        let next = player.takes("e").await;
        assert!(next.get() > last, "{next} after {last}");
        last = next.get();
        assert!(passes(&session, "e", next).await && !passes(&session, "e", before).await);
        // Others see it, though the locks have no room for it.
        for other in [&a, &b] {
            assert_eq!(other.sees("e").await.lease.unwrap().term, Some(next));
        }
        granted(player.renew("e", next).await);
        granted(player.release("e", next).await);
        let lock = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 \
                    AND mode = 'ExclusiveLock' AND classid NOT IN (1952804469, 1952804468) AND \
                    database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        assert_eq!(session.number(lock).await, 0, "and nothing of it is left");
    }
    // To the lease and back: above all of them without a word.
    let lease = PostgresConfig::from_url(&database.url).unwrap().open();
    let lease = Player::new(&lease, "lease", 1);
    let next = lease.takes("e", 1).await;
    assert!(next.get() > last);
    granted(lease.release("e", next, 1).await);
    assert!(a.takes("e").await > next);
}
