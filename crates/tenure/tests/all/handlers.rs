//! Handlers of messages at their worst: one that blocks keeps no lease, one that hangs is ended in
//! its time, and each can know that leadership is lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tenure::{Candidate, Message, Reason};
use tokio::sync::mpsc;

use crate::common::{Moody, TTL, World, breathe, eventually};

/// Blocks threads until it is opened.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    bell: Condvar,
    /// Whether somebody is blocked, or was.
    reached: AtomicBool,
}

impl Gate {
    fn block(&self) {
        self.reached.store(true, Ordering::SeqCst);
        drop(self.bell.wait_while(self.open.lock().unwrap(), |open| !*open).unwrap());
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.bell.notify_all();
    }

    fn is_reached(&self) -> bool {
        self.reached.load(Ordering::SeqCst)
    }
}

/// Opens the gate at the end of a test, also of one that fails: its runtime waits for its threads.
struct Opens(Arc<Gate>);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.open();
    }
}

fn candidate(world: &World) -> (Candidate, Arc<Moody>) {
    let (candidate, store) = world.candidate("a");
    store.carries.store(true, Ordering::Relaxed);
    (candidate, store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_handler_of_notices_that_blocks_its_thread_does_not_keep_the_lease_alive() {
    let world = World::new();
    let (candidate, _) = candidate(&world);
    let gate = Arc::new(Gate::default());
    let (blocks, _opens) = (gate.clone(), Opens(gate.clone()));
    let election = candidate.election("invoices").ttl(TTL).on_notify("c", move |_| blocks.block());
    let election = election.start().await.unwrap();
    election.notify("c", "1").await.unwrap();
    eventually("the handler", || gate.is_reached()).await;
    let next = world.election("b").start().await.unwrap();
    world.pass_until(|| next.is_leader()).await;
    assert!(!election.is_leader());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_handler_of_posts_that_blocks_its_thread_does_not_keep_the_lease_alive() {
    let world = World::new();
    let (candidate, _) = candidate(&world);
    let gate = Arc::new(Gate::default());
    let (blocks, _opens) = (gate.clone(), Opens(gate.clone()));
    let election = candidate.election("invoices").ttl(TTL).on_post("c", move |_| {
        let blocks = blocks.clone();
        async move {
            tokio::task::yield_now().await;
            blocks.block();
            Ok::<(), String>(())
        }
    });
    let election = election.start().await.unwrap();
    election.post("c", "1", "k").await.unwrap();
    eventually("the handler", || gate.is_reached()).await;
    let next = world.election("b").start().await.unwrap();
    world.pass_until(|| next.is_leader()).await;
    assert!(!election.is_leader());
}

#[tokio::test]
async fn handlers_that_merely_wait_keep_the_lease() {
    let world = World::new();
    let (candidate, store) = candidate(&world);
    let begun = Arc::new(AtomicBool::new(false));
    let noted = begun.clone();
    let election = candidate
        .election("invoices")
        .ttl(TTL)
        .on_notify("c", |_| std::future::pending::<()>())
        .on_post("c", move |_| {
            noted.store(true, Ordering::SeqCst);
            std::future::pending::<Result<(), String>>()
        })
        .start()
        .await
        .unwrap();
    let term = election.term();
    election.notify("c", "1").await.unwrap();
    election.post("c", "1", "k").await.unwrap();
    eventually("the handler", || begun.load(Ordering::SeqCst)).await;
    let renewals = || store.verbs().iter().filter(|verb| **verb == "renew").count();
    for wanted in 1..=12 {
        world.pass_until(|| renewals() >= wanted).await;
        breathe().await;
    }
    assert!(election.is_leader() && election.term() == term);
}

#[tokio::test]
async fn a_post_whose_handler_takes_too_long_stays_and_is_tried_again() {
    let world = World::new();
    let (candidate, _) = candidate(&world);
    let (told, mut heard) = mpsc::unbounded_channel();
    let election = candidate
        .election("invoices")
        .ttl(TTL)
        .post_timeout(Duration::from_secs(2))
        .on_post("c", move |message: Message| {
            let told = told.clone();
            async move {
                if message.attempt < 3 {
                    let _dropped = Dropped { told, attempt: message.attempt };
                    std::future::pending::<()>().await;
                }
                Ok::<(), String>(())
            }
        })
        .start()
        .await
        .unwrap();
    election.post("c", "1", "k").await.unwrap();
    world.pass_until(|| election.message_counts().handled == 1).await;
    assert_eq!([heard.try_recv(), heard.try_recv()], [Ok(1), Ok(2)], "each was ended");
    assert_eq!(election.message_counts().failed, 2);
    assert!(election.is_leader(), "it harms nothing else");
    assert!(election.messenger().unwrap().backlog().await.unwrap().is_empty());
}

/// Tells that a handler was dropped, and panics then, which must harm nothing.
struct Dropped {
    told: mpsc::UnboundedSender<u32>,
    attempt: u32,
}

impl Drop for Dropped {
    fn drop(&mut self) {
        self.told.send(self.attempt).unwrap();
        panic!("it panics on purpose");
    }
}

#[tokio::test]
async fn handlers_are_told_of_the_loss_and_the_lease_waits_for_them() {
    let world = World::new();
    let (candidate, store) = candidate(&world);
    let (told, mut heard) = mpsc::unbounded_channel();
    let handle = move |message: Message| {
        let told = told.clone();
        async move {
            told.send((message.is_current(), None)).unwrap();
            let reason = message.lost().await;
            told.send((message.is_current(), Some(reason))).unwrap();
        }
    };
    let post = handle.clone();
    let election = candidate
        .election("invoices")
        .ttl(TTL)
        .on_notify("c", handle)
        .on_post("c", move |message| {
            let handled = post(message);
            async move {
                handled.await;
                Err("it was lost")
            }
        })
        .start()
        .await
        .unwrap();
    election.notify("c", "1").await.unwrap();
    election.post("c", "1", "k").await.unwrap();
    for _ in 0..2 {
        assert_eq!(heard.recv().await, Some((true, None)));
    }
    election.stop().await.unwrap();
    for _ in 0..2 {
        assert_eq!(heard.try_recv(), Ok((true, Some(Reason::Resigned))), "before the lease went");
    }
    assert_eq!(store.verbs().last(), Some(&"release"));
}

#[tokio::test]
async fn a_timeout_of_nothing_is_refused() {
    let world = World::new();
    let (candidate, _) = candidate(&world);
    let builder = candidate.election("invoices").post_timeout(Duration::ZERO);
    let built = builder.on_post("c", |_| async { Ok::<(), String>(()) }).build();
    assert!(built.unwrap_err().to_string().contains("at least 1ms"));
}
