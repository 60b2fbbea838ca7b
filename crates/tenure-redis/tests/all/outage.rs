//! Running groups on a server that goes away and comes back: nobody trusts itself for too long,
//! and somebody leads again soon.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tenure::{Election, Tenure};
use tenure_core::{Reason, Time};
use tenure_redis::{FailClosed, RedisConfig, RedisStore, Settle};

use crate::common::{Server, Stores as _, ms, now, wait};
use tenure_testbed::proxy::Proxy;

const TTL: Duration = Duration::from_secs(2);

async fn start(store: RedisStore, label: &str) -> Election {
    let builder = Election::builder("jobs", Arc::new(store)).label(label).ttl(TTL);
    builder.start().await.unwrap()
}

/// Which of these leads first, and when.
async fn next_leader(elections: &[&Election]) -> (Tenure, Time) {
    let campaigns = elections.iter().map(|election| Box::pin(election.campaign()));
    let elected = async {
        let (reign, _, _) = futures_util::future::select_all(campaigns).await;
        (reign.unwrap(), now())
    };
    tokio::time::timeout(TTL * 30, elected).await.expect("somebody leads")
}

/// The old designs had two leaders for 17 s of a cut of 20 s.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_black_holed_leader_stops_trusting_itself_before_anyone_else_leads() {
    let server = Server::start();
    let proxy = Proxy::start(server.port);
    let cut_off = RedisConfig::from_url(&format!("redis://127.0.0.1:{}", proxy.port)).unwrap();
    let a = start(cut_off.with_settle(Settle::Off).open().unwrap(), "a").await;
    let reign = a.campaign().await.unwrap();
    let b = start(server.settled(), "b").await;
    wait(TTL / 2).await;
    proxy.swallow(true);
    let cut = now();
    let ends = async {
        reign.ended().await;
        now()
    };
    let rivals = [&b];
    let (ended, (next, led)) = tokio::join!(ends, next_leader(&rivals));
    println!("black hole: trust ended after {:?}, b led after {:?}", ended - cut, led - cut);
    assert!(ended <= led, "I1: both trusted themselves");
    assert!(!reign.is_current() && !a.is_leader() && b.is_leader());
    assert!(next.term() > reign.term(), "I2");
    assert!(led - cut <= TTL + ms(1_000), "{:?}", led - cut);
    // The work of the old reign is over for good, and stopping does not hang.
    drop(reign);
    let started = now();
    let _outcome = a.stop().await;
    assert!(now() - started < TTL * 2, "{:?}", now() - started);
}

/// Stopped for twice the ttl, then back and empty.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_server_away_for_two_ttls_finds_nobody_trusting_itself() {
    let mut server = Server::start();
    let settle = Settle::For(TTL);
    let a = start(server.store(settle), "a").await;
    let reign = a.campaign().await.unwrap();
    let b = start(server.store(settle), "b").await;
    let (term, gone) = (reign.term(), now());
    server.kill();
    reign.ended().await;
    assert!(now() - gone <= TTL, "trust outlived the lease: {:?}", now() - gone);
    wait(TTL * 2 - (now() - gone)).await;
    assert!(!reign.is_current() && !a.is_leader() && !b.is_leader());
    drop(reign);
    server.come_back();
    let back = now();
    let (next, led) = next_leader(&[&a, &b]).await;
    println!("two ttls without a server: a leader {:?} after it is back", led - back);
    assert!(next.term() > term, "I2");
    assert!(led - back <= TTL + ms(1_000), "{:?}", led - back);
}

/// Frozen for twice the ttl: it remembers all, and nobody waits for settling.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_server_frozen_for_two_ttls_finds_nobody_trusting_itself() {
    let server = Server::start();
    let settle = Settle::For(TTL);
    let a = start(server.store(settle), "a").await;
    let reign = a.campaign().await.unwrap();
    let b = start(server.store(settle), "b").await;
    let (term, gone) = (reign.term(), now());
    server.signal(Signal::STOP);
    reign.ended().await;
    assert!(now() - gone <= TTL, "trust outlived the lease: {:?}", now() - gone);
    wait(TTL * 2 - (now() - gone)).await;
    assert!(!reign.is_current() && !a.is_leader() && !b.is_leader());
    drop(reign);
    server.signal(Signal::CONT);
    let back = now();
    let (next, led) = next_leader(&[&a, &b]).await;
    println!("two ttls of a frozen server: a leader {:?} after it is back", led - back);
    assert!(next.term() > term, "I2");
    assert!(led - back <= TTL + ms(1_000), "{:?}", led - back);
}

/// `CLIENT PAUSE` for less than the trust: one failed renewal does not drop leadership, unless
/// asked for.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_one_failed_renewal_drops_leadership_only_if_asked_to() {
    for fail_closed in [FailClosed::TrustEnds, FailClosed::FirstFailure] {
        let server = Server::start();
        let config = server.config().with_settle(Settle::Off).with_fail_closed(fail_closed);
        let store = Arc::new(config.open().unwrap());
        let ttl = TTL * 2;
        let election = Election::builder("jobs", store).label("a").ttl(ttl);
        let election = election.start().await.unwrap();
        let reign = election.campaign().await.unwrap();
        let term = reign.term();
        // Renewals are due every 1.3 s and given up after 0.7 s: one or two fail.
        server.run(&["CLIENT", "PAUSE", "2200", "ALL"]);
        let lost = tokio::time::timeout(ms(3_500), reign.lost()).await;
        match fail_closed {
            FailClosed::FirstFailure => {
                assert_eq!(lost.ok(), Some(Reason::RenewalFailed), "at the first failure");
            }
            _ => {
                assert!(lost.is_err(), "kept: {lost:?}");
                assert!(reign.is_current() && reign.term() == term);
                wait(ttl).await;
                assert!(reign.is_current(), "renewed under the same term");
            }
        }
    }
}

#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_flushall_under_a_running_group_is_survived() {
    let server = Server::start();
    let settle = Settle::For(TTL);
    let a = start(server.store(settle), "a").await;
    let reign = a.campaign().await.unwrap();
    let b = start(server.store(settle), "b").await;
    let (term, flushed) = (reign.term(), now());
    server.run(&["FLUSHALL"]);
    reign.ended().await;
    let ended = now();
    drop(reign);
    let (next, led) = next_leader(&[&a, &b]).await;
    assert!(next.term() > term, "I2");
    assert!(ended <= led && led - flushed >= TTL, "R2: {:?}", led - flushed);
}
