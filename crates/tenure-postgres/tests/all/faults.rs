//! Groups of candidates on a server that is restarted, frozen, cut off, full or read-only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tenure_core::{ErrorKind, Reply, Store, StoreExt};
use tenure_postgres::{PostgresConfig, PostgresStore};
use tenure_testbed::postgres::OwnServer;
use tokio::net::TcpListener;
use tokio::runtime::Handle;

use crate::common::group::Group;
use crate::common::{self, Player, Session, granted, name, now, real_wait, unknown, until};
use tenure_testbed::proxy::Proxy;

const TTL: Duration = Duration::from_secs(3);
const SECOND: Duration = Duration::from_secs(1);

fn open(url: &str) -> PostgresStore {
    PostgresConfig::from_url(url).unwrap().open()
}

fn stores(urls: &[String]) -> Vec<Arc<dyn Store>> {
    urls.iter().map(|url| Arc::new(open(url)) as Arc<dyn Store>).collect()
}

async fn comes_up(server: &OwnServer) {
    let store = open(&server.url("postgres"));
    until("the server is up", || async { store.migrate().await.is_ok() }).await;
}

/// Others who use the server all the while: how many ops were answered.
struct Load {
    over: Arc<AtomicBool>,
    done: Arc<AtomicU32>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    fn start(url: &str) -> Load {
        let (over, done): (Arc<AtomicBool>, Arc<AtomicU32>) = Default::default();
        let tasks = (0..4_u128).map(|number| {
            let (store, over, done) = (open(url), over.clone(), done.clone());
            Handle::current().spawn(async move {
                let (player, election) =
                    (Player::new(&store, "load", number), format!("l{number}"));
                let mut seq = 0;
                while !over.load(Ordering::Relaxed) {
                    seq += 1;
                    match player.acquire(&election, seq).await {
                        Reply::Granted(grant) => {
                            let _ = player.release(&election, grant.term, seq).await;
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                        _ => real_wait(Duration::from_millis(10)).await,
                    }
                }
            })
        });
        Load { tasks: tasks.collect(), over, done }
    }

    async fn finish(self) {
        self.over.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        let done = self.done.load(Ordering::Relaxed);
        assert!(done > 100, "only {done} rounds of load");
    }
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_group_outlives_restarts_of_the_server_under_load() {
    let mut server = OwnServer::new(&[]);
    server.start();
    comes_up(&server).await;
    let url = server.url("postgres");
    let load = Load::start(&url);
    let group = Group::start(stores(&[url.clone(), url.clone(), url]), TTL).await;
    let first = group.leads_within(TTL).await;
    // In good order, and with a crash: soon enough for the leader to go on.
    for crash in [false, true] {
        if crash {
            server.crash();
        } else {
            server.stop();
            server.start();
        }
        // Long enough for a lease that was not renewed since to have run out.
        real_wait(TTL).await;
        let again = group.leads_within(SECOND).await;
        println!("after a restart term {} leads", again.term);
    }
    // And away for so long that the lease runs out.
    let last = group.leads_within(TTL + SECOND).await;
    assert!(last.term >= first.term);
    server.stop();
    real_wait(TTL + SECOND).await;
    assert_eq!(group.leading(), 0, "nobody trusts a lease that ran out");
    server.start();
    let back = now();
    let next = group.leader_above(last.term.get(), TTL + SECOND).await;
    println!("{:?} after the server was back term {} led", (now() - back), next.term);
    load.finish().await;
    group.finish().await;
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_server_frozen_for_two_ttls_leaves_nobody_leading_and_then_one() {
    let mut server = OwnServer::new(&[]);
    server.start();
    comes_up(&server).await;
    let url = server.url("postgres");
    let group = Group::start(stores(&[url.clone(), url.clone(), url]), TTL).await;
    let first = group.leads_within(TTL).await;
    server.freeze();
    let frozen = now();
    while (now() - frozen) < TTL * 2 {
        let waited = now() - frozen;
        let leading = group.leading();
        assert!(waited < TTL || leading == 0, "{leading} lead {waited:?} after the freeze");
        real_wait(Duration::from_millis(5)).await;
    }
    server.thaw();
    let thawed = now();
    let next = group.leader_above(first.term.get(), TTL + SECOND).await;
    println!("{:?} after the thaw term {} led", (now() - thawed), next.term);
    real_wait(SECOND).await;
    assert_eq!(group.leading(), 1);
    group.finish().await;
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_black_holed_leader_stops_before_anyone_else_leads() {
    let mut server = OwnServer::new(&[]);
    server.start();
    comes_up(&server).await;
    let proxy = Proxy::start(server.port);
    let through = format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port);
    let url = server.url("postgres");
    let group = Group::start(stores(&[through, url.clone(), url]), TTL).await;
    let first = group.leads_within(TTL).await;
    assert_eq!(first.member, 0, "the first to come leads");
    proxy.swallow(true);
    let cut = now();
    while group.members[0].election.is_leader() {
        assert!((now() - cut) < TTL, "it trusts a lease that is over");
        real_wait(Duration::from_millis(1)).await;
    }
    let stopped = now();
    let next = group.leader_above(first.term.get(), TTL + SECOND).await;
    assert!(next.at > stopped && next.member != 0, "two at once");
    println!("stopped {:?} after the cut, succeeded after {:?}", stopped - cut, next.at - cut);
    assert!(next.at - cut < TTL + Duration::from_millis(250), "{:?}", next.at - cut);
    // Back again: it follows, and can lead when its turn comes.
    proxy.swallow(false);
    real_wait(SECOND).await;
    assert_eq!(group.leading(), 1);
    assert_eq!(group.reigns().last().unwrap().term, next.term, "nobody else has led since");
    group.finish().await;
}

/// A firewall that lost its tables, or a pooler that was replaced: nobody says so.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_connection_that_the_network_forgot_costs_no_reign() {
    // So long that a busy machine has time for the second try, too.
    let ttl = TTL * 2;
    let mut server = OwnServer::new(&[]);
    server.start();
    comes_up(&server).await;
    let proxy = Proxy::start(server.port);
    let through = format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port);
    let group = Group::start(stores(&[through, server.url("postgres")]), ttl).await;
    let first = group.leads_within(ttl).await;
    assert_eq!(first.member, 0, "the first to come leads");
    for _ in 0..3 {
        let before = proxy.connections();
        proxy.forget();
        until("another connection is made", || async { proxy.connections() > before }).await;
        real_wait(ttl).await;
        let last = group.leads_within(SECOND).await;
        assert_eq!(last.term, first.term, "it could have been renewed on the next");
    }
    group.finish().await;
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_backends_that_are_ended_again_and_again_cost_no_reign() {
    let mut server = OwnServer::new(&[]);
    server.start();
    comes_up(&server).await;
    let url = server.url("postgres");
    let group = Group::start(stores(&[url.clone(), url.clone(), url.clone()]), TTL).await;
    let first = group.leads_within(TTL).await;
    let admin = Session::open(&url).await;
    let end = "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE application_name = 'tenure'";
    let (started, mut ended) = (now(), 0);
    while (now() - started) < TTL * 2 {
        ended += admin.number(end).await;
        real_wait(Duration::from_millis(500)).await;
    }
    assert!(ended > 10, "only {ended} were ended");
    let last = group.leads_within(SECOND).await;
    assert_eq!(last.term, first.term, "it had time enough to renew in between");
    group.finish().await;
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_server_without_a_connection_left_is_waited_for() {
    let settings = ["max_connections=9", "superuser_reserved_connections=2"];
    let mut server = OwnServer::new(&settings);
    server.start();
    comes_up(&server).await;
    let admin = Session::open(&server.url("postgres")).await;
    admin.run("CREATE ROLE app LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO app").await;
    let url = server.url("app");
    let group = Group::start(stores(std::slice::from_ref(&url)), TTL).await;
    let first = group.leads_within(TTL).await;
    let taken = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'";
    until("it has its one connection", || async { admin.number(taken).await == 1 }).await;
    let mut taken = Vec::new();
    while let Ok((client, connection)) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await
    {
        taken.push((client, Handle::current().spawn(connection)));
    }
    // A newcomer starts, says why it can't, and goes on trying. Who leads goes on leading.
    let newcomer = open(&url);
    let error = newcomer.read(&name("e")).await.unwrap_err();
    assert!(error.is_retryable() && error.message().contains("max_connections"), "{error}");
    let other = Group::start(stores(std::slice::from_ref(&url)), TTL).await;
    real_wait(TTL).await;
    assert_eq!((group.leading(), other.leading()), (1, 0));
    group.members[0].election.stop().await.unwrap();
    drop(taken);
    other.leader_above(first.term.get(), TTL + SECOND).await;
    other.finish().await;
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_privilege_that_is_taken_away_ends_a_reign_and_no_candidate() {
    let mut server = OwnServer::new(&[]);
    server.start();
    comes_up(&server).await;
    let admin = Session::open(&server.url("postgres")).await;
    let grant = "GRANT SELECT, INSERT, UPDATE ON leader_election TO app; \
                 GRANT SELECT, INSERT, UPDATE, DELETE ON leader_election_released TO app; \
                 GRANT SELECT, INSERT, UPDATE ON tenure_advisory TO app; \
                 GRANT SELECT ON tenure_migrations, tenure_floor TO app";
    admin.run(&format!("CREATE ROLE app LOGIN; {grant}")).await;
    let group = Group::start(stores(&[server.url("app")]), TTL).await;
    let first = group.leads_within(TTL).await;
    admin.run("REVOKE UPDATE ON leader_election FROM app").await;
    until("it has stepped down", || async { group.leading() == 0 }).await;
    let poor = Player::new(&open(&server.url("app")), "poor", 9);
    let Reply::Unknown(error) = poor.acquire("other", 1).await else { panic!("it may not") };
    assert!(error.kind() == ErrorKind::Denied && error.message().contains("roles.sql"), "{error}");
    admin.run(grant).await;
    let next = group.leader_above(first.term.get(), TTL * 2).await;
    assert!(next.term > first.term);
    group.finish().await;
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_standby_is_a_condition_until_it_is_promoted() {
    let mut primary = OwnServer::new(&[]);
    primary.start();
    comes_up(&primary).await;
    let mut standby = primary.standby();
    standby.start();
    let admin = standby.url("postgres");
    let any = |url: &str| open(&format!("{url}?target_session_attrs=any"));
    until("the standby is up", || async { any(&admin).check().await.is_ok() }).await;

    // Alone it is read-only, which is said and tried again.
    let alone = any(&admin);
    let error = match Player::new(&alone, "a", 1).acquire("e", 1).await {
        Reply::Unknown(error) => error,
        other => panic!("{other:?}"),
    };
    assert!(error.is_retryable() && error.message().contains("read-only"), "{error}");
    assert!(alone.read(&name("e")).await.unwrap().lease.is_none(), "reading is fine");
    let error = open(&admin).check().await.unwrap_err();
    assert!(error.is_retryable() && error.message().contains("is read-only"), "{error}");

    // Whichever comes first in the URL: the one that can be written to is taken.
    let hosts = [standby.port, primary.port].map(|port| format!("127.0.0.1:{port}"));
    for (number, [a, b]) in [hosts.clone(), [hosts[1].clone(), hosts[0].clone()]].iter().enumerate()
    {
        let both = open(&format!("postgres://postgres@{a},{b}/postgres"));
        Player::new(&both, "a", 1).takes(&format!("e{number}"), 1).await;
    }
    // A candidate on both goes over when the primary is gone and the standby has taken over.
    let both = format!("postgres://postgres@{}/postgres", hosts.join(","));
    let group = Group::start(stores(&[both.clone(), both]), TTL).await;
    let first = group.leads_within(TTL).await;
    primary.stop();
    until("it has stepped down", || async { group.leading() == 0 }).await;
    Session::open(&admin).await.run("SELECT pg_promote()").await;
    let next = group.leader_above(first.term.get(), TTL * 2).await;
    assert!(next.term > first.term, "the last terms were sent to the standby");
    group.finish().await;
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_host_that_hangs_does_not_keep_us_from_the_next() {
    let server = common::server();
    // The kernel accepts, and nobody ever answers.
    let hole = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let (login, place) = server.split_once('@').unwrap();
    let hole = hole.local_addr().unwrap();
    let url = format!("{login}@{hole},{place}");
    let started = now();
    let error = open(&url).migrate().await;
    assert!(error.is_ok(), "{error:?}");
    assert!((now() - started) < Duration::from_secs(20), "{:?}", (now() - started));
    let error = open(&format!("{login}@{hole},127.0.0.1:9/postgres")).check().await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    for part in ["none of the servers will do", "took more than", "127.0.0.1:9"] {
        assert!(error.message().contains(part), "{error}");
    }
    assert!(!error.message().contains("tenure-test"), "{error}");
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_prepared_transaction_that_is_fenced_is_reported() {
    let mut server = OwnServer::new(&["max_prepared_transactions=5"]);
    server.start();
    comes_up(&server).await;
    let url = server.url("postgres");
    let store =
        PostgresConfig::from_url(&url).unwrap().with_fence_grace(Duration::from_millis(200)).open();
    let old = Player::new(&store, "old", 1).with_ttl(Duration::from_millis(300));
    let new = Player::new(&store, "new", 2);
    let term = old.takes("e", 1).await;
    let session = Session::open(&url).await;
    session.run(&format!("BEGIN; SELECT tenure_fence('e', {term}); CREATE TABLE t ()")).await;
    session.run("PREPARE TRANSACTION 'theirs'").await;
    real_wait(Duration::from_millis(600)).await;
    for seq in 1..=3 {
        let says = unknown(new.acquire("e", seq).await);
        assert!(
            says.contains("a prepared transaction is fenced; nobody can end that but you"),
            "{says}"
        );
    }
    session.run("ROLLBACK PREPARED 'theirs'").await;
    let next = granted(new.acquire("e", 4).await).term;
    assert!(next > term);
}
