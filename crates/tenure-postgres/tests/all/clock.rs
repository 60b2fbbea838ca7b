//! The wall clock of a real server is stepped while somebody leads (W1, W2).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure::{BootClock, Election, Event, Events, Time};
use tenure_core::Term;
use tenure_postgres::{PostgresConfig, PostgresStore};
use tenure_testbed::fake_wall_clock;
use tenure_testbed::postgres::OwnServer;

use crate::common::{PATIENCE, Player, Session, until};

/// Renewed every other second: so long somebody who was overtaken may go on trusting itself.
const TTL: Duration = Duration::from_secs(6);

/// A server whose wall clock is what a file says.
struct Stepped {
    server: OwnServer,
    file: PathBuf,
}

impl Stepped {
    async fn start() -> Stepped {
        let mut server = OwnServer::new(&[]);
        let file = server.home.path().join("wall-clock");
        for (name, value) in fake_wall_clock(&file) {
            server.set_variable(&name, &value);
        }
        let mut stepped = Stepped { server, file };
        stepped.step("+0");
        stepped.server.start();
        let store = stepped.store();
        until("the server is up", || async { store.migrate().await.is_ok() }).await;
        stepped
    }

    /// Sets its clock so far ahead of the real one, in seconds.
    fn step(&self, by: &str) {
        let beside = self.file.with_extension("new");
        std::fs::write(&beside, format!("{by}\n")).unwrap();
        // At once: nobody reads half of it.
        std::fs::rename(beside, &self.file).unwrap();
    }

    fn store(&self) -> PostgresStore {
        PostgresConfig::from_url(&self.server.url("postgres")).unwrap().open()
    }

    async fn candidate(&self, label: &str) -> Election {
        let builder = Election::builder("jobs", Arc::new(self.store())).label(label).ttl(TTL);
        builder.start().await.unwrap()
    }

    /// How far the server is ahead, in seconds.
    async fn ahead(&self) -> f64 {
        let session = Session::open(&self.server.url("postgres")).await;
        let sql = "SELECT extract(epoch FROM clock_timestamp())::float8";
        let told: f64 = session.client.query_one(sql, &[]).await.unwrap().get(0);
        let real = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        told - real.as_secs_f64()
    }

    /// Has everybody look at the election now.
    async fn nudge(&self) {
        Player::new(&self.store(), "nobody", 1).release("jobs", Term::new(1).unwrap(), 1).await;
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
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_clock_that_is_set_ahead_makes_no_second_leader() {
    let stepped = Stepped::start().await;
    let a = stepped.candidate("a").await;
    let reign = a.campaign().await.unwrap();
    let (mut of_a, b) = (a.events(), stepped.candidate("b").await);
    let mut of_b = b.events();
    assert!(stepped.ahead().await.abs() < 2.0, "the control: it is not stepped yet");

    // The control of the whole: the store grants the lease by its own clock.
    stepped.step("+31");
    let step = BootClock::time();
    assert!((stepped.ahead().await - 31.0).abs() < 2.0, "the control: it is stepped");
    stepped.nudge().await;
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
    let next = tokio::select! {
        next = b.campaign() => next.unwrap(),
        next = a.campaign() => next.unwrap(),
    };
    let led = BootClock::time();
    println!("stepped: trust ended after {:?}, a leader after {:?}", lost - step, led - step);
    assert!(lost <= led, "I1: two leaders");
    // Nobody knows how much was left of the lease: all of it, then.
    assert!(led - step >= TTL - Duration::from_secs(1), "W2: {:?}", led - step);
    assert!(next.is_current());
}

/// Set back, the server shows more than a lease can have left. It lasts as long as ever.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_clock_that_is_set_back_changes_no_reign_and_delays_no_successor() {
    let stepped = Stepped::start().await;
    let a = stepped.candidate("a").await;
    let reign = a.campaign().await.unwrap();
    let term = reign.term();
    let b = stepped.candidate("b").await;
    let mut of_a = a.events();
    stepped.step("-100");
    assert!((stepped.ahead().await + 100.0).abs() < 2.0, "the control: it is stepped");
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
    assert!(next.term() > term, "I2");
}
