//! Where the messages of one election come in, on the user's own runtime.
//!
//! The driver orders it to listen before it tells anybody of a new reign (M1). While the reign is
//! on, it hands arrivals to one task per channel. It never waits for one of them.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;

use tenure_core::{Arrival, Error, ErrorKind, Inbox, Store, Term, is_json};
use tokio::sync::{Notify, mpsc};
use tokio::task::yield_now;

use super::meter::MailMeter;
use super::work::{Limits, Worker, handle_notices, handle_posts, watch_backlog};
use super::{Handlers, carrier, count};
use crate::command::{Command, WeakCommands};
use crate::pulse::Pulse;
use crate::runtime::{Spawner, TaskEnded, TaskSet};
use crate::sabotage::Fault;
use crate::shared::{Phase, Reign, Shared};

/// How many notices wait for a handler; more are missed.
const NOTICES_MAX: usize = 1024;
/// How many arrivals are handed on before others on this runtime get their turn.
const ARRIVALS_AT_ONCE: u32 = 64;

/// What the driver wants.
pub(crate) enum Order {
    /// Listen on behalf of this term, and say when that is so.
    Listen(Term),
    /// The reign has begun.
    Lead(Arc<Reign>),
    /// There is no such reign after all.
    Forget,
}

pub(crate) struct Dispatcher {
    store: Arc<dyn Store>,
    shared: Arc<Shared>,
    handlers: Handlers,
    orders: mpsc::UnboundedReceiver<Order>,
    commands: WeakCommands,
    id: u64,
    pulse: Arc<Pulse>,
    meter: Arc<MailMeter>,
    /// The handlers of this reign, and of those before it that have not ended.
    workers: TaskSet<()>,
}

/// The tasks of one reign.
struct HandlerTasks {
    notices: HashMap<String, mpsc::Sender<String>>,
    /// Rung when something was posted.
    posts: Vec<Arc<Notify>>,
}

impl Dispatcher {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        shared: Arc<Shared>,
        handlers: Handlers,
        commands: WeakCommands,
        id: u64,
        tasks: Spawner,
    ) -> (Dispatcher, mpsc::UnboundedSender<Order>) {
        let (sender, orders) = mpsc::unbounded_channel();
        let pulse = shared.pulses.listen();
        let (meter, workers) = (Arc::new(MailMeter::new(&shared)), TaskSet::new(tasks));
        (
            Dispatcher { store, shared, handlers, orders, commands, id, pulse, meter, workers },
            sender,
        )
    }

    /// Takes orders until the election is gone.
    pub(crate) async fn run(mut self) {
        let mut inbox = None;
        let mut next = None;
        loop {
            let order = match next.take() {
                Some(order) => Some(order),
                None => self.order().await,
            };
            match order {
                None => return,
                Some(Order::Forget) => inbox = None,
                Some(Order::Listen(term)) => (inbox, next) = self.listen(term).await,
                Some(Order::Lead(reign)) => {
                    if let Some((term, open)) = inbox.take()
                        && term == reign.term
                    {
                        self.serve(&reign, open).await;
                    }
                }
            }
        }
    }

    async fn order(&mut self) -> Option<Order> {
        let pulse = self.pulse.clone();
        loop {
            tokio::select! {
                biased;
                never = pulse.answer() => match never {},
                order = self.orders.recv() => return order,
                Some((_, ended)) = self.workers.next() => worker_ended(&ended),
            }
        }
    }

    /// Opens the inbox, unless another order comes first.
    async fn listen(&mut self, term: Term) -> (Option<(Term, Box<dyn Inbox>)>, Option<Order>) {
        let (store, pulse) = (self.store.clone(), self.pulse.clone());
        let names: Vec<String> = self.handlers.names().cloned().collect();
        let opening = async { carrier(&*store)?.listen(&self.shared.election, term, &names).await };
        let opened = tokio::select! {
            biased;
            never = pulse.answer() => match never {},
            order = self.orders.recv() => return (None, order),
            opened = opening => opened,
        };
        let (inbox, done) = match opened {
            Ok(inbox) => (Some((term, inbox)), Ok(())),
            Err(error) => (None, Err(error)),
        };
        self.command(Command::Listening { id: self.id, term, done });
        (inbox, None)
    }

    /// Hands on what arrives until the reign is stepped down from.
    async fn serve(&mut self, reign: &Arc<Reign>, mut inbox: Box<dyn Inbox>) {
        let tasks = self.start_handlers(reign);
        let pulse = self.pulse.clone();
        let (mut hears, mut in_a_row) = (true, 0);
        loop {
            tokio::select! {
                // Arrivals come last: a flood of them keeps nothing else from being noticed.
                biased;
                never = pulse.answer() => match never {},
                _ = reign.phase.wait_for(|phase| *phase != Phase::Leading) => return,
                Some((_, ended)) = self.workers.next() => worker_ended(&ended),
                arrival = poll_fn(|cx| inbox.poll_next(cx)), if hears => match arrival {
                    Some(arrival) => self.arrived(arrival, &tasks),
                    None => hears = self.deaf(reign.term),
                },
            }
            in_a_row += 1;
            if in_a_row >= ARRIVALS_AT_ONCE {
                in_a_row = 0;
                yield_now().await;
            }
        }
    }

    fn start_handlers(&mut self, reign: &Arc<Reign>) -> HandlerTasks {
        let mut tasks = HandlerTasks { notices: HashMap::new(), posts: Vec::new() };
        let shared = &self.shared;
        let pulse = || match shared.faults.has(Fault::HandlerBellElsewhere) {
            true => Arc::new(Pulse::new()),
            false => shared.pulses.listen(),
        };
        let worker = |channel: &String| Worker {
            shared: self.shared.clone(),
            reign: reign.clone(),
            commands: self.commands.clone(),
            id: self.id,
            channel: channel.clone(),
            meter: self.meter.clone(),
        };
        for (channel, handler) in &self.handlers.notices {
            let (sender, notices) = mpsc::channel(NOTICES_MAX);
            tasks.notices.insert(channel.clone(), sender);
            let work = handle_notices(worker(channel), handler.clone(), notices);
            self.workers.spawn(listening(pulse(), work));
        }
        for (channel, handler) in &self.handlers.posts {
            let bell = Arc::new(Notify::new());
            tasks.posts.push(bell.clone());
            let limits = Limits { tries: self.handlers.tries(), timeout: self.handlers.timeout() };
            let store = self.store.clone();
            let work = handle_posts(worker(channel), handler.clone(), store, bell, limits);
            self.workers.spawn(listening(pulse(), work));
        }
        if !self.handlers.posts.is_empty() {
            self.workers.spawn(watch_backlog(worker(&String::new()), self.store.clone()));
        }
        tasks
    }

    fn arrived(&self, arrival: Arrival, tasks: &HandlerTasks) {
        let (election, counts) = (self.shared.election.as_str(), &self.shared.counts);
        match arrival {
            Arrival::Notice { channel, payload } => {
                let Some(handler) = tasks.notices.get(&channel) else { return };
                if !is_json(&payload) {
                    count(&counts.skipped);
                    self.meter.dropped();
                    let bytes = payload.len();
                    tracing::warn!(election, channel, bytes, "a notice is not JSON; skipped");
                } else if handler.try_send(payload).is_err() {
                    count(&counts.missed);
                    self.meter.dropped();
                    tracing::warn!(
                        election,
                        channel,
                        "notices come faster than they are handled; one was left out"
                    );
                }
            }
            Arrival::Gap => {
                count(&counts.missed);
                self.meter.dropped();
                tracing::warn!(election, "listening was interrupted; notices may be missing");
                tasks.posts.iter().for_each(|bell| bell.notify_one());
            }
            _ => tasks.posts.iter().for_each(|bell| bell.notify_one()),
        }
    }

    /// The inbox has ended although the reign has not: a leader that hears nothing resigns.
    fn deaf(&self, term: Term) -> bool {
        let election = self.shared.election.as_str();
        tracing::error!(election, %term, "listening has ended for good; resigning");
        self.command(Command::Resign { id: self.id, term: Some(term), done: None });
        false
    }

    fn command(&self, command: Command) {
        if let Some(commands) = self.commands.upgrade() {
            let _gone = commands.send(command);
        }
    }
}

/// Answers the bell from the task that runs the handlers: if one of them blocks it, nobody does,
/// and the lease is not kept alive for it. The dispatcher itself is well then, and answers its own.
async fn listening(pulse: Arc<Pulse>, work: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        never = pulse.answer() => match never {},
        () = work => {}
    }
}

/// Handlers are kept from panicking; a worker that does all the same is a bug worth a line.
fn worker_ended(ended: &Result<(), TaskEnded>) {
    if let Err(error) = ended {
        tracing::error!(%error, "the task of a channel has ended; report this as a bug");
    }
}

/// What a candidate says that could not listen in time.
pub(crate) fn too_slow(waited: std::time::Duration) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "listening for messages took more than {}; is the store slow, or the program's \
             runtime blocked?",
            tenure_core::show_duration(waited)
        ),
    )
}
