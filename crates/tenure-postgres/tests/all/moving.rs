//! Both kinds of stores in one database, dumps that are restored, and servers that stop taking
//! writes: an election has one kind at a time, and its terms never fall.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use tenure_core::{LedgerStep, Marked, Post, Reply, Store, Term, Tick};
use tenure_postgres::{PostgresConfig, PostgresStore};
use tenure_testbed::postgres::OwnServer;

use crate::advisory_common::{Database, Player as Locker, store_at};
use crate::common::{self, Player, Session, granted, name, unknown, until};

fn fence(election: &str, term: Term) -> String {
    format!("BEGIN; SELECT tenure_fence('{election}', {term}); COMMIT")
}

async fn passes(session: &Session, election: &str, term: Term) -> bool {
    let passed = session.try_run(&fence(election, term)).await;
    if let Err(says) = &passed {
        assert!(says.starts_with("TN001"), "{says}");
        session.run("ROLLBACK").await;
    }
    passed.is_ok()
}

/// A database that both kinds of stores use.
async fn both(server: &str) -> (Database, PostgresStore) {
    let database = Database::new(server).await;
    let store = open(&database.url);
    store.migrate().await.unwrap();
    (database, store)
}

fn open(url: &str) -> PostgresStore {
    let config = PostgresConfig::from_url(url).unwrap();
    config.with_call_timeout(common::PATIENCE).with_connect_timeout(common::PATIENCE).open()
}

/// Its leader can post, be posted to and run jobs.
async fn works(store: &dyn Store, election: &str, term: Term) {
    let (channels, ledger) = (store.channels().unwrap(), store.ledger().unwrap());
    let election = name(election);
    let (channel, payload) = ("orders".to_owned(), "{}".to_owned());
    let posts = [Post { channel, payload, key: format!("key of {term}") }];
    channels.post(&election, &posts).await.unwrap();
    let tick = Tick::new("report", i64::try_from(term.get()).unwrap());
    let claim = LedgerStep::Claim { tick, again: false };
    let marks = ledger.record(&election, term, &[claim]).await.unwrap();
    assert!(matches!(marks[..], [Marked::Done { .. }]), "term {term}: {marks:?}");
}

/// Issue 12, item 16: one advisory reign silently ended the fence of the lease.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_an_election_has_one_kind_at_a_time_and_one_leader() {
    let server = common::server();
    let (database, store) = both(&server).await;
    let (user, locks) = (database.session().await, database.store());
    let (lease, lock) = (Player::new(&store, "lease", 1), Locker::new(&locks, "lock"));

    // While the lease is held nobody leads by the lock, and nothing of the lease is ended.
    let first = lease.takes("e", 1).await;
    let says = unknown(lock.acquire("e").await);
    assert!(says.contains("is led by a lease") && says.contains(lease.id.as_str()), "{says}");
    assert!(passes(&user, "e", first).await, "the fence of the leader");
    works(&store, "e", first).await;
    granted(lease.renew("e", first).await);
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 \
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    assert_eq!(user.number(held).await, 0, "nothing is kept of what was refused");

    // A vacant one changes its kind with its hands, and terms rise.
    granted(lease.release("e", first, 1).await);
    let second = lock.takes("e").await;
    assert!(second > first, "{second} after {first}");
    assert!(passes(&user, "e", second).await && !passes(&user, "e", first).await);
    works(&locks, "e", second).await;

    // While the lock is held nobody leads by the table, by whichever way.
    let says = unknown(lease.acquire("e", 2).await);
    assert!(says.contains("is led by an advisory lock"), "{says}");
    assert!(says.contains(lock.id.as_str()), "{says}");
    assert!(!user.truth("SELECT try_become_leader('e', 'table client', 1)").await);
    let by_hand = "UPDATE leader_election SET leader_id = 'thief', term = term + 1 \
                   WHERE service_name = 'e'";
    let says = user.try_run(by_hand).await.unwrap_err();
    assert!(says.starts_with("TN003") && says.contains("advisory lock"), "{says}");
    granted(lock.renew("e", second).await);
    assert!(passes(&user, "e", second).await);

    // And back, above all that were issued before.
    granted(lock.release("e", second).await);
    let third = granted(lease.acquire("e", 3).await).term;
    assert!(third > second, "{third} after {second}");
    assert!(passes(&user, "e", third).await && !passes(&user, "e", second).await);
    works(&store, "e", third).await;
    granted(lease.release("e", third, 3).await);
    assert!(user.truth("SELECT try_become_leader('e', 'table client', 1)").await);
    assert!(unknown(lock.acquire("e").await).contains("table client"));
}

/// The two kinds race for one name, again and again: there is one leader, and terms rise.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_both_kinds_race_for_a_name_and_one_of_them_leads() {
    let server = common::server();
    let (database, store) = both(&server).await;
    let (user, locks) = (database.session().await, database.store());
    let (mut by_lease, mut by_lock) = (0, 0);
    for round in 0..60_u32 {
        // New names, where there is no row to lock yet, and one that both know.
        let election = if round % 2 == 0 { format!("new {round}") } else { "known".to_owned() };
        let last = format!(
            "SELECT greatest((SELECT term FROM leader_election WHERE service_name = '{election}'), \
             (SELECT term FROM tenure_advisory WHERE name = '{election}'), 0)"
        );
        let last = user.number(&last).await;
        let lease = Player::new(&store, "lease", u128::from(round) + 1);
        let lock = Locker::new(&locks, "lock");
        let (a, b) = tokio::join!(lease.acquire(&election, 1), lock.acquire(&election));
        let term = match (&a, &b) {
            (Reply::Granted(grant), Reply::Granted(other)) => {
                panic!("round {round}: both lead, {} and {}", grant.term, other.term)
            }
            (Reply::Granted(grant), _) => {
                by_lease += 1;
                granted(lease.release(&election, grant.term, 1).await);
                grant.term
            }
            (_, Reply::Granted(grant)) => {
                by_lock += 1;
                granted(lock.release(&election, grant.term).await);
                grant.term
            }
            // Each was at the other's row.
            _ => continue,
        };
        assert!(i64::try_from(term.get()).unwrap() > last, "{term} after {last}");
    }
    println!("{by_lease} reigns by lease, {by_lock} by lock");
    assert!(by_lease + by_lock > 30, "{by_lease} and {by_lock} of 60");
}

/// Runs `pg_dump` on one database and `psql` on another.
fn restore(options: &[&str], from: &str, to: &str) -> Result<(), String> {
    let bin = PathBuf::from(std::env::var_os("TENURE_TEST_POSTGRES_BIN").unwrap());
    let mut dump = Command::new(bin.join("pg_dump"));
    let mut dump = dump.args(options).arg(from).stdout(Stdio::piped()).spawn().unwrap();
    let mut psql = Command::new(bin.join("psql"));
    psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", to]).stdin(dump.stdout.take().unwrap());
    let restored = psql.stdout(Stdio::null()).output().unwrap();
    let dumped = dump.wait().unwrap();
    match (dumped.success(), restored.status.success()) {
        (true, true) => Ok(()),
        _ => Err(String::from_utf8_lossy(&restored.stderr).into_owned()),
    }
}

/// What is in all tables of tenure's, but what is known to differ.
async fn contents(session: &Session) -> Vec<String> {
    let mut all = Vec::new();
    for sql in [
        "SELECT service_name || ' ' || leader_id || ' ' || term || ' ' || tenure_base || ' ' || \
         coalesce(tenure_ttl_us, 0) || ' ' || tenure_seq FROM leader_election",
        "SELECT row_to_json(t)::text FROM leader_election_released AS t",
        "SELECT row_to_json(t)::text FROM tenure_message AS t",
        "SELECT row_to_json(t)::text FROM tenure_ledger AS t",
        "SELECT row_to_json(t)::text FROM tenure_ledger_job AS t",
        "SELECT row_to_json(t)::text FROM tenure_advisory AS t",
        "SELECT version::text FROM tenure_migrations",
        "SELECT row_to_json(t)::text FROM tenure_floor AS t",
    ] {
        let rows = session.client.query(sql, &[]).await.unwrap();
        let mut rows: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        rows.sort();
        all.append(&mut rows);
    }
    all
}

/// Issue 12, item 17: a dump of the data, restored where `tenure migrate` has been.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_restored_dump_of_data_keeps_every_term() {
    let server = common::server();
    if std::env::var_os("TENURE_TEST_POSTGRES_BIN").is_none() {
        return println!("skipped: TENURE_TEST_POSTGRES_BIN is not set; use `cargo xtask test`");
    }
    let (old, store) = both(&server).await;
    let a = Player::new(&store, "a", 1).with_ttl(Duration::from_secs(2));
    let low = a.takes("low", 1).await;
    granted(a.release("low", low, 1).await);
    // Beyond what the column holds, too.
    store.raise_terms(Term::new(1_794_960_000_123).unwrap()).await.unwrap();
    let mut last = Term::FIRST;
    for seq in 1..=3 {
        last = a.takes("vacant", seq).await;
        granted(a.release("vacant", last, seq).await);
    }
    let held = a.takes("held", 1).await;
    works(&store, "held", held).await;
    let lock = Locker::new(&old.store(), "lock");
    let by_lock = lock.takes("lock").await;
    works(&old.store(), "lock", by_lock).await;
    granted(lock.release("lock", by_lock).await);

    for options in [&["--data-only"][..], &["--data-only", "--inserts"]] {
        let (new, store) = both(&server).await;
        restore(options, &old.url, &new.url).unwrap();
        let session = new.session().await;
        assert_eq!(contents(&session).await, contents(&old.session().await).await);
        // What is issued next is above all of them, whichever kind issues it.
        let b = Player::new(&store, "b", 2);
        assert_eq!(b.takes("vacant", 1).await.get(), last.get() + 1);
        assert!(b.takes("low", 1).await.get() > 1_794_960_000_123, "the floor came, too");
        let lock = Locker::new(&new.store(), "lock");
        let next = lock.takes("lock").await;
        assert!(next > by_lock, "{next} after {by_lock}");
        // A lease that was held when the dump was made counts from now.
        let Reply::Refused(sight) = b.acquire("held", 1).await else { panic!("it is held") };
        assert_eq!(sight.lease.unwrap().term, Some(held));
        until("it has run out", || async {
            matches!(b.acquire("held", 2).await, Reply::Granted(_))
        })
        .await;
        assert!(passes(&session, "held", Term::new(held.get() + 1).unwrap()).await);
        // Posts go on from where they were.
        works(&store, "vacant", Term::new(last.get() + 1).unwrap()).await;
        // Where there are rows already nothing is mixed: it fails, and these stay.
        let says = restore(options, &old.url, &new.url).unwrap_err();
        assert!(says.contains("duplicate key"), "{says}");
        assert!(passes(&session, "lock", next).await);
    }
    // A whole dump makes everything anew.
    let new = Database::new(&server).await;
    restore(&[], &old.url, &new.url).unwrap();
    assert_eq!(contents(&new.session().await).await, contents(&old.session().await).await);
}

async fn comes_up(server: &OwnServer) -> PostgresStore {
    let store = open(&server.url("postgres"));
    until("the server is up", || async { store.migrate().await.is_ok() }).await;
    store
}

/// Issue 12, item 17: a server that stopped taking writes was asked for ever (P7).
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_server_that_became_read_only_is_left_for_one_that_is_not() {
    let mut first = OwnServer::new(&[]);
    let mut second = OwnServer::new(&[]);
    first.start();
    second.start();
    comes_up(&first).await;
    let other = comes_up(&second).await;
    let both =
        format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres", first.port, second.port);
    let (store, locks) = (open(&both), store_at(&both));
    let (a, lock) = (Player::new(&store, "a", 1), Locker::new(&locks, "lock"));
    a.takes("e", 1).await;
    let term = lock.takes("locked").await;
    granted(lock.release("locked", term).await);
    let admin = Session::open(&first.url("postgres")).await;
    admin.run("ALTER SYSTEM SET default_transaction_read_only = on").await;
    admin.run("SELECT pg_reload_conf()").await;
    until("it takes no writes", || async {
        admin.truth("SELECT current_setting('transaction_read_only')::boolean").await
    })
    .await;
    until("the other one is led", || async {
        matches!(a.acquire("f", 2).await, Reply::Granted(_))
    })
    .await;
    assert_eq!(other.elections().await.unwrap(), [name("f")]);
    // Sessions that are new do not even try.
    let fresh = open(&format!("postgres://postgres@127.0.0.1:{}/postgres", first.port));
    let says = unknown(Player::new(&fresh, "b", 2).acquire("g", 1).await);
    assert!(says.contains("is read-only"), "{says}");
}
