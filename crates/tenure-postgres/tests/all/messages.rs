//! Messages as other programs see them: plain NOTIFY, posts in the user's own transactions, and a
//! connection that breaks.

use std::future::poll_fn;
use std::time::Duration;

use tenure_core::{Acknowledged, Arrival, Channels, Delivery, Inbox, Post, Store, Taken, Term};
use tenure_postgres::PostgresStore;
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, NoTls};

use crate::common::{self, PATIENCE, Place, Player, Session, name, now, until};
use tenure_testbed::proxy::{Proxy, Trap};

fn channels(store: &PostgresStore) -> &dyn Channels {
    store.channels().unwrap()
}

/// A store whose sessions can be told from those of other tests.
fn named(place: &Place, test: &str) -> PostgresStore {
    let application = application(test);
    let options = format!("schema={}&application_name={application}", place.schema);
    let config = common::config(&place.server, &options);
    config.with_call_timeout(PATIENCE).with_connect_timeout(PATIENCE).open()
}

fn application(test: &str) -> String {
    format!("{test}-{}", std::process::id())
}

/// The sessions of such a store whose last statement began like this.
fn sessions(test: &str, statement: &str) -> String {
    let application = application(test);
    format!(
        "pg_stat_activity WHERE application_name = '{application}' \
         AND query LIKE '{statement}%'"
    )
}

async fn leader(store: &PostgresStore, election: &str) -> (Player, Term) {
    let player = Player::new(store, "leader", 1);
    let term = player.takes(election, 1).await;
    (player, term)
}

async fn listens(store: &PostgresStore, term: Term, channel: &str) -> Box<dyn Inbox> {
    let names = [channel.to_owned()];
    channels(store).listen(&name("e"), term, &names).await.unwrap()
}

async fn next(inbox: &mut dyn Inbox) -> Arrival {
    let arrival = timeout(PATIENCE, poll_fn(|cx| inbox.poll_next(cx))).await;
    arrival.expect("something arrives").expect("the inbox is open")
}

async fn takes(store: &PostgresStore, term: Term, channel: &str) -> Option<Delivery> {
    match channels(store).take(&name("e"), term, channel, 10).await.unwrap() {
        Taken::Message(delivery) => Some(delivery),
        Taken::Empty => None,
        other => panic!("{other:?}"),
    }
}

fn post(channel: &str, payload: &str, key: &str) -> Post {
    Post { channel: channel.into(), payload: payload.into(), key: key.into() }
}

#[needs(postgres)]
#[tokio::test]
async fn needs_postgres_programs_that_notify_and_listen_by_themselves_fit_in() {
    let url = common::server();
    let place = Place::new(&url).await;
    let (store, session) = (place.store(), place.session().await);
    let (_leader, term) = leader(&store, "e").await;
    let channel = format!("my_events_{}", std::process::id());
    let mut inbox = listens(&store, term, &channel).await;
    // As people have it in their programs.
    session.run(&format!("NOTIFY {channel}, '{{\"action\":\"refresh\"}}'")).await;
    let payload = "{\"action\":\"refresh\"}".to_owned();
    assert_eq!(next(&mut *inbox).await, Arrival::Notice { channel: channel.clone(), payload });
    // What is no JSON arrives too: the handler decides.
    session.run(&format!("NOTIFY {channel}")).await;
    let bare = Arrival::Notice { channel: channel.clone(), payload: String::new() };
    assert_eq!(next(&mut *inbox).await, bare);
    // And the other way about.
    let (client, mut connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    tokio::runtime::Handle::current().spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(note) = message {
                tell.send((note.channel().to_owned(), note.payload().to_owned())).unwrap();
            }
        }
    });
    client.batch_execute(&format!("LISTEN {channel}")).await.unwrap();
    channels(&store).notify(&name("e"), &channel, "{\"from\":\"tenure\"}").await.unwrap();
    let heard = timeout(PATIENCE, told.recv()).await.unwrap().unwrap();
    assert_eq!(heard, (channel, "{\"from\":\"tenure\"}".to_owned()));
}

#[needs(postgres)]
#[tokio::test]
async fn needs_postgres_an_inbox_whose_connection_is_ended_says_so_and_hears_on() {
    let url = common::server();
    let place = Place::new(&url).await;
    let (store, session) = (named(&place, "ended"), place.session().await);
    let (_leader, term) = leader(&store, "e").await;
    let channel = format!("ended_{}", std::process::id());
    let mut inbox = listens(&store, term, &channel).await;
    let others = listens(&store, term, "another").await;
    let listening = sessions("ended", "LISTEN");
    let ended = format!("SELECT count(pg_terminate_backend(pid)) FROM {listening}");
    assert_eq!(session.number(&ended).await, 1, "one connection listens for all");
    assert_eq!(next(&mut *inbox).await, Arrival::Gap);
    channels(&store).notify(&name("e"), &channel, "1").await.unwrap();
    let heard = next(&mut *inbox).await;
    assert_eq!(heard, Arrival::Notice { channel, payload: "1".to_owned() });
    drop(others);
}

/// A standby is like that, or a pooler: it lets us in, and LISTEN fails.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_server_that_lets_nobody_listen_any_more_is_left_alone_for_a_while() {
    let url = common::server();
    let (login, place) = url.split_once('@').unwrap();
    let (host, database) = place.split_once('/').unwrap();
    let proxy = Proxy::start(host.rsplit(':').next().unwrap().parse().unwrap());
    let place = Place {
        server: format!("{login}@127.0.0.1:{}/{database}", proxy.port),
        schema: "none".to_owned(),
    };
    let store = named(&place, "refused");
    let mut inbox = listens(&store, Term::new(1).unwrap(), "c").await;
    proxy.lay(Trap::Close("LISTEN"));
    let session = Session::open(&url).await;
    let listening = sessions("refused", "LISTEN");
    let ended = format!("SELECT count(pg_terminate_backend(pid)) FROM {listening}");
    assert_eq!(session.number(&ended).await, 1);
    let before = proxy.connections();
    let heard = timeout(Duration::from_secs(2), poll_fn(|cx| inbox.poll_next(cx))).await;
    assert!(heard.is_err(), "nobody can listen there: {heard:?}");
    // 50 ms, then twice as long each time.
    let made = proxy.connections() - before;
    assert!((2..=8).contains(&made), "{made} connections");
}

#[needs(postgres)]
#[tokio::test]
async fn needs_postgres_channels_are_given_up_with_the_last_inbox() {
    let url = common::server();
    let place = Place::new(&url).await;
    let (store, session) = (named(&place, "last"), place.session().await);
    let (_leader, term) = leader(&store, "e").await;
    let (one, two) = (listens(&store, term, "a").await, listens(&store, term, "b").await);
    let listening = format!("SELECT count(*) FROM {}", sessions("last", "LISTEN"));
    assert_eq!(session.number(&listening).await, 1);
    drop(one);
    let fewer = format!("SELECT count(*) FROM {}", sessions("last", "UNLISTEN \"a\";"));
    until("one channel is given up", || async { session.number(&fewer).await == 1 }).await;
    drop(two);
    let none = format!("SELECT count(*) FROM {}", sessions("last", "UNLISTEN \"b\";"));
    until("all are given up", || async { session.number(&none).await == 1 }).await;
    // And they are listened to again for the next.
    let mut again = listens(&store, term, "a").await;
    channels(&store).notify(&name("e"), "a", "1").await.unwrap();
    next(&mut *again).await;
}

#[needs(postgres)]
#[tokio::test]
async fn needs_postgres_a_post_in_the_user_s_transaction_happens_with_it() {
    let url = common::server();
    let place = Place::new(&url).await;
    let (store, session) = (place.store(), place.session().await);
    let (_leader, term) = leader(&store, "e").await;
    let mut inbox = listens(&store, term, "c").await;
    session.run("BEGIN; SELECT tenure_post('e', 'c', '{\"n\": 1}', 'k')").await;
    assert_eq!(takes(&store, term, "c").await, None, "it is not committed");
    session.run("ROLLBACK").await;
    session.run("BEGIN; SELECT tenure_post('e', 'c', '{\"n\": 2}', 'k'); COMMIT").await;
    assert_eq!(next(&mut *inbox).await, Arrival::Posted);
    assert_eq!(takes(&store, term, "c").await.unwrap().payload, "{\"n\": 2}");
    let bad = session.try_run("SELECT tenure_post('e', 'c', 'no json')").await;
    assert!(bad.unwrap_err().starts_with("22P02"));
    let long = format!("SELECT tenure_post('e', '{}', '1')", "x".repeat(64));
    assert!(session.try_run(&long).await.unwrap_err().starts_with("23514"));
}

/// By serial numbers alone, the second would be handled and the first passed by (M3).
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_post_waits_for_one_that_is_not_committed_yet() {
    let url = common::server();
    let place = Place::new(&url).await;
    let (store, session) = (place.store(), place.session().await);
    let (_leader, term) = leader(&store, "e").await;
    session.run("BEGIN; SELECT tenure_post('e', 'c', '1', 'first')").await;
    let later = {
        let store = store.clone();
        tokio::runtime::Handle::current().spawn(async move {
            // On a busy machine it may give up, after 2 s.
            while channels(&store).post(&name("e"), &[post("c", "2", "second")]).await.is_err() {}
        })
    };
    let watch = Session::open(&url).await;
    until("the second waits for the first", || async {
        let waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' \
                     AND NOT granted AND mode = 'ExclusiveLock')";
        watch.truth(waits).await
    })
    .await;
    // Another channel does not wait.
    channels(&place.store()).post(&name("e"), &[post("d", "3", "k")]).await.unwrap();
    // Nor does the leader, at the same store.
    assert_eq!(takes(&store, term, "c").await, None, "and nobody is handed the second");
    let other = takes(&store, term, "d").await.unwrap();
    let done = channels(&store).acknowledge(&name("e"), term, "d", other.id).await.unwrap();
    assert_eq!(done, Acknowledged::Done);
    assert!(!later.is_finished(), "it waits still");
    session.run("COMMIT").await;
    later.await.unwrap();
    let (first, second) = {
        let first = takes(&store, term, "c").await.unwrap();
        let done = channels(&store).acknowledge(&name("e"), term, "c", first.id).await.unwrap();
        assert_eq!(done, Acknowledged::Done);
        (first, takes(&store, term, "c").await.unwrap())
    };
    assert_eq!((&*first.key, &*second.key), ("first", "second"));
}

/// What nobody waits for any more must not stay in the line, on the server.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_posts_and_takes_wait_for_two_seconds_and_no_longer() {
    let url = common::server();
    let place = Place::new(&url).await;
    let (store, session) = (place.store(), place.session().await);
    let (_leader, term) = leader(&store, "e").await;
    let mail = channels(&store);
    mail.post(&name("e"), &[post("taken", "1", "k")]).await.unwrap();
    session
        .run(
            "BEGIN; SELECT tenure_post('e', 'c', '1', 'first'); \
             SELECT FROM tenure_message WHERE channel = 'taken' FOR UPDATE",
        )
        .await;
    let (election, second) = (name("e"), [post("c", "2", "second")]);
    let (posted, taken) = tokio::join!(
        timeout(PATIENCE / 2, mail.post(&election, &second)),
        timeout(PATIENCE / 2, mail.take(&election, term, "taken", 10)),
    );
    for error in [posted.unwrap().unwrap_err(), taken.unwrap().unwrap_err()] {
        assert!(error.is_retryable() && error.message().contains("try again"), "{error}");
    }
    // A shorter limit of the user's is kept, and theirs is as it was afterwards.
    let user = place.session().await;
    user.run("SET lock_timeout = '70ms'").await;
    let asked = now();
    let says = user.try_run("SELECT tenure_post('e', 'c', '3')").await.unwrap_err();
    assert!(says.starts_with("55P03"), "{says}");
    assert!((now() - asked) < Duration::from_secs(2), "{:?}", (now() - asked));
    session.run("COMMIT").await;
    for limit in ["70ms", "0", "10s"] {
        user.run(&format!("SET lock_timeout = '{limit}'; BEGIN")).await;
        user.run("SELECT tenure_post('e', 'c', '4')").await;
        let sql = "SELECT current_setting('lock_timeout')";
        let after: String = user.client.query_one(sql, &[]).await.unwrap().get(0);
        assert_eq!(after, limit);
        user.run("COMMIT").await;
    }
}

#[needs(postgres)]
#[tokio::test]
async fn needs_postgres_an_effect_and_its_acknowledgement_in_one_transaction_happen_once() {
    let url = common::server();
    let place = Place::new(&url).await;
    let (store, session) = (place.store(), place.session().await);
    session.run("CREATE TABLE shipped (id bigint)").await;
    let (player, term) = leader(&store, "e").await;
    channels(&store).post(&name("e"), &[post("c", "1", "k")]).await.unwrap();
    let id = takes(&store, term, "c").await.unwrap().id;
    let effect = format!(
        "BEGIN; SELECT tenure_acknowledge('e', {term}, 'c', {id}); \
         INSERT INTO shipped VALUES ({id}); "
    );
    session.run(&format!("{effect} ROLLBACK")).await;
    assert_eq!(takes(&store, term, "c").await.unwrap().count, 2, "it is there still");
    session.run(&format!("{effect} COMMIT")).await;
    assert_eq!(takes(&store, term, "c").await, None);
    let again = channels(&store).acknowledge(&name("e"), term, "c", id).await.unwrap();
    assert_eq!(again, Acknowledged::Gone, "what the facade asks afterwards does no harm");
    common::granted(player.release("e", term, 1).await);
    let stale = session.try_run(&effect).await;
    assert!(stale.unwrap_err().starts_with("TN001"), "and a former leader has no effect");
    session.run("ROLLBACK").await;
    assert_eq!(session.number("SELECT count(*) FROM shipped").await, 1);
}

#[needs(postgres)]
#[tokio::test]
async fn needs_postgres_keys_are_forgotten_a_day_after_they_were_acknowledged() {
    let url = common::server();
    let place = Place::new(&url).await;
    let (store, session) = (place.store(), place.session().await);
    let (_leader, term) = leader(&store, "e").await;
    let mail = channels(&store);
    for (key, hours) in [("old", 25), ("young", 23)] {
        mail.post(&name("e"), &[post("c", "1", key)]).await.unwrap();
        let id = takes(&store, term, "c").await.unwrap().id;
        mail.acknowledge(&name("e"), term, "c", id).await.unwrap();
        session
            .run(&format!(
                "UPDATE tenure_message SET ended_at = ended_at - interval '{hours} hours' \
                 WHERE key = '{key}'"
            ))
            .await;
    }
    mail.acknowledge(&name("e"), term, "c", 999_999).await.unwrap();
    let posts = [post("c", "1", "old"), post("c", "1", "young")];
    let posted = mail.post(&name("e"), &posts).await.unwrap();
    assert_eq!([posted[0].is_new, posted[1].is_new], [true, false]);
}

#[needs(postgres)]
#[tokio::test]
async fn needs_postgres_without_the_tables_posts_say_what_to_run_and_notices_work() {
    let url = common::server();
    let place = Place::empty(&url);
    let store = place.store();
    let mail = channels(&store);
    let error = mail.post(&name("e"), &[post("c", "1", "k")]).await.unwrap_err();
    assert!(error.to_string().contains("tenure migrate"), "{error}");
    mail.notify(&name("e"), "c", "1").await.unwrap();
}
