//! The fence stands on one row lock: every change of hands locks with `FOR UPDATE`, which a fenced
//! transaction keeps out (P1). Without it the proof of the fence must fail, or it proves nothing.

use tenure_core::Reply;

use crate::common::frozen::{self, Came, LEVELS, fence, next_term};
use crate::common::{self, Place, Player, Session, granted, unknown, until};

/// Where a change of hands locks its row: the functions of tenure, those of other clients, and the
/// trigger of the table. `FOR NO KEY UPDATE` is what an `UPDATE` alone takes.
const LOCKS: [&str; 3] = [
    "WHERE t.service_name = o.name FOR UPDATE SKIP LOCKED",
    "WHERE t.service_name = p_service_name FOR UPDATE SKIP LOCKED",
    "WHERE service_name = OLD.service_name FOR UPDATE SKIP LOCKED",
];

/// A schema in which these locks do not keep a fenced transaction out.
async fn without(server: &str, locks: &[&str]) -> Place {
    let place = Place::empty(server);
    let mut script = place.store().migration_sql();
    for lock in locks {
        assert!(script.contains(lock), "the migrations have changed: {lock}");
        script = script.replace(lock, &lock.replace("FOR UPDATE", "FOR NO KEY UPDATE"));
    }
    Session::open(server).await.run(&script).await;
    place
}

/// An old leader has fenced and not yet written when its lease is given up and somebody asks for
/// it. How many of its writes come after one of the new term, over all isolation levels.
async fn stale_writes(place: &Place) -> i64 {
    let main = place.session().await;
    main.run("CREATE TABLE done (id bigserial, election text, term bigint)").await;
    for level in LEVELS {
        let store = place.store();
        let (old, new) = (Player::new(&store, "old", 1), Player::new(&store, "new", 2));
        let term = old.takes(level, 1).await;
        let writes = |term| format!("INSERT INTO done (election, term) VALUES ('{level}', {term})");
        let session = place.session().await;
        session.run(&format!("BEGIN ISOLATION LEVEL {level}")).await;
        session.run(&fence(level, term)).await;
        granted(old.release(level, term, 1).await);
        let asked = new.acquire(level, 1).await;
        if let Reply::Granted(grant) = &asked {
            main.run(&format!(
                "BEGIN; {}; {}; COMMIT",
                fence(level, grant.term),
                writes(grant.term)
            ))
            .await;
        }
        if !matches!(asked, Reply::Granted(_)) {
            // At first it might be another candidate; then it is told what it is.
            until("it is told", || async {
                unknown(new.acquire(level, 1).await).contains("fenced")
            })
            .await;
        }
        session.run(&writes(term)).await;
        session.run("COMMIT").await;
        if !matches!(asked, Reply::Granted(_)) {
            let next = next_term(&Player::new(&store, "next", 3), level).await;
            main.run(&format!("BEGIN; {}; {}; COMMIT", fence(level, next), writes(next))).await;
        }
    }
    main.number(
        "SELECT count(*) FROM done AS late WHERE EXISTS (SELECT FROM done AS new \
         WHERE new.election = late.election AND new.term > late.term AND new.id < late.id)",
    )
    .await
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_without_the_row_lock_a_stale_write_passes_and_is_noticed() {
    let server = common::server();
    assert_eq!(stale_writes(&without(&server, &[]).await).await, 0, "the control");
    assert_eq!(stale_writes(&without(&server, &LOCKS).await).await, 3, "at every level");
    // The table guards itself: one of the two alone will do.
    assert_eq!(stale_writes(&without(&server, &LOCKS[..2]).await).await, 0);
    assert_eq!(stale_writes(&without(&server, &LOCKS[2..]).await).await, 0);
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_proof_of_the_fence_fails_without_the_row_lock() {
    let server = common::server();
    let came = frozen::rounds(&without(&server, &LOCKS).await, 40).await;
    let stale = came.iter().filter(|came| matches!(came, Came::Stale(_))).count();
    println!("{stale} of {} rounds had a stale write", came.len());
    assert!(stale >= 5, "{came:#?}");
}
