//! Work that is done once for a key, on the memory store.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::core::{Ledger as _, OnceEnd, OnceState, Store};
use tenure::{Candidate, Election, ErrorKind, MemoryStore, Name, OnceClaim, OnceOptions};
use tenure::{OnceOutcome, OnceRun};
use tokio::sync::Notify;

use crate::common;

const TTL: Duration = Duration::from_millis(600);

fn election(store: &MemoryStore, label: &str) -> Election {
    election_for(store, label, TTL)
}

fn election_for(store: &MemoryStore, label: &str, ttl: Duration) -> Election {
    let store: Arc<dyn Store> = Arc::new(store.clone());
    let candidate = Candidate::builder(store).label(label).build().unwrap();
    candidate.election("schema").ttl(ttl).build().unwrap()
}

fn schema() -> Name {
    Name::new("schema").unwrap()
}

#[tokio::test]
async fn each_key_runs_once_however_many_want_it() {
    let store = MemoryStore::new();
    let running = Arc::new(AtomicUsize::new(0));
    let runs: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut instances = tokio::task::JoinSet::new();
    for instance in 0..5 {
        // So long that a busy machine takes no lease away: each key is then done at the first try.
        let ttl = Duration::from_secs(60);
        let election = election_for(&store, &format!("i{instance}"), ttl);
        let (running, runs) = (running.clone(), runs.clone());
        instances.spawn(async move {
            let mut ran = 0;
            for key in 0..20 {
                let outcome = election
                    .once(&format!("k{key}"), |run: OnceRun| {
                        let (running, runs) = (running.clone(), runs.clone());
                        async move {
                            assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                            tokio::task::yield_now().await;
                            runs.lock().unwrap().push(run.key().to_owned());
                            running.fetch_sub(1, Ordering::SeqCst);
                            Ok::<(), Infallible>(())
                        }
                    })
                    .await
                    .unwrap();
                match outcome {
                    OnceOutcome::Ran(()) => ran += 1,
                    outcome => assert_eq!(outcome, OnceOutcome::Already),
                }
            }
            ran
        });
    }
    let ran: usize = instances.join_all().await.into_iter().sum();
    assert_eq!(ran, 20);
    let mut runs = runs.lock().unwrap().clone();
    runs.sort();
    runs.dedup();
    assert_eq!(runs.len(), 20);
    let records = store.once_history(&schema(), 100).await.unwrap();
    assert_eq!(records.len(), 20);
    let odd = records.iter().find(|it| !it.is_done() || it.attempt != 1);
    assert_eq!(odd, None, "each is done at the first try");
}

/// One process that does many things once does not step back after each of them.
#[tokio::test]
async fn keys_in_a_row_do_not_wait_for_a_renewal() {
    let candidate = Candidate::builder(Arc::new(MemoryStore::new())).build().unwrap();
    let election = candidate.election("schema").ttl(Duration::from_secs(3_600)).build().unwrap();
    for key in 0..20 {
        let ran = election.once(&format!("k{key}"), |_| async { Ok::<_, Infallible>(key) }).await;
        assert_eq!(ran.unwrap(), OnceOutcome::Ran(key));
    }
}

#[tokio::test]
async fn what_failed_is_tried_again_until_its_tries_are_used_up() {
    let store = MemoryStore::new();
    let one = election(&store, "one");
    let tried = AtomicUsize::new(0);
    let fails = |_: OnceRun| {
        let number = tried.fetch_add(1, Ordering::SeqCst);
        async move { Err::<(), _>(number) }
    };
    let options = OnceOptions::new().tries(2);
    let outcome = one.once_with("v1", options, fails).await.unwrap();
    assert_eq!(outcome, OnceOutcome::Failed { attempts: 2, error: Some(1) });
    // Everybody is told so, without a try.
    let two = election(&store, "two");
    let outcome = two.once_with("v1", options, fails).await.unwrap();
    assert_eq!(outcome, OnceOutcome::Failed { attempts: 2, error: None });
    let more = options.tries(3).no_wait();
    let works = |run: OnceRun| async move { Ok::<_, usize>(run.attempt()) };
    assert_eq!(two.once_with("v1", more, works).await.unwrap(), OnceOutcome::Ran(3));
    assert_eq!(one.once("v1", works).await.unwrap(), OnceOutcome::Already);
    assert_eq!(tried.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_run_that_is_gone_is_tried_again_by_another() {
    let store = MemoryStore::new();
    let (one, two) = (election(&store, "one"), election(&store, "two"));
    let began = Arc::new(Notify::new());
    let told = began.clone();
    let hangs = tokio::runtime::Handle::current().spawn(async move {
        let work = |_| {
            told.notify_one();
            std::future::pending::<Result<(), Infallible>>()
        };
        one.once("v1", work).await
    });
    began.notified().await;
    // The future is dropped, and with it all that was held.
    hangs.abort();
    let works = |run: OnceRun| async move { Ok::<_, Infallible>(run.attempt()) };
    assert_eq!(two.once("v1", works).await.unwrap(), OnceOutcome::Ran(2));
}

#[tokio::test]
async fn work_that_is_told_to_stop_and_does_not_is_dropped_and_tried_again() {
    let store = MemoryStore::new();
    let (one, two) = (election(&store, "one"), election(&store, "two"));
    let began = Arc::new(Notify::new());
    let told = began.clone();
    let first = one.clone();
    let hangs = tokio::runtime::Handle::current().spawn(async move {
        let work = |_| {
            told.notify_one();
            std::future::pending::<Result<(), Infallible>>()
        };
        first.once("v1", work).await
    });
    began.notified().await;
    one.stop().await.unwrap();
    assert_eq!(hangs.await.unwrap().unwrap_err().kind(), ErrorKind::Stopped);
    let record = store.once_record(&schema(), "v1").await.unwrap().unwrap();
    assert_eq!(record.state, OnceState::Ended(OnceEnd::Lost));
    let works = |run: OnceRun| async move { Ok::<_, Infallible>(run.attempt()) };
    assert_eq!(two.once("v1", works).await.unwrap(), OnceOutcome::Ran(2));
}

/// It was asked to stop, and finished in the time it had: that counts.
#[tokio::test]
async fn work_that_ends_well_while_winding_up_is_recorded_and_its_value_returned() {
    let store = MemoryStore::new();
    let one = election(&store, "one");
    let began = Arc::new(Notify::new());
    let told = began.clone();
    let first = one.clone();
    let finishing = tokio::runtime::Handle::current().spawn(async move {
        let work = |run: OnceRun| {
            told.notify_one();
            async move {
                run.lost().await;
                Ok::<_, Infallible>("finished")
            }
        };
        first.once("v1", work).await
    });
    began.notified().await;
    one.stop().await.unwrap();
    assert_eq!(finishing.await.unwrap().unwrap(), OnceOutcome::Ran("finished"));
    assert!(store.once_record(&schema(), "v1").await.unwrap().unwrap().is_done());
}

#[tokio::test]
async fn who_does_not_wait_is_told_where_it_stands() {
    let store = MemoryStore::new();
    let (one, two) = (election(&store, "one"), election(&store, "two"));
    let OnceClaim::Mine(run) = one.claim_once("v1", OnceOptions::new()).await.unwrap() else {
        panic!("nobody else wants it");
    };
    let works = |_| async { Ok::<_, Infallible>(()) };
    for _ in 0..3 {
        let outcome = two.once_with("v1", OnceOptions::new().no_wait(), works).await.unwrap();
        assert_eq!(outcome, OnceOutcome::Elsewhere);
    }
    let soon = OnceOptions::new().wait(Duration::from_millis(50));
    assert_eq!(two.once_with("v1", soon, works).await.unwrap(), OnceOutcome::Elsewhere);
    assert!(run.end(OnceEnd::Ok).await.unwrap());
    let outcome = two.once_with("v1", OnceOptions::new().no_wait(), works).await.unwrap();
    assert_eq!(outcome, OnceOutcome::Already);
    let outcome = two.once_with("v2", OnceOptions::new().no_wait(), works).await.unwrap();
    assert_eq!(outcome, OnceOutcome::Ran(()), "nobody leads any more");
}

/// A success is seen by those who wait, though somebody else leads on.
#[tokio::test]
async fn a_success_is_seen_without_leading() {
    let store = MemoryStore::new();
    let (one, two) = (election(&store, "one"), election(&store, "two"));
    let ran = one.once("v1", |_| async { Ok::<_, Infallible>(()) }).await.unwrap();
    assert_eq!(ran, OnceOutcome::Ran(()));
    let _held = one.campaign().await.unwrap();
    let outcome = two.once("v1", |_| async { Ok::<_, Infallible>(()) }).await.unwrap();
    assert_eq!(outcome, OnceOutcome::Already);
}

#[tokio::test]
async fn what_can_not_be_is_refused_with_a_sentence() {
    let one = election(&MemoryStore::new(), "one");
    let works = |_| async { Ok::<_, Infallible>(()) };
    let error = one.once("", works).await.unwrap_err();
    assert!(error.message().contains("the key is empty"), "{error}");
    let error = one.once_with("v1", OnceOptions::new().tries(0), works).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    let (bare, _without_a_ledger) = common::World::new().candidate("bare");
    let bare = bare.election("schema").ttl(common::TTL).build().unwrap();
    let error = bare.once("v1", works).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("keeps no ledger, which once needs"), "{error}");
}
