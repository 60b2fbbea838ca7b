//! The elections that are served: those that were named, or all that the store knows of.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use tenure::{Candidate, Election, Event, Name, Reason};
use tenure_core::sync::lock;
use tenure_http::Sidecar;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::super::Narration;
use super::args::{ServeOptions, check_reachable};
use super::asking::News;
use crate::exit::Failure;
use crate::options::Candidacy;
use crate::output::{self, Output};

/// The elections, and whoever takes part in them.
pub(super) struct Roster {
    wanted: Vec<(Name, bool)>,
    candidacy: Candidacy,
    metrics_per_election: bool,
    sidecar: Sidecar,
    candidate: Option<Candidate>,
    elections: Vec<Election>,
    starting: JoinSet<Result<(), tenure::Error>>,
    /// Elections that can't be served, and whose users were told so.
    refused: HashSet<Name>,
    /// Elections whose store is away. It is one store, so that is said once.
    lost: Arc<Mutex<HashSet<Name>>>,
    /// All elections are known, and the store was asked about each.
    complete: bool,
    discovers: bool,
    shown: watch::Sender<Vec<Election>>,
    narration: Narration,
    out: Output,
}

impl Roster {
    pub(super) fn new(
        options: &ServeOptions,
        sidecar: Sidecar,
        shown: watch::Sender<Vec<Election>>,
        out: &Output,
    ) -> Roster {
        let taken = options.elections.iter().map(|name| (name.clone(), true));
        let watched = options.observed.iter().map(|name| (name.clone(), false));
        Roster {
            wanted: taken.chain(watched).collect(),
            candidacy: options.candidacy.clone(),
            metrics_per_election: options.metrics_per_election,
            sidecar,
            candidate: None,
            elections: Vec::new(),
            starting: JoinSet::new(),
            refused: HashSet::new(),
            lost: Arc::default(),
            complete: false,
            discovers: options.discovers(),
            shown,
            narration: Narration::new(),
            out: out.clone(),
        }
    }

    pub(super) fn sidecar(&self) -> &Sidecar {
        &self.sidecar
    }

    /// Whether everything that is to be served is.
    pub(super) fn is_complete(&self) -> bool {
        self.complete && self.starting.is_empty()
    }

    /// Takes in what the store has told.
    pub(super) fn take(&mut self, news: News) -> Result<(), Failure> {
        match news {
            News::Waiting => self.sidecar.set_waiting(true),
            News::Opened(opened) => {
                let mut builder = Candidate::builder(opened.store.clone());
                if let Some(label) = &self.candidacy.label {
                    builder = builder.label(label);
                }
                let candidate = builder.build()?;
                for (name, takes_part) in std::mem::take(&mut self.wanted) {
                    self.add(&candidate, &name, takes_part)?;
                }
                self.candidate = Some(candidate);
                if !self.discovers {
                    self.complete_now();
                }
            }
            News::Listed(names) => self.watch_all(names)?,
        }
        Ok(())
    }

    /// The next election that has been started. Pending if there is none.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn started(&mut self) -> Result<(), Failure> {
        match self.starting.join_next().await {
            Some(Ok(started)) => Ok(started?),
            Some(Err(error)) => Err(anyhow::Error::from(error).into()),
            None => std::future::pending().await,
        }
    }

    /// Gives up all that is led.
    pub(super) async fn stop(&mut self) {
        let mut stopping = JoinSet::new();
        for election in std::mem::take(&mut self.elections) {
            stopping.spawn(async move { election.stop().await });
        }
        while let Some(stopped) = stopping.join_next().await {
            if let Ok(Err(error)) = stopped {
                self.out.warn(&error.to_string());
            }
        }
    }

    /// What is left to be told, once all handles are gone.
    pub(super) fn into_narration(self) -> Narration {
        self.narration
    }

    /// Watches what is new, and no more what is gone.
    fn watch_all(&mut self, names: Vec<Name>) -> Result<(), Failure> {
        let Some(candidate) = self.candidate.clone() else { return Ok(()) };
        let known: HashSet<Name> = self.elections.iter().map(|e| e.name().clone()).collect();
        let present: HashSet<&Name> = names.iter().collect();
        let (stay, gone) = std::mem::take(&mut self.elections)
            .into_iter()
            .partition(|election: &Election| present.contains(election.name()));
        self.elections = stay;
        for election in gone {
            self.sidecar.forget(election.name());
            lock(&self.lost).remove(election.name());
        }
        for name in names.iter().filter(|name| !known.contains(*name)) {
            match check_reachable(name) {
                Ok(()) => self.add(&candidate, name, false)?,
                Err(failure) if self.refused.insert(name.clone()) => {
                    self.out.warn(&failure.error.to_string());
                }
                Err(_) => {}
            }
        }
        self.shown.send_replace(self.elections.clone());
        self.complete_now();
        Ok(())
    }

    fn complete_now(&mut self) {
        self.complete = true;
        self.shown.send_replace(self.elections.clone());
        self.sidecar.set_waiting(false);
    }

    fn add(&mut self, candidate: &Candidate, name: &Name, takes_part: bool) -> Result<(), Failure> {
        let Candidacy { timing, metadata, at_once, .. } = &self.candidacy;
        let mut builder = candidate
            .election(name.as_str())
            .ttl(timing.ttl)
            .renew_every(timing.renew_every)
            .margin(timing.margin)
            .drain(timing.drain)
            .per_election_metrics(self.metrics_per_election);
        if let Some(metadata) = metadata {
            builder = builder.metadata(metadata.as_str());
        }
        if *at_once {
            builder = builder.at_once();
        }
        let election = builder.build()?;
        let (at_once, name, lost) = (*at_once, name.clone(), self.lost.clone());
        self.narration.follow(&election, &self.out, move |event| {
            let said = sentence(event, at_once)?;
            match event {
                Event::StoreLost { .. } => {
                    let mut lost = lock(&lost);
                    let first = lost.is_empty();
                    lost.insert(name.clone());
                    first.then_some(said)
                }
                Event::StoreBack => {
                    let mut lost = lock(&lost);
                    (lost.remove(&name) && lost.is_empty()).then_some(said)
                }
                _ => Some(format!("{name}: {said}")),
            }
        });
        self.sidecar.watch(election.clone())?;
        self.elections.push(election.clone());
        self.starting.spawn(async move {
            if takes_part { election.start().await } else { election.observe().await }
        });
        Ok(())
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
