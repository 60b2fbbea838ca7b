//! `tenure serve`: takes part, and answers over HTTP who leads.

mod args;
mod asking;
pub(super) mod metrics;
mod roster;
mod systemd;

use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tenure::Election;
use tenure_http::{Limits, Listen, Listener, Server, Sidecar, Token};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

pub(crate) use self::args::{ServeArgs, ServeOptions, token_from_environment};
use self::asking::{Asking, News};
use self::roster::Roster;
use super::{note_default_store, pause};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::signals::{Signals, Told};
use crate::store::StoreChoice;
use crate::systemd::Notifier;

/// How long the store has to answer before it is said where this process listens.
const FIRST_ANSWER: Duration = Duration::from_secs(1);
/// How often what the recorder has gathered is put in order.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Serves until a signal asks to end.
pub(crate) async fn run(
    options: &ServeOptions,
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    let notifier = Arc::new(Notifier::from_env());
    let limits = Limits::default().within_descriptors(raise_descriptors());
    // Before anything is held, so that a port in use costs nothing.
    let listeners = listen(options)?;
    let recorder = metrics::install()?;
    let mut signals = Signals::of_candidate(out)?;
    note_default_store(choice, out);
    let mut asking = Asking::start(choice, options.discovers(), out);
    // What is wrong with the store is told before anybody is told where to ask.
    let first = tokio::select! {
        first = asking.next() => Some(first?),
        () = pause(FIRST_ANSWER) => None,
        _ = signals.end() => return Ok(Exit::DONE),
    };
    let at: Vec<&Listen> = listeners.iter().map(Listener::at).collect();
    let sidecar = sidecar(options, &at, recorder.clone())?;
    for at in at {
        out.say(&format!("listening on {at}"));
    }
    let (end, ended) = oneshot::channel::<()>();
    let mut server = JoinSet::new();
    server.spawn(Server::new(sidecar.clone()).limits(limits).run(listeners, async {
        let _gone = ended.await;
    }));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            pause(UPKEEP_EVERY).await;
            recorder.run_upkeep();
        }
    });
    let (shown, alive) = watch::channel(Vec::new());
    tasks.spawn(tell_alive(notifier.clone(), alive));
    let mut roster = Roster::new(options, sidecar.clone(), shown, out);
    let exit = take_part(options, &mut roster, (first, asking), &notifier, &mut signals, out).await;
    drop(end);
    while server.join_next().await.is_some() {}
    tasks.shutdown().await;
    let narration = roster.into_narration();
    drop(sidecar);
    narration.finish().await;
    exit
}

/// What answers; it knows of no election yet.
fn sidecar(
    options: &ServeOptions,
    at: &[&Listen],
    recorder: PrometheusHandle,
) -> Result<Sidecar, Failure> {
    let mut builder = Sidecar::builder().waiting().token_for_reading(options.guards_reading(at));
    if let Some(token) = &options.token {
        builder = builder.token(token.clone());
    }
    for host in &options.hosts {
        builder = builder.host(host.clone());
    }
    Ok(builder.metrics(move || recorder.render()).build()?)
}

/// Gives systemd signs of life, whatever else goes on.
async fn tell_alive(notifier: Arc<Notifier>, elections: watch::Receiver<Vec<Election>>) {
    loop {
        let elections = elections.borrow().clone();
        notifier.alive(&elections).await;
    }
}

/// Lets this process have as many descriptors as it may: the usual 1,024 are fewer than the
/// connections that it takes. It has no children that would inherit that. Tells how many it has.
fn raise_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "the limit on descriptors stays as it is");
    }
    descriptors()
}

/// How many descriptors this process may have.
pub(super) fn descriptors() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The sockets of systemd if it opened any, else those that were asked for.
fn listen(options: &ServeOptions) -> Result<Vec<Listener>, Failure> {
    let given = systemd::sockets()?;
    if !given.is_empty() {
        for listener in &given {
            options.check_reach(listener.at())?;
        }
        return Ok(given);
    }
    let mut listeners = Vec::with_capacity(options.listen.len());
    for at in &options.listen {
        listeners.push(Listener::bind(at)?);
    }
    Ok(listeners)
}

/// Takes part until a signal asks to end: then 503 first, then the leases are given back.
async fn take_part(
    options: &ServeOptions,
    roster: &mut Roster,
    (first, mut asking): (Option<News>, Asking),
    notifier: &Notifier,
    signals: &mut Signals,
    out: &Output,
) -> Result<Exit, Failure> {
    let mut ready = Ready { notifier, told: false };
    if let Some(first) = first {
        ready.hear(&first);
        roster.take(first)?;
    }
    loop {
        tokio::select! {
            started = roster.started() => {
                started?;
                if roster.is_complete() {
                    ready.tell("answering who leads");
                }
            },
            told = signals.next() => match told {
                Told::End(_) => break,
                Told::Pass(signal) if signal == crate::process::Signal::HUP => {
                    read_token_again(options, roster.sidecar(), out);
                }
                Told::Pass(_) => {}
            },
            news = asking.next() => {
                let news = news?;
                ready.hear(&news);
                roster.take(news)?;
            },
        }
    }
    drop(asking);
    notifier.tell("STOPPING=1\nSTATUS=giving leadership up");
    roster.sidecar().start_draining();
    let giving_up = async {
        pause(options.grace).await;
        roster.stop().await;
    };
    tokio::select! {
        () = giving_up => {}
        _ = signals.end() => {}
    }
    Ok(Exit::DONE)
}

/// Tells systemd that this process answers: when it has taken its part, or when the store keeps it
/// waiting, which is no reason to be ended.
struct Ready<'a> {
    notifier: &'a Notifier,
    told: bool,
}

impl Ready<'_> {
    fn hear(&mut self, news: &News) {
        match news {
            News::Waiting => self.tell("waiting for the store"),
            News::Listed(names) if names.is_empty() => self.tell("answering who leads"),
            News::Opened(_) | News::Listed(_) => {}
        }
    }

    fn tell(&mut self, status: &str) {
        let ready = if std::mem::replace(&mut self.told, true) { "" } else { "READY=1\n" };
        self.notifier.tell(&format!("{ready}STATUS={status}"));
    }
}

/// After a HUP. A file that can't be used changes nothing.
fn read_token_again(options: &ServeOptions, sidecar: &Sidecar, out: &Output) {
    let Some(path) = &options.token_file else { return };
    match Token::from_file(path) {
        Ok(token) => {
            sidecar.set_token(token);
            out.say("the token was read again");
        }
        Err(error) => out.warn(&format!("the token stays as it was: {error}")),
    }
}
