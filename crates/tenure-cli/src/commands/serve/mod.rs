//! `tenure serve`: takes part, and answers over HTTP who leads.

mod args;
pub(super) mod metrics;
mod systemd;

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tenure::{Candidate, Election, Event, Name, Reason};
use tenure_http::{Listen, Listener, Server, Sidecar, Token};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

pub(crate) use self::args::{ServeArgs, ServeOptions, token_from_environment};
use super::{Narration, OPEN_AGAIN, in_time, note_default_store, open_patiently, pause};
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use crate::signals::{Signals, Told};
use crate::store::{Opened, StoreChoice};
use crate::systemd::Notifier;

/// How often what the recorder has gathered is put in order.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Serves until a signal asks to end.
pub(crate) async fn run(
    options: &ServeOptions,
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    let notifier = Notifier::from_env();
    raise_descriptors();
    // Before anything is held, so that a port in use costs nothing.
    let listeners = listen(options)?;
    let recorder = metrics::install()?;
    let mut signals = Signals::of_candidate(out)?;
    note_default_store(choice, out);
    let opened = tokio::select! {
        opened = open_patiently(choice, out) => opened?,
        _ = signals.end() => return Ok(Exit::DONE),
    };
    let mut narration = Narration::new();
    let elections = tokio::select! {
        elections = elections(options, &opened, out) => elections?,
        _ = signals.end() => return Ok(Exit::DONE),
    };
    let mut all = Vec::with_capacity(elections.len());
    let mut builder = Sidecar::builder();
    for (election, _) in &elections {
        let (name, at_once) = (election.name().clone(), options.candidacy.at_once);
        narration.follow(election, out, move |event| {
            sentence(event, at_once).map(|sentence| format!("{name}: {sentence}"))
        });
        builder = builder.election(election.clone());
        all.push(election.clone());
    }
    let at: Vec<&Listen> = listeners.iter().map(Listener::at).collect();
    builder = builder.token_for_reading(options.guards_reading(&at));
    if let Some(token) = &options.token {
        builder = builder.token(token.clone());
    }
    for host in &options.hosts {
        builder = builder.host(host.clone());
    }
    let handle = recorder.clone();
    let sidecar = builder.metrics(move || handle.render()).build()?;
    for at in at {
        out.say(&format!("listening on {at}"));
    }
    let (end, ended) = oneshot::channel::<()>();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            pause(UPKEEP_EVERY).await;
            recorder.run_upkeep();
        }
    });
    let mut server = JoinSet::new();
    let serving = Server::new(sidecar.clone());
    server.spawn(serving.run(listeners, async {
        let _gone = ended.await;
    }));
    let exit = take_part(options, elections, &sidecar, &notifier, &mut signals, out).await;
    drop(end);
    while server.join_next().await.is_some() {}
    drop(all);
    drop(sidecar);
    narration.finish().await;
    exit
}

/// Lets this process have as many descriptors as it may: the usual 1,024 are fewer than the
/// connections that it takes. It has no children that would inherit that.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "the limit on descriptors stays as it is");
    }
}

/// What people are told; also for how long a lease is kept for those who were told 200 before.
fn sentence(event: &Event, at_once: bool) -> Option<String> {
    match event {
        Event::Draining { term, reason: Reason::Resigned | Reason::Asked, left } if !at_once => {
            let left = output::show_short(*left);
            Some(format!(
                "leading as term {term} no more; if a 200 told somebody so, the lease is kept \
                 until they POST done, at most for {left}"
            ))
        }
        event => output::sentence(event),
    }
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

/// All elections, each with whether it is taken part in.
async fn elections(
    options: &ServeOptions,
    opened: &Opened,
    out: &Output,
) -> Result<Vec<(Election, bool)>, Failure> {
    let candidacy = &options.candidacy;
    let mut builder = Candidate::builder(opened.store.clone());
    if let Some(label) = &candidacy.label {
        builder = builder.label(label);
    }
    let candidate = builder.build()?;
    let mut observed = options.observed.clone();
    if options.elections.is_empty() && observed.is_empty() {
        observed = known(opened, out).await?;
        observed.retain(|name| match args::check_reachable(name) {
            Ok(()) => true,
            Err(failure) => {
                out.warn(&failure.error.to_string());
                false
            }
        });
    }
    let wanted = options.elections.iter().map(|name| (name, true));
    let wanted = wanted.chain(observed.iter().map(|name| (name, false)));
    let mut elections = Vec::new();
    for (name, takes_part) in wanted {
        let timing = candidacy.timing;
        let mut builder = candidate
            .election(name.as_str())
            .ttl(timing.ttl)
            .renew_every(timing.renew_every)
            .margin(timing.margin)
            .drain(timing.drain)
            .per_election_metrics(options.metrics_per_election);
        if let Some(metadata) = &candidacy.metadata {
            builder = builder.metadata(metadata.as_str());
        }
        if candidacy.at_once {
            builder = builder.at_once();
        }
        elections.push((builder.build()?, takes_part));
    }
    Ok(elections)
}

/// All elections that the store knows of, as soon as it tells them: one that is away at the start
/// is waited for, as it is later.
async fn known(opened: &Opened, out: &Output) -> Result<Vec<Name>, Failure> {
    let mut said = false;
    loop {
        match in_time(opened.elections()).await.flatten() {
            Err(error) if error.is_retryable() => {
                if !said {
                    out.warn(&format!(
                        "nothing is served yet, because the store does not tell its elections; \
                         trying again: {error}"
                    ));
                    said = true;
                }
                pause(OPEN_AGAIN).await;
            }
            known => return Ok(known?),
        }
    }
}

/// Takes part until a signal asks to end: then 503 first, then the leases are given back.
async fn take_part(
    options: &ServeOptions,
    elections: Vec<(Election, bool)>,
    sidecar: &Sidecar,
    notifier: &Notifier,
    signals: &mut Signals,
    out: &Output,
) -> Result<Exit, Failure> {
    let mut starting = JoinSet::new();
    for (election, takes_part) in &elections {
        let (election, takes_part) = (election.clone(), *takes_part);
        starting.spawn(async move {
            if takes_part { election.start().await } else { election.observe().await }
        });
    }
    let elections: Vec<Election> = elections.into_iter().map(|(election, _)| election).collect();
    let mut ready = false;
    loop {
        tokio::select! {
            Some(started) = starting.join_next() => match started {
                Ok(started) => started?,
                Err(error) => return Err(anyhow::Error::from(error).into()),
            },
            told = signals.next() => match told {
                Told::End(_) => break,
                Told::Pass(signal) if signal == crate::process::Signal::HUP => {
                    read_token_again(options, sidecar, out);
                }
                Told::Pass(_) => {}
            },
            () = notifier.alive(&elections) => {}
        }
        if !ready && starting.is_empty() {
            ready = true;
            notifier.tell("READY=1\nSTATUS=answering who leads");
        }
    }
    notifier.tell("STOPPING=1\nSTATUS=giving leadership up");
    sidecar.start_draining();
    let giving_up = async {
        pause(options.grace).await;
        let mut stopping = JoinSet::new();
        for election in elections {
            stopping.spawn(async move { election.stop().await });
        }
        while let Some(stopped) = stopping.join_next().await {
            if let Ok(Err(error)) = stopped {
                out.warn(&error.to_string());
            }
        }
    };
    tokio::select! {
        () = giving_up => {}
        _ = signals.end() => {}
    }
    Ok(Exit::DONE)
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
