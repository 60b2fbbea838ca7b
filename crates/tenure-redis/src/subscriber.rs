//! One subscriber for each store: streams of hints and inboxes share its connections.
//!
//! This knows who listens, and hands each of them what servers push. [`Subscriptions`] keeps the
//! connections, in a task on the runtime of the first listener; with the crate `tenure` that is
//! the thread of the driver. If that runtime ends, or does not get to it, another takes over.
//!
//! What servers push is the truth about what is subscribed, because it comes in order: a channel is
//! on from the push that confirms it until the push that takes it away.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};
use tenure_core::sync::lock;
use tenure_core::{Arrival, Error, Hint, HintQueue, HintSender};
use tokio::runtime::{Handle, Id};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::error;
use crate::hints::Names;
use crate::inbox::{Mailbox, RedisInbox, Request};
use crate::pool::text;
use crate::router::{Router, current_runtime};
use crate::subscriptions::{Event, Subscriptions};

/// A task that does not look at a new inbox for so long is on a runtime that is blocked.
const SEEN_WITHIN: Duration = Duration::from_millis(500);

/// Who listens on one store.
pub(crate) struct Subscriber {
    pub(crate) router: Arc<Router>,
    pub(crate) connect_timeout: Duration,
    pub(crate) names: Names,
    hints: HintSender,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last number that a task or a mailbox was given.
    last_number: u64,
    task: Option<Task>,
    /// How many streams of hints there are.
    streams: usize,
    /// Whether a new stream misses nothing from now on.
    hints_are_on: bool,
    mailboxes: HashMap<u64, Mailbox>,
    /// The connections whose pushes count, by their numbers.
    open: HashMap<u64, Open>,
}

/// The task that keeps the connections.
struct Task {
    number: u64,
    runtime: Id,
    events: mpsc::UnboundedSender<Event>,
}

/// What is known of a connection.
struct Open {
    /// The channel of hints of its server.
    hints_on: String,
    /// The channels that it is subscribed to.
    on: HashSet<String>,
}

/// What somebody listens for.
pub(crate) struct Wanted {
    pub(crate) hints: bool,
    /// Where messages of elections are told.
    pub(crate) channels: HashSet<String>,
}

impl Subscriber {
    pub(crate) fn new(router: Arc<Router>, connect_timeout: Duration) -> Subscriber {
        Subscriber {
            router,
            connect_timeout,
            names: Names::default(),
            hints: HintSender::new(),
            state: Mutex::default(),
        }
    }

    /// One more stream of hints, and whether it misses nothing from now on.
    pub(crate) fn join(&self) -> (HintQueue, bool) {
        let mut state = lock(&self.state);
        state.streams += 1;
        state.tell(Event::Wanted);
        (self.hints.listen(), state.hints_are_on)
    }

    /// One stream less.
    pub(crate) fn leave(&self) {
        let mut state = lock(&self.state);
        state.streams -= 1;
        state.tell(Event::Wanted);
    }

    /// An inbox for what is told on a channel from now on (M1): the server has confirmed it.
    ///
    /// # Errors
    /// Why it can't be heard.
    pub(crate) async fn listen(
        self: &Arc<Subscriber>,
        told_on: String,
        channels: &[String],
    ) -> Result<RedisInbox, Error> {
        let runtime = current_runtime()?;
        let id = {
            let mut state = lock(&self.state);
            let id = state.next_number();
            state.mailboxes.insert(id, Mailbox::new(told_on, channels));
            id
        };
        let inbox = RedisInbox { subscriber: self.clone(), id };
        let listens = async {
            loop {
                let (seen, done) = self.request(id, &runtime);
                if timeout(SEEN_WITHIN, seen).await.is_err() {
                    self.take_over(&runtime);
                }
                // Otherwise the task has ended with its runtime: this one begins another.
                if let Ok(done) = done.await {
                    return done;
                }
            }
        };
        // Finding the server takes its time, and so does subscribing.
        let within = self.connect_timeout * 2;
        let listens = timeout(within, listens).await;
        listens.map_err(|_| error::silent(self.router.address(), "subscribe", within))??;
        Ok(inbox)
    }

    /// Polls something on behalf of a task of this runtime, and sees to it that somebody keeps the
    /// connections.
    pub(crate) fn poll_from<T>(
        self: &Arc<Subscriber>,
        runtime: &Handle,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if self.keep_on(runtime) == runtime.id() {
            return poll(cx);
        }
        let (runtime, waker) = (runtime.clone(), cx.waker().clone());
        let waker = Waker::from(Arc::new(RemoteWaker { runtime, waker }));
        poll(&mut Context::from_waker(&waker))
    }

    pub(crate) fn poll_mailbox(&self, id: u64, cx: &mut Context<'_>) -> Poll<Option<Arrival>> {
        match lock(&self.state).mailboxes.get_mut(&id) {
            Some(mailbox) => mailbox.poll_next(cx),
            None => Poll::Ready(None),
        }
    }

    pub(crate) fn close_mailbox(&self, id: u64) {
        let mut state = lock(&self.state);
        let _closed = state.mailboxes.remove(&id);
        state.tell(Event::Wanted);
    }

    /// Asks for a mailbox to be subscribed: when somebody looks after it, and when it is so.
    fn request(
        self: &Arc<Subscriber>,
        id: u64,
        runtime: &Handle,
    ) -> (oneshot::Receiver<()>, oneshot::Receiver<Result<(), Error>>) {
        let ((seen, is_seen), (done, is_done)) = (oneshot::channel(), oneshot::channel());
        {
            let mut state = lock(&self.state);
            if let Some(mailbox) = state.mailboxes.get_mut(&id) {
                mailbox.request = Some(Request { seen: Some(seen), done });
            }
            state.tell(Event::Wanted);
        }
        self.keep_on(runtime);
        (is_seen, is_done)
    }

    /// Begins to keep the connections on this runtime unless somebody does. On which it is done.
    fn keep_on(self: &Arc<Subscriber>, runtime: &Handle) -> Id {
        let mut state = lock(&self.state);
        if let Some(task) = &state.task {
            return task.runtime;
        }
        let subscriptions = self.begin(&mut state, runtime);
        // A runtime that is ending drops what it is given, and that locks.
        drop(state);
        runtime.spawn(subscriptions.run());
        runtime.id()
    }

    /// Keeps the connections on this runtime, whichever did before.
    fn take_over(self: &Arc<Subscriber>, runtime: &Handle) {
        let mut state = lock(&self.state);
        if state.task.as_ref().is_some_and(|task| task.runtime == runtime.id()) {
            return;
        }
        let subscriptions = self.begin(&mut state, runtime);
        drop(state);
        runtime.spawn(subscriptions.run());
    }

    fn begin(self: &Arc<Subscriber>, state: &mut State, runtime: &Handle) -> Subscriptions {
        let (number, (events, receiver)) = (state.next_number(), mpsc::unbounded_channel());
        state.task = Some(Task { number, runtime: runtime.id(), events });
        state.open.clear();
        state.hints_are_on = false;
        Subscriptions::new(self.clone(), number, receiver)
    }
}

/// For the task that keeps the connections.
impl Subscriber {
    /// What somebody listens for.
    pub(crate) fn wanted(&self) -> Wanted {
        let mut state = lock(&self.state);
        for request in state.mailboxes.values_mut().filter_map(|one| one.request.as_mut()) {
            if let Some(seen) = request.seen.take() {
                let _gone = seen.send(());
            }
        }
        let channels = state.mailboxes.values().map(|mailbox| mailbox.told_on.clone()).collect();
        Wanted { hints: state.streams > 0, channels }
    }

    /// Ends this task if nobody listens any more. Whether it is to end.
    pub(crate) fn is_over(&self, task: u64) -> bool {
        let mut state = lock(&self.state);
        if state.task.as_ref().is_none_or(|present| present.number != task) {
            return true;
        }
        let is_idle = state.streams == 0 && state.mailboxes.is_empty();
        if is_idle {
            state.task = None;
            state.open.clear();
        }
        is_idle
    }

    /// This task has ended: those who listen look again, and one of them begins another.
    pub(crate) fn ended(&self, task: u64) {
        let mut wakers = Vec::new();
        {
            let mut state = lock(&self.state);
            if state.task.as_ref().is_none_or(|present| present.number != task) {
                return;
            }
            state.task = None;
            state.open.clear();
            state.hints_are_on = false;
            for mailbox in state.mailboxes.values_mut() {
                mailbox.request = None;
                wakers.extend(mailbox.waker());
            }
        }
        self.hints.send(&[Hint::Any]);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// From now on the pushes of a connection count, if this task still does.
    pub(crate) fn opened(&self, task: u64, conn: u64, hints_on: &str) {
        let mut state = lock(&self.state);
        if state.task.as_ref().is_some_and(|present| present.number == task) {
            let new = || Open { hints_on: String::new(), on: HashSet::new() };
            state.open.entry(conn).or_insert_with(new).hints_on = hints_on.to_owned();
        }
    }

    /// From now on they do not.
    pub(crate) fn closed(&self, conn: u64) {
        let _closed = lock(&self.state).open.remove(&conn);
    }

    /// Which of these channels a connection has to subscribe to: those that are not on, and those
    /// that somebody waits for. And which it has no need of any more: they are off from now on.
    pub(crate) fn changes(
        &self,
        conn: Option<u64>,
        channels: &HashSet<String>,
    ) -> (Vec<String>, Vec<String>) {
        let mut state = lock(&self.state);
        let awaited: HashSet<String> = {
            let awaited = state.mailboxes.values().filter(|mailbox| mailbox.request.is_some());
            awaited.map(|mailbox| mailbox.told_on.clone()).collect()
        };
        let Some(open) = conn.and_then(|conn| state.open.get_mut(&conn)) else {
            return (channels.iter().cloned().collect(), Vec::new());
        };
        let is_missing =
            |channel: &&String| !open.on.contains(*channel) || awaited.contains(*channel);
        let missing = channels.iter().filter(is_missing).cloned().collect();
        let excess: Vec<String> =
            open.on.extract_if(|channel| !channels.contains(channel)).collect();
        if excess.contains(&open.hints_on) {
            state.hints_are_on = false;
        }
        (missing, excess)
    }

    /// Tells those who wait for a channel, or for any, that it can't be heard.
    pub(crate) fn refuse(&self, channel: Option<&str>, error: &Error) {
        let mut state = lock(&self.state);
        for mailbox in state.mailboxes.values_mut() {
            if channel.is_none_or(|channel| channel == mailbox.told_on)
                && let Some(request) = mailbox.request.take()
            {
                let _gone = request.done.send(Err(error.clone()));
            }
        }
    }

    /// Hints are heard from all servers that can be heard. Whatever was told before is missed.
    pub(crate) fn hints_are_on(&self) {
        lock(&self.state).hints_are_on = true;
        self.hints.send(&[Hint::Any]);
    }

    /// A server pushed something. Called in the order of the pushes, and never waits.
    pub(crate) fn pushed(&self, conn: u64, push: &PushInfo) {
        match (&push.kind, push.data.as_slice()) {
            (PushKind::Message | PushKind::SMessage, [channel, Value::BulkString(message)]) => {
                self.heard(conn, &text(channel), message);
            }
            (PushKind::Subscribe | PushKind::SSubscribe, [channel, ..]) => {
                self.is_on(conn, &text(channel));
            }
            (PushKind::Unsubscribe | PushKind::SUnsubscribe, [channel, ..]) => {
                let mut state = lock(&self.state);
                let open = state.open.get_mut(&conn);
                // Otherwise we wanted it so.
                if open.is_some_and(|open| open.on.remove(&text(channel))) {
                    state.tell(Event::Unsubscribed(conn));
                }
            }
            (PushKind::Disconnection, _) => lock(&self.state).tell(Event::Lost(conn)),
            _ => {}
        }
    }

    fn heard(&self, conn: u64, channel: &str, message: &[u8]) {
        let mut wakers = Vec::new();
        {
            let mut state = lock(&self.state);
            let Some(open) = state.open.get(&conn) else { return };
            if open.hints_on == channel {
                drop(state);
                let hint = self.names.hint(message);
                return self.hints.send(hint.as_slice());
            }
            for mailbox in state.mailboxes.values_mut().filter(|one| one.told_on == channel) {
                wakers.extend(mailbox.put_message(message));
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    /// A channel is on: those who wait for it are told, and others that they have missed something
    /// if it was not on before.
    fn is_on(&self, conn: u64, channel: &str) {
        let mut wakers = Vec::new();
        {
            let mut state = lock(&self.state);
            let Some(open) = state.open.get_mut(&conn) else { return };
            let is_new = open.on.insert(channel.to_owned());
            let is_hints = open.hints_on == channel;
            if is_new && is_hints {
                state.tell(Event::HintsOn);
            }
            for mailbox in state.mailboxes.values_mut().filter(|one| one.told_on == channel) {
                match mailbox.request.take() {
                    Some(request) => drop(request.done.send(Ok(()))),
                    None if is_new => wakers.extend(mailbox.put(Arrival::Gap)),
                    None => {}
                }
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl State {
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn tell(&self, event: Event) {
        if let Some(task) = &self.task {
            let _gone = task.events.send(event);
        }
    }
}

/// Wakes a task from its own runtime: on the thread of a driver nobody else's code runs (L2).
struct RemoteWaker {
    runtime: Handle,
    waker: Waker,
}

impl Wake for RemoteWaker {
    fn wake(self: Arc<RemoteWaker>) {
        let waker = self.waker.clone();
        drop(self.runtime.spawn(async move { waker.wake() }));
    }
}
