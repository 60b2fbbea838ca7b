//! Messages to the leader: heard once it is told that it leads, handled only while it does.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::core::{
    Acknowledged, BoxFuture, Channels, Error, ErrorKind, Inbox, Name, Op, Post, Reply, Store, Term,
};
use tenure::{Candidate, Election, Event, MemoryStore, Message, Messenger};
use tokio::sync::{Notify, mpsc};

use crate::common::{TTL, World, breathe, event, eventually, leads};

/// How long the tests wait for what ought to happen at once.
const PATIENCE: Duration = Duration::from_secs(60);

/// Has a channel's messages told here.
fn ear() -> (impl Fn(Message) + Clone + Send + Sync + 'static, mpsc::UnboundedReceiver<Message>) {
    let (told, heard) = mpsc::unbounded_channel();
    (move |message| told.send(message).unwrap_or_default(), heard)
}

async fn next(heard: &mut mpsc::UnboundedReceiver<Message>) -> Message {
    tokio::time::timeout(PATIENCE, heard.recv()).await.expect("it comes").expect("it is open")
}

fn store() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new())
}

#[tokio::test]
async fn whatever_is_sent_once_it_is_told_that_it_leads_is_heard() {
    let store = store();
    for round in 0..20 {
        let (tell, mut heard) = ear();
        let messenger = Messenger::new("invoices", store.clone()).unwrap();
        let election = Election::builder("invoices", store.clone())
            .on_notify("go", tell)
            .on_elected(move |term| {
                let messenger = messenger.clone();
                async move { messenger.notify("go", &term.to_string()).await.unwrap() }
            })
            // It says that the reign is done: no round waits for a drain.
            .on_lost(|_| {})
            .start()
            .await
            .unwrap();
        assert!(election.peek().is_some(), "a lone instance leads when start returns");
        let message = next(&mut heard).await;
        assert_eq!(message.payload, (round + 1).to_string());
        assert_eq!(Some(message.term), election.term());
        election.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_follower_tells_the_leader_and_nobody_else() {
    let store = store();
    let ((tell, mut heard), (tell_other, mut heard_by_other)) = (ear(), ear());
    let leader = Election::builder("e", store.clone()).on_notify("c", tell);
    let leader = leader.start().await.unwrap();
    let follower = Election::builder("e", store.clone()).on_notify("c", tell_other);
    let follower = follower.start().await.unwrap();
    assert!(leader.peek().is_some() && follower.peek().is_none());
    follower.notify("c", "{\"from\": \"a follower\"}").await.unwrap();
    assert_eq!(next(&mut heard).await.payload, "{\"from\": \"a follower\"}");
    assert!(heard_by_other.try_recv().is_err());
    leader.stop().await.unwrap();
    leads(&follower).await;
    follower.notify("c", "2").await.unwrap();
    assert_eq!(next(&mut heard_by_other).await.payload, "2");
    assert!(heard.try_recv().is_err());
}

#[tokio::test]
async fn what_is_not_json_is_counted_and_skipped() {
    let store = store();
    let (tell, mut heard) = ear();
    let election = Election::builder("e", store.clone()).on_notify("c", tell);
    let election = election.start().await.unwrap();
    let name = Name::new("e").unwrap();
    for payload in ["refresh", "", "{", "7"] {
        store.notify(&name, "c", payload).await.unwrap();
    }
    assert_eq!(next(&mut heard).await.payload, "7");
    assert_eq!(election.message_counts().skipped, 3);
    eventually("counting", || election.message_counts().handled == 1).await;
    assert!(election.is_leader());
}

#[tokio::test]
async fn a_handler_that_panics_harms_neither_the_election_nor_what_comes_after() {
    let store = store();
    let (tell, mut heard) = ear();
    let election = Election::builder("e", store.clone())
        .on_notify("at once", {
            let tell = tell.clone();
            move |message: Message| {
                assert_ne!(message.payload, "1", "it panics on purpose");
                tell(message);
            }
        })
        .on_notify("later", move |message: Message| {
            let tell = tell.clone();
            async move {
                tokio::task::yield_now().await;
                assert_ne!(message.payload, "1", "it panics on purpose");
                tell(message);
            }
        })
        .start()
        .await
        .unwrap();
    for channel in ["at once", "later"] {
        election.notify(channel, "1").await.unwrap();
        election.notify(channel, "2").await.unwrap();
        let message = next(&mut heard).await;
        assert_eq!((&*message.channel, &*message.payload), (channel, "2"));
    }
    eventually("counting", || election.message_counts().handled == 2).await;
    assert_eq!(election.message_counts().failed, 2);
    assert_eq!(election.term(), Some(Term::FIRST), "it still leads");
}

#[tokio::test]
async fn a_slow_handler_holds_up_its_own_channel_only_and_what_is_too_much_is_counted() {
    let store = store();
    let (tell, mut heard) = ear();
    let election = Election::builder("e", store.clone())
        .on_notify("slow", |_| std::future::pending::<()>())
        .on_notify("quick", tell)
        .start()
        .await
        .unwrap();
    for number in 0..1100 {
        election.notify("slow", &number.to_string()).await.unwrap();
    }
    election.notify("quick", "1").await.unwrap();
    assert_eq!(next(&mut heard).await.payload, "1");
    let missed = election.message_counts().missed;
    assert!((75..=76).contains(&missed), "1 is at work, 1024 wait, and {missed} were missed");
    assert!(election.is_leader());
}

#[tokio::test]
async fn nothing_is_handled_after_the_loss_and_the_lease_waits_for_what_is_at_work() {
    let world = World::new();
    let carrier = Arc::new(Carrier::new(&world));
    let candidate = candidate(&world, &carrier, "a");
    let (begun, mut begins) = mpsc::unbounded_channel();
    let go_on = Arc::new(Notify::new());
    let finished = Arc::new(AtomicU32::new(0));
    let election = candidate.election("invoices").ttl(TTL).at_once().on_notify("c", {
        let (go_on, finished) = (go_on.clone(), finished.clone());
        move |message: Message| {
            begun.send(message.payload).unwrap();
            let (go_on, finished) = (go_on.clone(), finished.clone());
            async move {
                go_on.notified().await;
                finished.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let election = election.start().await.unwrap();
    let mut events = election.events();
    for number in 1..4 {
        election.notify("c", &number.to_string()).await.unwrap();
    }
    assert_eq!(begins.recv().await.unwrap(), "1");
    let resigning = tokio::task::LocalSet::new();
    resigning
        .run_until(async {
            let resigned = tokio::task::spawn_local({
                let election = election.clone();
                async move { election.stop().await }
            });
            event(&mut events, |e| matches!(e, Event::Draining { .. }).then_some(())).await;
            breathe().await;
            assert!(!carrier.verbs().contains(&"release"), "a handler is at work");
            go_on.notify_one();
            resigned.await.unwrap().unwrap();
        })
        .await;
    assert_eq!(finished.load(Ordering::SeqCst), 1, "what was at work could finish");
    breathe().await;
    assert!(begins.try_recv().is_err(), "what waited was not handled");
}

#[tokio::test]
async fn a_handler_that_does_not_end_is_dropped_when_trust_does() {
    let world = World::new();
    let carrier = Arc::new(Carrier::new(&world));
    let candidate = candidate(&world, &carrier, "a");
    let dropped = Arc::new(AtomicBool::new(false));
    let election = candidate.election("invoices").ttl(TTL).at_once().on_notify("c", {
        let dropped = dropped.clone();
        move |_| {
            let guard = OnDrop(dropped.clone());
            async move {
                let _guard = guard;
                std::future::pending::<()>().await;
            }
        }
    });
    let election = election.start().await.unwrap();
    let mut events = election.events();
    election.notify("c", "1").await.unwrap();
    breathe().await;
    carrier.fail.store(true, Ordering::SeqCst);
    let mut over = false;
    pass_until(&world, &candidate, || {
        over |= matches!(try_event(&mut events), Some(Event::SteppedDown { .. }));
        over
    })
    .await;
    eventually("dropping", || dropped.load(Ordering::SeqCst)).await;
}

#[tokio::test]
async fn a_candidate_that_can_not_listen_gives_the_lease_back_and_never_led() {
    let world = World::new();
    let carrier = Arc::new(Carrier::new(&world));
    carrier.listen(Mood::Fails);
    let candidate = candidate(&world, &carrier, "deaf");
    let told = Arc::new(Mutex::new(Vec::new()));
    let election = candidate
        .election("invoices")
        .ttl(TTL)
        .at_once()
        .on_notify("c", |_| ())
        .on_error({
            let told = told.clone();
            move |error: Error| told.lock().unwrap().push(error.to_string())
        })
        .build()
        .unwrap();
    let mut events = election.events();
    election.start().await.unwrap();
    assert!(!election.is_leader());
    let mut seen = Vec::new();
    let released = || carrier.verbs().iter().filter(|verb| **verb == "release").count();
    pass_until(&world, &candidate, || released() == 2).await;
    while let Some(event) = try_event(&mut events) {
        seen.push(event.name());
    }
    assert!(seen.contains(&"listen_failed"), "{seen:?}");
    for never in ["elected", "draining", "stepped_down", "renewal_failed"] {
        assert!(!seen.contains(&never), "{seen:?}");
    }
    eventually("telling", || !told.lock().unwrap().is_empty()).await;
    assert!(told.lock().unwrap()[0].contains("nobody hears"));
    let aside = carrier.pauses();
    assert!(aside >= TTL / 3, "it stepped back for {aside:?} only");
    // Once it can listen, it leads.
    carrier.listen(Mood::Well);
    pass_until(&world, &candidate, || election.is_leader()).await;
}

#[tokio::test]
async fn a_candidate_whose_listening_hangs_does_not_lead_and_is_not_waited_for() {
    let world = World::new();
    let carrier = Arc::new(Carrier::new(&world));
    carrier.listen(Mood::Hangs);
    let candidate = candidate(&world, &carrier, "a");
    let election = candidate.election("invoices").ttl(TTL).at_once().on_notify("c", |_| ());
    let election = election.build().unwrap();
    let mut events = election.events();
    let starting = tokio::task::LocalSet::new();
    starting
        .run_until(async {
            let start = tokio::task::spawn_local({
                let election = election.clone();
                async move { election.start().await }
            });
            let mut failed = None;
            let began = world.now();
            pass_until(&world, &candidate, || {
                while let Some(event) = try_event(&mut events) {
                    assert!(!matches!(event, Event::Elected { .. }), "it is deaf");
                    if let Event::ListenFailed { error, .. } = event {
                        failed = Some(error.to_string());
                    }
                }
                failed.is_some()
            })
            .await;
            let waited = world.now() - began;
            assert!(waited <= TTL / 6 + Duration::from_millis(50), "it waited {waited:?}");
            let error = failed.unwrap();
            assert!(error.contains("took more than 500ms"), "{error}");
            start.await.unwrap().unwrap();
        })
        .await;
    // The next try finds nothing in its way, although the last one never ended.
    carrier.listen(Mood::Well);
    pass_until(&world, &candidate, || election.is_leader()).await;
}

#[tokio::test]
async fn a_store_that_will_never_let_it_listen_is_an_error_of_start() {
    let world = World::new();
    let carrier = Arc::new(Carrier::new(&world));
    carrier.listen(Mood::Denies);
    let candidate = candidate(&world, &carrier, "a");
    let election = candidate.election("invoices").ttl(TTL).at_once().on_notify("c", |_| ());
    let error = election.start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn posts_are_handled_in_order_and_acknowledged() {
    let store = store();
    let messenger = Messenger::new("e", store.clone()).unwrap();
    for number in 0..50 {
        messenger.post("c", &number.to_string(), &number.to_string()).await.unwrap();
    }
    let (tell, mut heard) = ear();
    let election = Election::builder("e", store).on_post("c", move |message| {
        tell(message);
        async { Ok::<(), String>(()) }
    });
    let election = election.start().await.unwrap();
    for number in 50..100 {
        election.post("c", &number.to_string(), &number.to_string()).await.unwrap();
    }
    for number in 0..100 {
        let message = next(&mut heard).await;
        assert_eq!((message.payload, message.attempt), (number.to_string(), 1));
        assert_eq!(message.key, Some(number.to_string()));
    }
    eventually("counting", || election.message_counts().handled == 100).await;
    assert!(messenger.backlog().await.unwrap().is_empty());
    let again = messenger.post("c", "7", "7").await.unwrap();
    assert!(!again.is_new, "its key is known");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_handles_posts_gives_its_lease_back_when_it_is_told_to() {
    let store = store();
    for round in 0..100 {
        let (tell, mut heard) = ear();
        let election = Election::builder("e", store.clone()).on_post("c", move |message| {
            tell(message);
            async { Ok::<(), String>(()) }
        });
        let election = election.start().await.unwrap();
        assert!(election.peek().is_some(), "the lease of round {round} was given back");
        for number in 0..5 {
            election.post("c", "1", &format!("{round}-{number}")).await.unwrap();
        }
        next(&mut heard).await;
        tokio::time::timeout(PATIENCE / 12, election.stop()).await.expect("at once").unwrap();
    }
}

#[tokio::test]
async fn a_post_that_fails_holds_up_its_channel_until_it_is_dead_and_can_be_replayed() {
    let world = World::new();
    let carrier = Arc::new(Carrier::new(&world));
    let candidate = candidate(&world, &carrier, "a");
    let (tell, mut heard) = ear();
    let fixed = Arc::new(AtomicBool::new(false));
    let handler = {
        let fixed = fixed.clone();
        move |message: Message| {
            let bad = message.payload == "\"bad\"" && !fixed.load(Ordering::SeqCst);
            let panics = bad && message.attempt == 2;
            tell(message);
            async move {
                assert!(!panics, "it panics on purpose");
                if bad { Err("it is bad") } else { Ok(()) }
            }
        }
    };
    let election =
        candidate.election("invoices").ttl(TTL).at_once().post_tries(3).on_post("c", handler);
    let election = election.start().await.unwrap();
    let messenger = election.messenger().unwrap();
    messenger.post("c", "\"bad\"", "1").await.unwrap();
    messenger.post("c", "\"good\"", "2").await.unwrap();
    let mut seen = Vec::new();
    pass_until(&world, &candidate, || {
        while let Ok(message) = heard.try_recv() {
            seen.push((message.payload, message.attempt));
        }
        seen.len() == 4
    })
    .await;
    let bad = |times| ("\"bad\"".to_owned(), times);
    assert_eq!(seen, [bad(1), bad(2), bad(3), ("\"good\"".to_owned(), 1)]);
    assert!(election.is_leader());
    assert_eq!(election.message_counts().failed, 3);
    let letters = messenger.dead_letters(Some("c"), 10).await.unwrap();
    assert_eq!((letters.len(), &*letters[0].key, letters[0].deliveries), (1, "1", 3));
    fixed.store(true, Ordering::SeqCst);
    assert_eq!(messenger.replay(&[letters[0].id]).await.unwrap(), 1);
    assert_eq!(next(&mut heard).await.attempt, 1);
    eventually("counting", || election.message_counts().handled == 2).await;
    assert!(messenger.backlog().await.unwrap().is_empty());
}

#[tokio::test]
async fn what_a_leader_did_not_acknowledge_comes_again_to_its_successor() {
    let world = World::new();
    let carrier = Arc::new(Carrier::new(&world));
    let first = candidate(&world, &carrier, "a");
    let (tell, mut heard) = ear();
    let election = first.election("invoices").ttl(TTL).at_once().on_post("c", {
        let tell = tell.clone();
        move |message| {
            tell(message);
            std::future::pending::<Result<(), String>>()
        }
    });
    let election = election.start().await.unwrap();
    election.post("c", "1", "k").await.unwrap();
    assert_eq!(next(&mut heard).await.attempt, 1);
    // It is cut off from the store; trust ends, and the handler is dropped.
    carrier.fail.store(true, Ordering::SeqCst);
    let other = Arc::new(Carrier::new(&world));
    let second = candidate(&world, &other, "b");
    let successor = second.election("invoices").ttl(TTL).at_once().on_post("c", move |message| {
        tell(message);
        async { Ok::<(), String>(()) }
    });
    let successor = successor.start().await.unwrap();
    pass_until(&world, &second, || successor.is_leader()).await;
    let again = next(&mut heard).await;
    assert_eq!((again.attempt, again.key.as_deref()), (2, Some("k")));
    assert_eq!(Some(again.term), successor.term());
    eventually("acknowledging", || successor.message_counts().handled == 1).await;
}

#[tokio::test]
async fn an_acknowledgement_is_asked_for_until_the_store_has_answered() {
    let world = World::new();
    let carrier = Arc::new(Carrier::new(&world));
    let candidate = candidate(&world, &carrier, "a");
    let (tell, mut heard) = ear();
    let election = candidate.election("invoices").ttl(TTL).at_once().on_post("c", move |message| {
        tell(message);
        async { Ok::<(), String>(()) }
    });
    let election = election.start().await.unwrap();
    carrier.lost_acknowledgements.store(3, Ordering::SeqCst);
    election.post("c", "1", "k").await.unwrap();
    next(&mut heard).await;
    pass_until(&world, &candidate, || election.message_counts().handled == 1).await;
    assert_eq!(carrier.lost_acknowledgements.load(Ordering::SeqCst), 0);
    assert!(heard.try_recv().is_err(), "it was handled once");
    assert!(election.messenger().unwrap().backlog().await.unwrap().is_empty());
}

#[tokio::test]
async fn bad_input_is_refused_with_a_sentence_before_anything_starts_or_is_sent() {
    let store = store();
    let builder = || Election::builder("e", store.clone());
    let says = |built: Result<Election, Error>| built.unwrap_err().to_string();
    let two = builder().on_notify("c", |_| ()).on_notify("c", |_| ());
    assert!(says(two.build()).contains("the channel \"c\" has two handlers"));
    let ok = |_| async { Ok::<(), String>(()) };
    let both = builder().on_notify("c", |_| ()).on_post("c", ok);
    both.build().expect("a channel may have notices and posts");
    let long = "x".repeat(256);
    assert!(says(builder().on_notify(&*long, |_| ()).build()).contains("at most 255"));
    assert!(says(builder().on_post("", ok).build()).contains("channel is empty"));
    assert!(says(builder().on_post("c", ok).post_tries(0).build()).contains("at least 1"));
    let (candidate, _) = World::new().candidate("a");
    let mute = candidate.election("e").on_notify("c", |_| ()).build();
    assert!(says(mute).contains("carries no messages"));
    let messenger = Messenger::new("e", store.clone()).unwrap();
    let says = |sent: Result<(), Error>| sent.unwrap_err().to_string();
    assert!(says(messenger.notify("c", "refresh").await).contains("not JSON"));
    assert!(says(messenger.notify("a\nb", "1").await).contains("control character"));
    let huge = format!("\"{}\"", "x".repeat(1 << 20));
    assert!(says(messenger.notify("c", &huge).await).contains("post it instead"));
    let post = |channel: &str, payload: &str, key: &str| Post {
        channel: channel.into(),
        payload: payload.into(),
        key: key.into(),
    };
    let posts = [post("c", "1", "a"), post("c", "no", "b")];
    assert!(messenger.post_all(&posts).await.unwrap_err().to_string().contains("not JSON"));
    assert!(messenger.post("c", &huge, "k").await.unwrap_err().to_string().contains("1048576"));
    assert!(messenger.post("c", "1", "").await.unwrap_err().to_string().contains("key"));
    assert!(messenger.backlog().await.unwrap().is_empty(), "nothing of it was kept");
    assert!(Messenger::new("", store).is_err());
}

#[test]
fn handlers_need_a_runtime_and_say_so() {
    let built = Election::builder("e", store()).on_notify("c", |_| ()).build();
    assert!(built.unwrap_err().to_string().contains("tokio runtime"));
}

struct OnDrop(Arc<AtomicBool>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn candidate(world: &World, carrier: &Arc<Carrier>, label: &str) -> Candidate {
    let clock = Arc::new(world.clock.clone());
    Candidate::builder(carrier.clone()).label(label).clock(clock).build().unwrap()
}

/// Lets time pass in small steps until `done`.
async fn pass_until(world: &World, candidate: &Candidate, mut done: impl FnMut() -> bool) {
    for _ in 0..4000 {
        if done() {
            return;
        }
        world.clock.advance(Duration::from_millis(10));
        for _ in 0..3 {
            candidate.synchronize().await;
            breathe().await;
        }
    }
    panic!("40 s of driven time passed and it did not happen");
}

fn try_event(events: &mut tenure::Events) -> Option<Event> {
    let mut next = std::pin::pin!(events.next());
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match next.as_mut().poll(&mut cx) {
        std::task::Poll::Ready(event) => event,
        std::task::Poll::Pending => None,
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Well,
    Fails,
    Denies,
    Hangs,
}

/// A store that carries messages badly if told so.
struct Carrier {
    inner: MemoryStore,
    mood: Mutex<Mood>,
    fail: AtomicBool,
    lost_acknowledgements: AtomicU32,
    ops: Mutex<Vec<(tenure::Time, Op)>>,
    clock: tenure_testkit::ManualClock,
}

impl Carrier {
    fn new(world: &World) -> Carrier {
        Carrier {
            inner: world.store.clone(),
            mood: Mutex::new(Mood::Well),
            fail: AtomicBool::new(false),
            lost_acknowledgements: AtomicU32::new(0),
            ops: Mutex::default(),
            clock: world.clock.clone(),
        }
    }

    fn listen(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    fn verbs(&self) -> Vec<&'static str> {
        self.ops.lock().unwrap().iter().map(|(_, op)| op.verb()).collect()
    }

    /// How long after the first release the next acquire came.
    fn pauses(&self) -> Duration {
        let ops = self.ops.lock().unwrap();
        let released = ops.iter().find(|(_, op)| op.verb() == "release").unwrap().0;
        let again = ops.iter().find(|(at, op)| op.verb() == "acquire" && *at > released);
        again.unwrap().0 - released
    }
}

impl Store for Carrier {
    fn apply<'a>(&'a self, ops: &'a [Op]) -> BoxFuture<'a, Vec<Reply>> {
        Box::pin(async move {
            let now = tenure::Clock::now(&self.clock);
            self.ops.lock().unwrap().extend(ops.iter().map(|op| (now, op.clone())));
            if self.fail.load(Ordering::SeqCst) {
                let gone = Error::new(ErrorKind::Unavailable, "out of order");
                return ops.iter().map(|_| Reply::Unknown(gone.clone())).collect();
            }
            self.inner.apply(ops).await
        })
    }

    fn channels(&self) -> Option<&dyn Channels> {
        Some(self)
    }

    tenure::core::forward!(inner: hints, info, ledger, elections, witness, checkup, migrate);
}

impl Channels for Carrier {
    fn listen<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        channels: &'a [String],
    ) -> BoxFuture<'a, Result<Box<dyn Inbox>, Error>> {
        let mood = *self.mood.lock().unwrap();
        match mood {
            Mood::Well => self.inner.listen(election, term, channels),
            Mood::Fails => {
                Box::pin(async { Err(Error::new(ErrorKind::Unavailable, "nobody hears")) })
            }
            Mood::Denies => Box::pin(async { Err(Error::new(ErrorKind::Denied, "never")) }),
            Mood::Hangs => Box::pin(std::future::pending()),
        }
    }

    fn acknowledge<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        channel: &'a str,
        id: u64,
    ) -> BoxFuture<'a, Result<Acknowledged, Error>> {
        let lost = self.lost_acknowledgements.load(Ordering::SeqCst);
        if lost > 0 {
            self.lost_acknowledgements.store(lost - 1, Ordering::SeqCst);
            return Box::pin(async move {
                // Done, and nobody learns so.
                self.inner.acknowledge(election, term, channel, id).await?;
                Err(Error::new(ErrorKind::Unavailable, "lost"))
            });
        }
        self.inner.acknowledge(election, term, channel, id)
    }

    tenure::core::forward!(inner: limits, notify, post, take, backlog);
    tenure::core::forward!(inner: dead_letters, replay, discard);
}
