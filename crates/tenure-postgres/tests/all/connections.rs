//! How many connections a candidate needs, in each of its roles; and what comes in on them.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tenure::Election;
use tenure_core::{Hint, Hints, Ledger, LedgerStep, Post, Store, StoreExt, Taken, Tick};
use tenure_postgres::{AdvisoryConfig, PostgresConfig, PostgresStore};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::advisory_common::{self, Database, advisory_url};
use crate::common::{self, PATIENCE, Place, Player, Session, granted, name, now, real_wait, until};
use tenure_testbed::proxy::Proxy;

/// A store whose sessions can be counted.
fn named(place: &Place, label: &str) -> PostgresConfig {
    let options = format!("schema={0}&application_name={label}-{0}", place.schema);
    common::config(&place.server, &options)
}

/// Waits until there are so many, and sees that they stay so many.
async fn settles(session: &Session, what: &str, sql: &str, expected: i64) {
    until(what, || async { session.number(sql).await == expected }).await;
    let mut most = expected;
    for _ in 0..25 {
        real_wait(Duration::from_millis(20)).await;
        most = most.max(session.number(sql).await);
    }
    assert_eq!(most, expected, "{what}: connections");
}

/// Counts the sessions of the store with this label.
async fn counts(place: &Place, label: &str, expected: i64) {
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{label}-{}'",
        place.schema
    );
    settles(&place.session().await, label, &sql, expected).await;
}

async fn candidate(store: impl Store + 'static, label: &str) -> Election {
    let builder = Election::builder("e", Arc::new(store)).label(label);
    let election = builder.ttl(Duration::from_secs(9)).build().unwrap();
    election.start().await.unwrap();
    election
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_candidate_leads_and_follows_on_one_connection() {
    let server = common::server();
    let place = Place::new(&server).await;
    let leader = candidate(named(&place, "leader").open(), "a").await;
    let reign = leader.campaign().await.unwrap();
    let follower = candidate(named(&place, "follower").open(), "b").await;
    counts(&place, "leader", 1).await;
    counts(&place, "follower", 1).await;
    // It hears on that one, too: it leads at once when the other gives up.
    let waiting = {
        let follower = follower.clone();
        Handle::current().spawn(async move { follower.campaign().await.unwrap() })
    };
    let began = now();
    reign.resign().await.unwrap();
    let next = timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert!((now() - began) < Duration::from_secs(5), "no hint: {:?}", (now() - began));
    counts(&place, "leader", 1).await;
    counts(&place, "follower", 1).await;
    drop(next);
    leader.stop().await.unwrap();
    follower.stop().await.unwrap();
}

/// Uses all that is no election.
async fn uses_messages_and_ledger(store: &dyn Store, term: tenure_core::Term) {
    let (channels, ledger) = (store.channels().unwrap(), store.ledger().unwrap());
    let post = Post { channel: "c".into(), payload: "1".into(), key: "k".into() };
    channels.post(&name("e"), &[post]).await.unwrap();
    let Taken::Message(taken) = channels.take(&name("e"), term, "c", 10).await.unwrap() else {
        panic!("it was posted")
    };
    channels.acknowledge(&name("e"), term, "c", taken.id).await.unwrap();
    channels.notify(&name("e"), "c", "1").await.unwrap();
    let claim = LedgerStep::Claim { tick: Tick::new("job", 7), again: false };
    Ledger::record(ledger, &name("e"), term, &[claim]).await.unwrap();
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_messages_and_the_ledger_take_one_connection_more() {
    let server = common::server();
    let place = Place::new(&server).await;
    let store = named(&place, "leader").open();
    let _hints = store.hints();
    let player = Player::new(&store, "a", 1);
    let term = player.takes("e", 1).await;
    let channels = ["c".to_owned()];
    let inbox = store.channels().unwrap().listen(&name("e"), term, &channels).await.unwrap();
    uses_messages_and_ledger(&store, term).await;
    counts(&place, "leader", 2).await;
    // One that only sends needs no more.
    let sender = named(&place, "sender").open();
    let post = Post { channel: "c".into(), payload: "2".into(), key: "l".into() };
    sender.channels().unwrap().post(&name("e"), &[post]).await.unwrap();
    sender.channels().unwrap().notify(&name("e"), "c", "1").await.unwrap();
    counts(&place, "sender", 1).await;
    drop(inbox);
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_an_advisory_candidate_leads_on_two_connections_and_follows_on_three() {
    let server = common::server();
    let database = Database::new(&server).await;
    let (session, url) = (Session::open(&server).await, advisory_url(&database.url));
    let open = || AdvisoryConfig::from_url(&url).unwrap().open();
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}'",
        database.url.rsplit('/').next().unwrap()
    );
    let leader = candidate(open(), "a").await;
    let reign = leader.campaign().await.unwrap();
    settles(&session, "a leader", &sql, 2).await;
    let follower = candidate(open(), "b").await;
    let waiting = {
        let follower = follower.clone();
        Handle::current().spawn(async move { follower.campaign().await.unwrap() })
    };
    settles(&session, "a leader and a follower", &sql, 2 + 3).await;
    // They change places, and one that leads waits for nobody.
    reign.resign().await.unwrap();
    let next = timeout(PATIENCE, waiting).await.unwrap().unwrap();
    // The connection that waited may stay for a second, and the server may notice a second later.
    real_wait(Duration::from_secs(4)).await;
    settles(&session, "the other way about", &sql, 2 + 3).await;
    drop(next);
    leader.stop().await.unwrap();
    follower.stop().await.unwrap();
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_messages_take_one_connection_more_beside_a_lock() {
    let server = common::server();
    let database = Database::new(&server).await;
    let store = database.store();
    store.migrate().await.unwrap();
    let player = advisory_common::Player::new(&store, "a");
    let _hints = store.hints();
    let term = player.takes("e").await;
    let channels = ["c".to_owned()];
    let _inbox = store.channels().unwrap().listen(&name("e"), term, &channels).await.unwrap();
    uses_messages_and_ledger(&store, term).await;
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}'",
        database.url.rsplit('/').next().unwrap()
    );
    settles(&Session::open(&server).await, "a leader with messages", &sql, 3).await;
}

/// Else each hand-over would cost every follower a connection.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_one_leader_after_the_other_is_waited_for_on_the_same_connection() {
    let server = common::server();
    let database = Database::new(&server).await;
    let player = |label: &str| advisory_common::Player::new(&database.store(), label);
    let (one, two, store) = (player("one"), player("two"), database.store());
    let (mut hints, follower) = (store.hints(), advisory_common::Player::new(&store, "follower"));
    let session = database.session().await;
    // Who waits, and that it waits for the session that leads.
    let waits = "SELECT coalesce(min(w.pid), 0)::bigint FROM pg_locks AS w JOIN pg_locks AS l \
                 ON l.pid = w.objid::bigint AND l.objsubid = 1 AND l.granted \
                 WHERE w.locktype = 'advisory' AND w.objsubid = 2 AND NOT w.granted \
                 AND w.database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let mut first = 0;
    for round in 0..4 {
        let leader = if round % 2 == 0 { &one } else { &two };
        let term = leader.takes("e").await;
        // A follower asks again now and then; on a busy server the first wait may come too early.
        until("it waits", || async {
            common::refused(follower.acquire("e").await);
            session.number(waits).await != 0
        })
        .await;
        let waiter = session.number(waits).await;
        assert!(first == 0 || first == waiter, "round {round}: another connection waits");
        first = waiter;
        if round < 3 {
            granted(leader.release("e", term).await);
        }
    }
    while timeout(Duration::from_millis(300), next(&mut *hints)).await.is_ok() {}
    let end = "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_locks \
               WHERE locktype = 'advisory' AND objsubid = 1 AND database = \
               (SELECT oid FROM pg_database WHERE datname = current_database())";
    assert_eq!(session.number(end).await, 1);
    assert_eq!(next(&mut *hints).await, Hint::Election(name("e")));
}

/// Two leaders are followed: the end of one is learnt at once, and the other is polled.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_as_many_holders_are_waited_for_as_the_url_says() {
    let server = common::server();
    let database = Database::new(&server).await;
    let leaders: Vec<_> = (0..2)
        .map(|number| advisory_common::Player::new(&database.store(), &format!("l{number}")))
        .collect();
    for (number, leader) in leaders.iter().enumerate() {
        leader.takes(&format!("e{number}")).await;
    }
    for (options, expected) in [("?watched_holders=0", 0), ("", 1), ("?watched_holders=8", 2)] {
        let config = AdvisoryConfig::from_url(&advisory_url(&format!("{}{options}", database.url)));
        let store = config.unwrap().open();
        let hints = store.hints();
        let follower = advisory_common::Player::new(&store, "f");
        for number in 0..2 {
            common::refused(follower.acquire(&format!("e{number}")).await);
        }
        let session = database.session().await;
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                   AND pid <> pg_backend_pid() AND query LIKE '%xact_lock_shared%'";
        settles(&session, options, sql, expected).await;
        drop((follower, store, hints));
        until("it is gone", || async { session.number(sql).await == 0 }).await;
    }
}

async fn next(hints: &mut dyn Hints) -> Hint {
    timeout(PATIENCE, poll_fn(|cx| hints.poll_next(cx))).await.unwrap().unwrap()
}

/// Nobody takes the notices out of the inbox meanwhile.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_flood_of_notices_delays_no_renewal_beyond_its_call_timeout() {
    let server = common::server();
    let place = Place::new(&server).await;
    let limit = Duration::from_secs(2);
    let store: PostgresStore = named(&place, "flooded").with_call_timeout(limit).open();
    let mut hints = store.hints();
    let player = Player::new(&store, "a", 1).with_ttl(Duration::from_secs(6));
    let term = player.takes("e", 1).await;
    let channel = format!("flood_{}", place.schema);
    let wanted = [channel.clone()];
    let listened = store.channels().unwrap().listen(&name("e"), term, &wanted).await;
    let mut inbox = listened.unwrap();
    assert_eq!(next(&mut *hints).await, Hint::Any);
    // Three programs send 10,000 each, 210 MB together, as fast as they can.
    let floods: Vec<_> = (0..3)
        .map(|number| {
            let (url, channel) = (server.clone(), channel.clone());
            Handle::current().spawn(async move {
                let session = Session::open(&url).await;
                for batch in 0..10 {
                    let sql = format!(
                        "SELECT pg_notify('{channel}', repeat('x', 7000) || ' {number} {batch} ' \
                         || i) FROM generate_series(1, 1000) AS i"
                    );
                    session.run(&sql).await;
                }
            })
        })
        .collect();
    let (mut slowest, mut renewals) = (Duration::ZERO, 0);
    while !floods.iter().all(tokio::task::JoinHandle::is_finished) {
        let asked = now();
        granted(player.renew("e", term).await);
        slowest = slowest.max(now() - asked);
        renewals += 1;
        real_wait(Duration::from_millis(10)).await;
    }
    for flood in floods {
        flood.await.unwrap();
    }
    println!("the slowest of {renewals} renewals took {slowest:?}");
    assert!(slowest < limit, "{slowest:?}");
    // What did not fit is told.
    let mut gap = false;
    while let Ok(Some(arrival)) =
        timeout(Duration::from_millis(300), poll_fn(|cx| inbox.poll_next(cx))).await
    {
        gap = gap || arrival == tenure_core::Arrival::Gap;
    }
    assert!(gap, "more than fit were sent, and none is missing");
    // And a hint comes through afterwards.
    granted(Player::new(&place.store(), "a", 1).release("e", term, 1).await);
    while next(&mut *hints).await != Hint::Election(name("e")) {}
}

/// A call that is given up takes its connection along; hints come in on the next.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_call_that_times_out_costs_no_later_hint() {
    let server = common::server();
    let place = Place::new(&server).await;
    let (login, at) = server.split_once('@').unwrap();
    let (host, database) = at.split_once('/').unwrap();
    let proxy = Proxy::start(host.rsplit(':').next().unwrap().parse().unwrap());
    let through = Place {
        server: format!("{login}@127.0.0.1:{}/{database}", proxy.port),
        schema: place.schema.clone(),
    };
    let store = named(&through, "slow").with_call_timeout(Duration::from_millis(500)).open();
    let mut hints = store.hints();
    store.read(&name("e")).await.unwrap();
    assert_eq!(next(&mut *hints).await, Hint::Any);
    let other = Player::new(&place.store(), "other", 2);
    for seq in 1..=3 {
        proxy.forget();
        let error = store.read(&name("e")).await.unwrap_err();
        assert!(error.is_retryable(), "{error}");
        while next(&mut *hints).await != Hint::Any {}
        let term = other.takes("e", seq).await;
        granted(other.release("e", term, seq).await);
        while next(&mut *hints).await != Hint::Election(name("e")) {}
    }
}

/// LISTEN succeeds there, and nothing ever comes.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_pooler_that_swallows_notifications_is_noticed() {
    let server = common::server();
    let Ok(pooler) = std::env::var("TENURE_TEST_PGBOUNCER") else {
        println!("skipped: TENURE_TEST_PGBOUNCER is not set; use `cargo xtask test`");
        return;
    };
    let place = Place::new(&server).await;
    let behind = Place { server: pooler, schema: place.schema.clone() };
    let limit = Duration::from_secs(1);
    let (near, far) = (place.config().open(), behind.config().with_call_timeout(limit).open());
    let (_near, _far) = (near.hints(), far.hints());
    assert!(far.info().hints, "nothing is known yet");
    until("it is noticed", || async { !far.info().hints }).await;
    assert!(near.info().hints);
    // The store works without them, and a leader that wants messages is told why there are none.
    let player = Player::new(&far, "a", 1);
    let term = player.takes("e", 1).await;
    let listened = far.channels().unwrap().listen(&name("e"), term, &["c".to_owned()]).await;
    let error = listened.map(|_| ()).unwrap_err();
    assert!(error.is_retryable() && error.message().contains("pooler"), "{error}");
    granted(player.renew("e", term).await);
}
