//! What others see of a candidate beside its election: systemd, and whoever wants its metrics.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use tenure::{Election, Event};
use tenure_http::{Limits, Listener, Server, Sidecar};
use tokio::task::JoinSet;

use super::pause;
use super::serve::{descriptors, metrics};
use crate::command_args::Observe;
use crate::exit::Failure;
use crate::output::{self, Output};
use crate::systemd::Notifier;

/// How often what the recorder has gathered is put in order.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Shows a candidate until it is dropped.
pub(super) struct Presence {
    notifier: Arc<Notifier>,
    observed: Option<(Listener, PrometheusHandle, Observe)>,
    tasks: JoinSet<()>,
}

impl Presence {
    /// Before anything is held, so that a port in use costs nothing.
    pub(super) fn new(observe: Option<&Observe>) -> Result<Presence, Failure> {
        let observed = match observe {
            Some(observe) => {
                let listener = Listener::bind(&observe.listen)?;
                Some((listener, metrics::install()?, observe.clone()))
            }
            None => None,
        };
        let notifier = Arc::new(Notifier::from_env());
        Ok(Presence { notifier, observed, tasks: JoinSet::new() })
    }

    /// From now on, before the election is started.
    pub(super) fn show(&mut self, election: &Election, out: &Output) -> Result<(), Failure> {
        self.tasks.spawn(tell(self.notifier.clone(), election.clone()));
        let (notifier, alive) = (self.notifier.clone(), [election.clone()]);
        self.tasks.spawn(async move {
            loop {
                notifier.alive(&alive).await;
            }
        });
        let Some((listener, recorder, observe)) = self.observed.take() else { return Ok(()) };
        let guarded = observe.token.is_some() && !observe.listen.is_private();
        let mut builder =
            Sidecar::builder().election(election.clone()).health_only().token_for_reading(guarded);
        if let Some(token) = observe.token {
            builder = builder.token(token);
        }
        let handle = recorder.clone();
        let sidecar = builder.metrics(move || handle.render()).build()?;
        out.say(&format!("metrics and health at {}", listener.at()));
        let limits = Limits::default().within_descriptors(descriptors());
        let server = Server::new(sidecar).limits(limits);
        self.tasks.spawn(server.run(vec![listener], pending()));
        self.tasks.spawn(async move {
            loop {
                pause(UPKEEP_EVERY).await;
                recorder.run_upkeep();
            }
        });
        Ok(())
    }

    /// The process is about to end.
    pub(super) fn stopping(&self) {
        self.notifier.tell("STOPPING=1\nSTATUS=giving leadership up");
    }
}

/// Tells systemd that it takes part, with the first answer of the store, and then how it stands. A
/// store that is away at the start is no reason to be ended: it is tried again.
async fn tell(notifier: Arc<Notifier>, election: Election) {
    let mut events = election.peek_events();
    // The events would go on for as long as somebody has the election.
    drop(election);
    let mut ready = "READY=1\n";
    while let Some((_, event)) = events.next_at().await {
        let status = output::sentence(&event);
        if let (false, Some(status)) = (matches!(event, Event::Campaigning), status) {
            let status = status.replace('\n', " ");
            notifier.tell(&format!("{ready}STATUS={status}"));
            ready = "";
        }
    }
}
