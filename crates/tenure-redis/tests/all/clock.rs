//! The wall clock of a real server is stepped while somebody leads (W1, W2).

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tenure::{BootClock, Election, Event, Events, Time};
use tenure_core::Reply;
use tenure_redis::Settle;

use crate::common::{self, Server, Stores as _, player};

/// Renewed every other second.
const TTL: Duration = Duration::from_secs(6);

/// How long to wait for what ought to happen soon.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server whose wall clock is what a file says.
pub(crate) struct Stepped {
    pub(crate) server: Server,
    directory: tempfile::TempDir,
}

impl Stepped {
    pub(crate) fn start() -> Stepped {
        let directory = tempfile::tempdir().unwrap();
        let library = directory.path().join("wall_clock.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/common/wall_clock.c");
        // The linker of Rust itself.
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source);
        assert!(
            cc.status().expect("cc is not installed").success(),
            "the library that steps the clock does not build"
        );
        let file = directory.path().join("ahead-ms");
        let variables = [("LD_PRELOAD", &library), ("TENURE_TEST_WALL_CLOCK", &file)];
        let server = Server::start_in(&variables.map(|(name, path)| (name, path.as_path())));
        Stepped { server, directory }
    }

    /// Sets its clock so far ahead of the real one; back, if that is negative.
    pub(crate) fn step(&self, ahead_ms: i64) {
        let beside = self.directory.path().join("new");
        std::fs::write(&beside, format!("{ahead_ms}\n")).unwrap();
        // At once: nobody reads half of it.
        std::fs::rename(beside, self.directory.path().join("ahead-ms")).unwrap();
        // Not by a script: a server that has run one may have granted something.
        let moved = || {
            let info = self.server.run(&["INFO", "server"]);
            let told = info.lines().find_map(|line| line.strip_prefix("server_time_usec:"));
            let real = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
            let told = told.unwrap().trim_end().parse::<i64>().unwrap() / 1_000_000;
            told - i64::try_from(real).unwrap()
        };
        for _ in 0..500 {
            if (moved() - ahead_ms / 1000).abs() <= 2 {
                return;
            }
            // tidy: sleep because some servers look at the clock only now and then
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the control: it is ahead by {} s", moved());
    }

    async fn candidate(&self, label: &str) -> Election {
        let store = Arc::new(self.server.store(Settle::Off));
        Election::builder("jobs", store).label(label).ttl(TTL).start().await.unwrap()
    }
}

/// Waits for an event; when it was.
async fn wait_for(events: &mut Events, what: &str, is_it: impl Fn(&Event) -> bool) -> Time {
    let waited = tokio::time::timeout(PATIENCE, async {
        loop {
            let (at, event) = events.next_at().await.expect(what);
            if is_it(&event) {
                return at;
            }
        }
    });
    waited.await.expect(what)
}

/// By the server's clock the lease is over at once, and it is granted to the next one. Who has it
/// by its own clock trusts itself for a while longer; the next one knows, and waits.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_clock_that_is_set_ahead_makes_no_second_leader() {
    let stepped = Stepped::start();
    stepped.step(0);
    let a = stepped.candidate("a").await;
    let reign = a.campaign().await.unwrap();
    let (mut of_a, b) = (a.events(), stepped.candidate("b").await);
    let mut of_b = b.events();
    stepped.step(31_000);
    let step = BootClock::time();
    // Everybody looks at the election now.
    stepped.server.run(&["PUBLISH", "tenure:hints:0", "jobs"]);
    let told = wait_for(&mut of_b, "a report of the step", |event| {
        matches!(event, Event::StoreClockStepped { ahead: true, .. })
    });
    told.await;
    assert!(!b.is_leader(), "W2: it was granted, and does not lead");
    let lost = wait_for(&mut of_a, "the end of the first reign", |event| {
        matches!(event, Event::SteppedDown { .. })
    });
    let lost = lost.await;
    drop(reign);
    let next = tokio::time::timeout(PATIENCE, async {
        tokio::select! {
            next = b.campaign() => next.unwrap(),
            next = a.campaign() => next.unwrap(),
        }
    });
    let next = next.await.expect("a leader");
    let led = BootClock::time();
    println!("stepped: trust ended after {:?}, a leader after {:?}", lost - step, led - step);
    assert!(lost <= led, "I1: two leaders");
    // Nobody knows how much was left of the lease: all of it, then.
    assert!(led - step >= TTL - Duration::from_secs(1), "W2: {:?}", led - step);
    assert!(next.is_current());
}

/// Set back, the server keeps a key for longer than its ttl: a renewal sets that right, and whoever
/// leads goes on. Terms do not fall with the clock (R1).
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_clock_that_is_set_back_changes_no_reign_and_lowers_no_term() {
    let stepped = Stepped::start();
    stepped.step(0);
    let a = stepped.candidate("a").await;
    let reign = a.campaign().await.unwrap();
    let term = reign.term();
    let b = stepped.candidate("b").await;
    let mut of_a = a.events();
    stepped.step(-100_000);
    let told = wait_for(&mut of_a, "a report of the step", |event| {
        matches!(event, Event::StoreClockStepped { ahead: false, .. })
    });
    told.await;
    assert!(reign.is_current(), "it was renewed");
    let seen = b.current_leader().await.unwrap().unwrap();
    assert!(seen.term == Some(term) && seen.remaining <= TTL, "{seen:?}");
    drop(reign);
    a.stop().await.unwrap();
    let next = tokio::time::timeout(PATIENCE, b.campaign()).await.expect("a successor").unwrap();
    assert!(next.term() > term, "R1: {} after {term}", next.term());
}

/// A noted end lies in a future that is further away by the step. Nobody waits longer for it than
/// for a lease that was renewed just now (R6).
#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_clock_that_is_set_back_does_not_put_off_a_noted_end() {
    let stepped = Stepped::start();
    stepped.step(0);
    let ttl = Duration::from_secs(1);
    let (a, b) = (player("jobs", "a", ttl), player("jobs", "bb", ttl));
    let store = stepped.server.settled();
    let sent = common::now();
    let term = a.takes(&store, 1).await.term;
    stepped.server.run(&["DEL", "jobs"]);
    stepped.step(-100_000);
    let seen = b.sight(&store).await.lease.expect("R6: it is held");
    assert!(seen.remaining <= ttl, "{seen:?}");
    let taken = tokio::time::timeout(PATIENCE, async {
        for seq in 1.. {
            let sent = common::now();
            match b.acquire(&store, seq).await {
                Reply::Granted(grant) => return (grant.term, sent),
                Reply::Refused(sight) => assert!(sight.lease.unwrap().remaining <= ttl),
                other => panic!("{other:?}"),
            }
            common::wait(common::ms(20)).await;
        }
        unreachable!()
    });
    let (next, granted_after) = taken.await.expect("a successor");
    assert!(next > term, "R1: {next} after {term}");
    assert!(granted_after - sent >= ttl, "R6: {:?}", granted_after - sent);
}
