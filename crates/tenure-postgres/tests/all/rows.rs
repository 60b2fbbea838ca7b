//! Locks of others on the rows: nothing waits, and nothing is lost.

use std::time::Duration;

use tenure_core::{Op, Reply, Store, Term};
use tenure_testbed::postgres::OwnServer;

use crate::common::{self, Place, Player, granted, name, now, unknown, until};

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_one_foreign_row_lock_does_not_hold_up_a_thousand_renewals() {
    let server = common::server();
    let place = Place::new(&server).await;
    let store = place.store();
    let leader = Player::new(&store, "leader", 1);
    let election = |index: usize| format!("e{index}");
    let acquires: Vec<Op> = (0..1_000).map(|i| leader.acquire_op(&election(i), 1)).collect();
    let terms: Vec<Term> =
        store.apply(&acquires).await.into_iter().map(|reply| granted(reply).term).collect();
    let renewals: Vec<Op> =
        terms.iter().enumerate().map(|(i, term)| leader.renew_op(&election(i), *term)).collect();

    let foreign = place.session().await;
    foreign.run("BEGIN; SELECT FROM leader_election WHERE service_name = 'e7' FOR UPDATE").await;
    let started = now();
    let replies = store.apply(&renewals).await;
    let took = now() - started;
    assert!(took < Duration::from_secs(2), "it waited: {took:?}");
    for (index, reply) in replies.into_iter().enumerate() {
        match (index, reply) {
            (7, Reply::Unknown(error)) => assert!(error.is_retryable(), "{error}"),
            (7, other) => panic!("the outcome of a locked row is {other:?}"),
            (_, reply) => drop(granted(reply)),
        }
    }
    foreign.run("COMMIT").await;
    granted(leader.renew("e7", terms[7]).await);
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_name_that_another_transaction_is_inserting_holds_up_nobody() {
    let server = common::server();
    let place = Place::new(&server).await;
    let store = place.store();
    let foreign = place.session().await;
    foreign.run("BEGIN; SELECT try_become_leader('new 3', 'slow')").await;
    let a = Player::new(&store, "a", 1);
    let acquires: Vec<Op> = (0..10).map(|i| a.acquire_op(&format!("new {i}"), 1)).collect();
    let started = now();
    for (index, reply) in store.apply(&acquires).await.into_iter().enumerate() {
        if index == 3 {
            assert!(unknown(reply).contains("try again"));
        } else {
            granted(reply);
        }
    }
    assert!((now() - started) < Duration::from_secs(2), "it waited: {:?}", (now() - started));
    foreign.run("ROLLBACK").await;
    granted(a.acquire("new 3", 2).await);
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_grants_and_renewals_reach_the_disk_whatever_the_setting() {
    let server = common::server();
    let place = Place::new(&server).await;
    let session = place.session().await;
    for call in [
        "tenure_apply('{acquire}', '{e}', '{a}', '{1}', '{null}', '{null}', '{9000000}', '{null}')",
        "tenure_apply('{renew}', '{e}', '{a}', '{null}', '{1}', '{null}', '{9000000}', '{null}')",
        "try_become_leader('f', 'a')",
        "leader_heartbeat('f', 'a')",
    ] {
        for (before, after) in [("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")] {
            session.run(&format!("BEGIN; SET LOCAL synchronous_commit = {before}")).await;
            session.run(&format!("SELECT {call}")).await;
            let within = "SELECT current_setting('synchronous_commit')";
            let within: String = session.client.query_one(within, &[]).await.unwrap().get(0);
            session.run("COMMIT").await;
            assert_eq!(within, after, "{call}, {before}");
        }
    }
}

/// P5: a renewal stays in its page, and no index grows with it.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_renewals_stay_in_their_pages() {
    // A server of its own: open transactions of other tests, in other databases too, would keep
    // old rows in their pages.
    let mut server = OwnServer::new(&[]);
    server.start();
    let place = Place::empty(&server.url("postgres"));
    let store = place.store();
    until("the server is up", || async { store.migrate().await.is_ok() }).await;
    let a = Player::new(&store, "a", 1);
    let names: Vec<String> = (0..500).map(|n| format!("election number {n}")).collect();
    let acquires: Vec<Op> = names.iter().map(|name| a.acquire_op(name, 1)).collect();
    let terms = store.apply(&acquires).await.into_iter().map(|reply| granted(reply).term);
    let renewals: Vec<Op> =
        names.iter().zip(terms).map(|(name, term)| a.renew_op(name, term)).collect();
    for _ in 0..30 {
        for reply in store.apply(&renewals).await {
            granted(reply);
        }
    }
    // A session tells of what it did when it is idle for a while, or ends.
    drop((a, store));
    let session = place.session().await;
    let count = async |what: &str| {
        let sql = format!(
            "SELECT coalesce(sum({what}), 0)::bigint FROM pg_stat_user_tables \
             WHERE relid = 'leader_election'::regclass"
        );
        session.number(&sql).await
    };
    until("the server has counted", || async { count("n_tup_upd").await >= 15_000 }).await;
    let (all, hot) = (count("n_tup_upd").await, count("n_tup_hot_upd").await);
    println!("{hot} of {all} updates stayed in their pages");
    assert!(hot * 10 > all * 8, "only {hot} of {all} updates stayed in their pages");
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_sql_and_odd_letters_are_data() {
    let server = common::server();
    let schema = format!("odd \"schema\" it's {}", std::process::id());
    let url = schema.replace('"', "%22").replace(' ', "%20");
    let store = common::config(&server, &format!("schema={url}&table=a%22b'c")).open();
    store.migrate().await.unwrap();
    let odd = "'; DROP TABLE leader_election; -- \u{1f4a3} \"x\" {a,NULL} \\";
    let player = Player::new(&store, odd, 1);
    let term = player.takes(odd, 1).await;
    granted(player.renew(odd, term).await);
    assert_eq!(store.elections().await.unwrap(), [name(odd)]);
    granted(player.release(odd, term, 1).await);
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_terms_beyond_the_column_are_kept_in_the_base() {
    let server = common::server();
    let place = Place::new(&server).await;
    let store = place.store();
    let a = Player::new(&store, "a", 1);
    let floored = |seq: u64, floor: u64| {
        let Op::Acquire { election, candidate, above, ttl, metadata, .. } = a.acquire_op("e", seq)
        else {
            unreachable!("it is an acquire")
        };
        let floor = Term::new(floor);
        Op::Acquire { election, candidate, seq, above, floor, ttl, metadata }
    };
    let mut last = 0;
    for (seq, floor) in [(1, 1_000), (2, (1 << 31) - 1), (3, 1 << 31), (4, 1 << 52), (5, 7)] {
        let [reply] = &store.apply(&[floored(seq, floor)]).await[..] else { panic!("one reply") };
        let term = granted(reply.clone()).term;
        assert!(term.get() >= floor && term.get() > last, "{term}: {floor}, after {last}");
        granted(a.renew("e", term).await);
        granted(a.release("e", term, seq).await);
        last = term.get();
    }
    let (_, column) = place.row("e").await;
    assert_eq!(column, 1_004, "only what fits stands in the column");
    let [reply] = &store.apply(&[floored(6, (1 << 53) - 1)]).await[..] else { panic!("one reply") };
    let term = granted(reply.clone()).term;
    granted(a.release("e", term, 6).await);
    assert!(unknown(a.acquire("e", 7).await).contains("another name"));
}

/// A session that warms up has done everything once, and has changed nothing.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_session_that_warms_up_leaves_nothing_behind() {
    let server = common::server();
    let place = Place::new(&server).await;
    let session = place.session().await;
    session.run("SELECT tenure_warm_up(); SELECT tenure_advisory_warm_up()").await;
    for nothing in [
        "SELECT count(*) FROM leader_election",
        "SELECT count(*) FROM leader_election_released",
        "SELECT count(*) FROM tenure_advisory",
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    ] {
        assert_eq!(session.number(nothing).await, 0, "{nothing}");
    }
    // It did do what a candidate does: a row, two grants, a renewal and a release.
    let session = place.session().await;
    session.run("BEGIN; SELECT tenure_warm_up()").await;
    let done = "SELECT n_tup_ins * 10 + n_tup_upd FROM pg_stat_xact_user_tables \
                WHERE relname = 'leader_election' AND schemaname = current_schema()";
    assert_eq!(session.number(done).await, 14);
    session.run("ROLLBACK").await;
}

/// Releases are remembered for a while, and not for ever, also where nobody stays to renew.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_old_releases_are_swept_by_releases_alone() {
    let server = common::server();
    let place = Place::new(&server).await;
    let (store, session) = (place.store(), place.session().await);
    let old = "INSERT INTO leader_election_released (service_name, candidate_id, seq, at) \
               SELECT 'old', 'c' || n, 1, now() - interval '1 hour' FROM generate_series(1, 100) n";
    session.run(old).await;
    let left = "SELECT count(*) FROM leader_election_released WHERE service_name = 'old'";
    let player = Player::new(&store, "a", 1);
    // One in fifty does it: that none of so many does will not be seen.
    for seq in 1..=3_000 {
        player.release("e", common::term(1), seq).await;
        if seq % 50 == 0 && session.number(left).await == 0 {
            return;
        }
    }
    panic!("nobody swept");
}
