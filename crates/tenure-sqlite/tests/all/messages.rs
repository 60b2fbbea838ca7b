//! Messages in the file: notices that are forgotten, and renewals that do not wait behind posts.

use std::future::poll_fn;
use std::time::Duration;

use tenure_core::{
    Arrival, CandidateId, Channels, Inbox, Name, Op, Post, Reply, Store, StoreExt, Term,
};
use tenure_sqlite::{SqliteConfig, SqliteStore};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

async fn leads(store: &SqliteStore, election: &str) -> Term {
    let acquire = Op::Acquire {
        election: name(election),
        candidate: CandidateId::new("a", 1).unwrap(),
        seq: 1,
        above: None,
        floor: None,
        ttl: Duration::from_secs(120),
        metadata: None,
    };
    match store.apply_one(&acquire).await {
        Reply::Granted(grant) => grant.term,
        other => panic!("{other:?}"),
    }
}

async fn next(inbox: &mut dyn Inbox) -> Option<Arrival> {
    timeout(PATIENCE, poll_fn(|cx| inbox.poll_next(cx))).await.expect("something happens")
}

#[tokio::test]
async fn notices_are_kept_for_a_while_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let store = SqliteStore::open(&path).unwrap();
    for number in 0..4_500 {
        store.notify(&name("e"), "c", &number.to_string()).await.unwrap();
    }
    let db = rusqlite::Connection::open(&path).unwrap();
    let count = || db.query_row("SELECT count(*) FROM notice", (), |row| row.get::<_, i64>(0));
    let kept = count().unwrap();
    assert!((4_096..4_096 + 64).contains(&kept), "{kept} are kept");
    db.execute("UPDATE notice SET at_ns = at_ns - 61000000000", ()).unwrap();
    for number in 0..64 {
        store.notify(&name("e"), "c", &number.to_string()).await.unwrap();
    }
    assert!(count().unwrap() <= 64 + 1, "what is older than a minute is gone, but for one mark");
    db.execute("UPDATE notice SET at_ns = at_ns - 3600000000000", ()).unwrap();
    for number in 0..64 {
        store.notify(&name("e"), "c", &number.to_string()).await.unwrap();
    }
    let marks = "SELECT count(*) FROM notice WHERE channel = '' AND id <= 4564 - 64";
    let marks: i64 = db.query_row(marks, (), |row| row.get(0)).unwrap();
    assert_eq!(marks, 0, "and that is gone after an hour");
}

/// Somebody who reads slowly is told that there was more, and others are not.
#[tokio::test]
async fn notices_that_are_trimmed_before_they_are_read_are_a_gap() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let store = SqliteStore::open(&path).unwrap();
    let (slow_term, other_term) = (leads(&store, "slow").await, leads(&store, "other").await);
    let channels = ["c".to_owned()];
    let mut slow = store.listen(&name("slow"), slow_term, &channels).await.unwrap();
    let mut other = store.listen(&name("other"), other_term, &channels).await.unwrap();
    store.notify(&name("other"), "c", "0").await.unwrap();
    assert!(matches!(next(&mut *other).await, Some(Arrival::Notice { .. })));
    for number in 0..4_500 {
        store.notify(&name("slow"), "c", &number.to_string()).await.unwrap();
    }
    assert_eq!(next(&mut *slow).await, Some(Arrival::Gap));
    let first = next(&mut *slow).await;
    assert!(matches!(&first, Some(Arrival::Notice { .. })), "{first:?}");
    store.notify(&name("other"), "c", "1").await.unwrap();
    let heard = Arrival::Notice { channel: "c".to_owned(), payload: "1".to_owned() };
    assert_eq!(next(&mut *other).await, Some(heard), "nothing of its own is missing");
}

#[tokio::test]
async fn keys_are_forgotten_a_day_after_they_were_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let store = SqliteStore::open(&path).unwrap();
    let term = leads(&store, "e").await;
    let db = rusqlite::Connection::open(&path).unwrap();
    let post = |key: &str| [Post { channel: "c".into(), payload: "1".into(), key: key.into() }];
    for (key, hours) in [("old", 25), ("young", 23)] {
        let id = store.post(&name("e"), &post(key)).await.unwrap()[0].id;
        store.take(&name("e"), term, "c", 10).await.unwrap();
        store.acknowledge(&name("e"), term, "c", id).await.unwrap();
        let sql = "UPDATE message SET ended_unix_ms = ended_unix_ms - ?1 * 3600000 WHERE key = ?2";
        db.execute(sql, (hours, key)).unwrap();
    }
    store.acknowledge(&name("e"), term, "c", 999).await.unwrap();
    assert!(store.post(&name("e"), &post("old")).await.unwrap()[0].is_new);
    assert!(!store.post(&name("e"), &post("young")).await.unwrap()[0].is_new);
}

#[tokio::test]
async fn an_inbox_whose_directory_is_gone_ends_and_no_other_begins() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("x.db")).unwrap();
    let term = leads(&store, "e").await;
    let channels = ["c".to_owned()];
    let mut inbox = store.listen(&name("e"), term, &channels).await.unwrap();
    store.notify(&name("e"), "c", "1").await.unwrap();
    assert!(matches!(next(&mut *inbox).await, Some(Arrival::Notice { .. })));
    std::fs::remove_dir_all(directory.path().join("x.db-hints")).unwrap();
    assert_eq!(next(&mut *inbox).await, None, "a deaf inbox must be known to be one");
    let error = store.listen(&name("e"), term, &channels).await.err().expect("it is deaf");
    assert!(error.to_string().contains("can't be watched"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_do_not_wait_behind_posts() {
    let directory = tempfile::tempdir().unwrap();
    let config = SqliteConfig::new(directory.path().join("x.db"));
    let store = config.with_busy_timeout(PATIENCE).open().unwrap();
    let term = leads(&store, "e").await;
    let payload = format!("\"{}\"", "x".repeat(1_000));
    let batch: Vec<Post> = (0..1_000)
        .map(|key| Post { channel: "c".into(), payload: payload.clone(), key: key.to_string() })
        .collect();
    let posting: Vec<_> = (0..30)
        .map(|round| {
            let store = store.clone();
            let mut batch = batch.clone();
            batch.iter_mut().for_each(|post| post.key = format!("{round}-{}", post.key));
            tokio::runtime::Handle::current().spawn(async move {
                store.post(&name("e"), &batch).await.unwrap();
            })
        })
        .collect();
    let renew = Op::Renew {
        election: name("e"),
        candidate: CandidateId::new("a", 1).unwrap(),
        term,
        ttl: Duration::from_secs(120),
    };
    let mut renewed = 0;
    while !posting.iter().all(|posting| posting.is_finished()) {
        assert!(matches!(store.apply_one(&renew).await, Reply::Granted(_)));
        renewed += 1;
    }
    assert!(renewed >= 10, "only {renewed} renewals came in between 30 batches");
    let backlog = store.channels().unwrap().backlog(&name("e")).await.unwrap();
    assert_eq!(backlog[0].waiting, 30_000);
}
