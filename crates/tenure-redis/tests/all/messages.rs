//! Messages on a server that hangs up.

use std::future::poll_fn;
use std::time::Duration;

use rustix::process::Signal;
use tenure_core::{Arrival, Channels as _, Name, Post, Taken, Term};
use tenure_redis::{RedisConfig, Settle};
use tokio::time::timeout;

use crate::common::{Server, Stores as _, player};

const PATIENCE: Duration = Duration::from_secs(20);

#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_an_inbox_whose_connection_is_ended_says_so_and_hears_on() {
    let server = Server::start();
    let store = RedisConfig::from_url(&server.url()).unwrap().open().unwrap();
    let election = Name::new("e").unwrap();
    let channels = ["c".to_owned()];
    let mut inbox = store.listen(&election, Term::FIRST, &channels).await.unwrap();
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let ended: i64 = redis::cmd("CLIENT")
        .arg(&["KILL", "TYPE", "pubsub"])
        .query_async(&mut connection)
        .await
        .unwrap();
    assert_eq!(ended, 1);
    let next = timeout(PATIENCE, poll_fn(|cx| inbox.poll_next(cx))).await.unwrap();
    assert_eq!(next, Some(Arrival::Gap));
    store.notify(&election, "c", "1").await.unwrap();
    let next = timeout(PATIENCE, poll_fn(|cx| inbox.poll_next(cx))).await.unwrap();
    let notice = Arrival::Notice { channel: "c".to_owned(), payload: "1".to_owned() };
    assert_eq!(next, Some(notice));
}

#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_user_that_may_not_publish_is_told_so() {
    let server = Server::start();
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let () = redis::cmd("ACL")
        .arg(&["SETUSER", "app", "on", ">secret", "~*", "resetchannels", "+@all"])
        .query_async(&mut connection)
        .await
        .unwrap();
    let url = server.url().replace("redis://", "redis://app:secret@");
    let store = RedisConfig::from_url(&url).unwrap().open().unwrap();
    let election = Name::new("e").unwrap();
    let error = store.notify(&election, "c", "1").await.unwrap_err();
    assert!(!error.to_string().contains("secret"), "{error}");
    let says = error.to_string();
    assert!(says.contains("channel") || says.contains("permission"), "{says}");
    let channels = ["c".to_owned()];
    assert!(store.listen(&election, Term::FIRST, &channels).await.is_err(), "nor may it listen");
}

/// A leader asked for a message, and the answer was lost. Nobody has seen the message, so none of
/// its tries is used up.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_take_whose_answer_was_lost_is_no_delivery() {
    let server = Server::start();
    let config = server.config().with_settle(Settle::Off);
    let store = config.with_call_timeout(Duration::from_millis(300)).open().unwrap();
    let a = player("e", "a", Duration::from_secs(60));
    let term = a.takes(&store, 1).await.term;
    let post = |payload: &str| Post {
        channel: "c".to_owned(),
        payload: payload.to_owned(),
        key: payload.to_owned(),
    };
    store.post(&a.election, &[post("1"), post("2")]).await.unwrap();
    // It has to know the script.
    assert_eq!(store.take(&a.election, term, "empty", 3).await.unwrap(), Taken::Empty);
    for count in 1..=2 {
        // What was sent is in its socket when it wakes up.
        server.signal(Signal::STOP);
        store.take(&a.election, term, "c", 3).await.unwrap_err();
        server.signal(Signal::CONT);
        server.until(&["HGET", "{e}:tenure:mail", "1:n"], &count.to_string());
        let Taken::Message(first) = store.take(&a.election, term, "c", 3).await.unwrap() else {
            panic!("nothing is left of it");
        };
        assert_eq!((first.payload.as_str(), first.count), ("1", count), "handed out so often");
    }
    // One that takes again after an answer has seen the message.
    let Taken::Message(first) = store.take(&a.election, term, "c", 3).await.unwrap() else {
        panic!("nothing is left of it");
    };
    assert_eq!((first.payload.as_str(), first.count), ("1", 3));
    let Taken::Message(second) = store.take(&a.election, term, "c", 3).await.unwrap() else {
        panic!("nothing is left of it");
    };
    assert_eq!((second.payload.as_str(), second.count), ("2", 1), "the first one is dead");
}

/// Pub/sub knows no databases, so the channels have to (R7).
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_notices_stay_in_their_database() {
    let server = Server::start();
    let open = |database: u32| {
        let url = format!("redis://127.0.0.1:{}/{database}", server.port);
        RedisConfig::from_url(&url).unwrap().open().unwrap()
    };
    let (store, other) = (open(0), open(1));
    let election = Name::new("e").unwrap();
    let channels = ["c".to_owned()];
    let mut inbox = store.listen(&election, Term::FIRST, &channels).await.unwrap();
    other.notify(&election, "c", "\"of another database\"").await.unwrap();
    let post = Post { channel: "c".to_owned(), payload: "1".to_owned(), key: "k".to_owned() };
    other.post(&election, &[post]).await.unwrap();
    store.notify(&election, "c", "\"ours\"").await.unwrap();
    // One connection hears all of it in order.
    let next = timeout(PATIENCE, poll_fn(|cx| inbox.poll_next(cx))).await.unwrap();
    let notice = Arrival::Notice { channel: "c".to_owned(), payload: "\"ours\"".to_owned() };
    assert_eq!(next, Some(notice), "R7");
}
