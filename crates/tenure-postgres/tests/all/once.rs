//! Work that is done once for a key and records its success in the transaction of its effect.

use tenure_core::{Ledger, OnceEnd, OnceMark, OnceStep, Store as _, Term};
use tenure_postgres::PostgresStore;

use crate::common::{self, Place, Player, name};

fn ledger(store: &PostgresStore) -> &dyn Ledger {
    store.ledger().unwrap()
}

async fn claim(store: &PostgresStore, term: Term, run: u64) -> OnceMark {
    let step = OnceStep::Claim { key: "v1".to_owned(), run, tries: 9 };
    ledger(store).once(&name("e"), term, &step).await.unwrap()
}

async fn end(store: &PostgresStore, term: Term, attempt: u32, end: OnceEnd) -> OnceMark {
    let step = OnceStep::End { key: "v1".to_owned(), attempt, end };
    ledger(store).once(&name("e"), term, &step).await.unwrap()
}

fn records(term: Term, attempt: u32) -> String {
    format!("SELECT tenure_once('e', {term}, 'v1', {attempt})")
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_effect_and_its_record_are_there_together_or_not_at_all() {
    let server = common::server();
    let place = Place::new(&server).await;
    let (store, session) = (place.store(), place.session().await);
    session.run("CREATE TABLE effect (attempt integer)").await;
    let old = Player::new(&store, "old", 1);
    let term = old.takes("e", 1).await;
    assert_eq!(claim(&store, term, 1).await, OnceMark::Done { attempt: 1 });
    // Rolled back: neither is there.
    session.run("BEGIN").await;
    session.run(&records(term, 1)).await;
    session.run("INSERT INTO effect VALUES (1)").await;
    assert_eq!(end(&store, term, 1, OnceEnd::Lost).await, OnceMark::Busy, "it is at it");
    session.run("ROLLBACK").await;
    let found = ledger(&store).once_record(&name("e"), "v1").await.unwrap().unwrap();
    assert!(!found.is_done(), "{found:?}");
    // Committed: both are, and what the command says afterwards changes nothing.
    session.run("BEGIN").await;
    session.run(&records(term, 1)).await;
    session.run("INSERT INTO effect VALUES (1)").await;
    session.run("COMMIT").await;
    assert_eq!(end(&store, term, 1, OnceEnd::Failed(9)).await, OnceMark::Refused);
    assert_eq!(end(&store, term, 1, OnceEnd::Ok).await, OnceMark::Done { attempt: 1 });
    // The instance dies before it can say anything: nobody runs it again.
    common::granted(old.release("e", term, 2).await);
    let next = Player::new(&store, "new", 2).takes("e", 1).await;
    assert_eq!(claim(&store, next, 2).await, OnceMark::Already);
    let again = session.try_run(&records(next, 1)).await.unwrap_err();
    assert!(again.contains("TN001"), "{again}");
    assert_eq!(session.number("SELECT count(*) FROM effect").await, 1);
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_term_or_an_attempt_that_is_over_records_nothing() {
    let server = common::server();
    let place = Place::new(&server).await;
    let (store, session) = (place.store(), place.session().await);
    let old = Player::new(&store, "old", 1);
    let term = old.takes("e", 1).await;
    assert_eq!(claim(&store, term, 1).await, OnceMark::Done { attempt: 1 });
    assert_eq!(end(&store, term, 1, OnceEnd::Failed(1)).await, OnceMark::Done { attempt: 1 });
    assert_eq!(claim(&store, term, 2).await, OnceMark::Done { attempt: 2 });
    let early = session.try_run(&records(term, 1)).await.unwrap_err();
    assert!(early.contains("TN001") && early.contains("attempt 1"), "{early}");
    common::granted(old.release("e", term, 2).await);
    let next = Player::new(&store, "new", 2).takes("e", 1).await;
    let late = session.try_run(&records(term, 2)).await.unwrap_err();
    assert!(late.contains("TN001"), "{late}");
    assert_eq!(claim(&store, next, 3).await, OnceMark::Done { attempt: 3 });
    session.run(&records(next, 3)).await;
    assert_eq!(claim(&store, next, 4).await, OnceMark::Already);
}
