//! Everything called at any time, from several tasks at once.

use std::sync::Arc;
use std::time::Duration;

use tenure::{Candidate, Election, Error, ErrorKind, Tenure, Time};

use super::Proc;
use super::callbacks;
use crate::library::host::in_child;
use crate::library::tail::ready;

/// Starts, stops, resigns, asks and observes at random.
pub(crate) async fn meddling(proc: Arc<Proc>, election: Election) {
    loop {
        proc.sleep(proc.span(proc.timing.ttl * 2)).await;
        if proc.is_calm() {
            let _fails_if_useless = proc.call("start", election.start()).await;
            proc.sleep(proc.timing.ttl).await;
            continue;
        }
        match proc.pick(10) {
            0 => drop(proc.call("stop", election.stop()).await),
            1 => drop(proc.call("resign", election.resign()).await),
            2 => drop(proc.call("observe", election.observe()).await),
            3 => drop(proc.call("ask_to_resign", election.ask_to_resign(None)).await),
            4 => ask_all(&proc, &election).await,
            5 => campaign_and_stop(&proc, &election).await,
            6 => {
                // Dropped on the way: that withdraws.
                tokio::select! {
                    biased;
                    led = election.campaign() => drop(led),
                    () = proc.nap() => {}
                }
            }
            7 => proc.call("driver_answers", election.driver_answers()).await,
            _ => drop(proc.call("start", election.start()).await),
        }
    }
}

/// Several questions at once: they go in as few calls as the contract allows.
async fn ask_all(proc: &Arc<Proc>, election: &Election) {
    let asks = async {
        let _answers = tokio::join!(
            biased;
            election.current_leader(),
            election.ask_to_resign(None),
            election.current_leader(),
        );
    };
    proc.call("current_leader", asks).await;
}

/// A stop ends a campaign, unless it has led to a reign before.
async fn campaign_and_stop(proc: &Arc<Proc>, election: &Election) {
    let campaign = async { drop(election.campaign().await) };
    let stop = async {
        proc.nap().await;
        drop(election.stop().await);
    };
    let both = async { tokio::join!(biased; campaign, stop) };
    proc.call("campaign and stop", both).await;
}

/// Builds an election, uses it, drops it, and builds one of the same name at once.
pub(crate) async fn churning(proc: Arc<Proc>, candidate: Candidate) {
    loop {
        let mut builder = candidate.election("churn");
        let with_lost = proc.one_in(2);
        if with_lost {
            let own = callbacks::Own::default();
            builder = callbacks::add(&proc, "churn", builder.ttl(proc.timing.ttl), true, &own);
        }
        let election = match builder.ttl(proc.timing.ttl).build() {
            Ok(election) => election,
            Err(error) => return proc.broken("name", error.to_string()),
        };
        let _fails_if_useless = proc.call("start", election.start()).await;
        for _ in 0..proc.pick(6) {
            if let Some(term) = election.term() {
                proc.effect("churn", term);
            }
            proc.nap().await;
        }
        match proc.pick(4) {
            0 => drop(proc.call("stop", election.stop()).await),
            1 => {
                let tenure = tokio::select! {
                    biased;
                    led = election.campaign() => led.ok(),
                    () = proc.nap() => None,
                };
                let stay = tenure.as_ref().map(|tenure| proc.stay("churn", tenure.term(), false));
                drop(election);
                proc.nap().await;
                drop((stay, tenure));
                continue;
            }
            _ => {}
        }
        drop(election);
    }
}

/// Comes, leads for a while perhaps, and goes. After that it does not lead.
pub(crate) async fn visiting(proc: Arc<Proc>, election: Election) {
    let ttl = proc.timing.ttl;
    loop {
        proc.sleep(proc.span(ttl * 2)).await;
        let patience = proc.span(ttl * 2);
        let tenure = tokio::select! {
            biased;
            led = election.campaign() => led.ok(),
            () = proc.sleep(patience) => None,
        };
        if let Some(tenure) = tenure {
            let stay = proc.stay("visit", tenure.term(), false);
            if tenure.is_current() {
                proc.effect("visit", tenure.term());
            }
            proc.nap().await;
            drop(stay);
        }
        let since = proc.sim.now();
        proc.sleep(ttl * 2).await;
        if let Some(standing) = election.peek()
            && proc.sim.drives_since(proc.host, since)
        {
            let what = format!("term {} is led, and nobody takes part", standing.term);
            proc.broken("withdraws", what);
        }
    }
}

/// Forks now and then. A child leads nothing, and every call of it is refused (L3).
pub(crate) async fn forking(proc: Arc<Proc>, election: Election) {
    loop {
        proc.sleep(proc.timing.ttl / 4 + proc.span(proc.timing.ttl)).await;
        proc.sim.judge().book().seen.children += u64::from(election.peek().is_some());
        if let Some(what) = in_child(|| child_looks_at(&election)) {
            proc.broken("L3", format!("in a child {what}"));
        }
    }
}

fn child_looks_at(election: &Election) -> Option<&'static str> {
    let refused = |answer: Option<Result<(), Error>>| {
        answer.is_some_and(|it| it.is_err_and(|error| error.kind() == ErrorKind::Forked))
    };
    let leads = election.is_leader() || election.term().is_some() || election.peek().is_some();
    let shows = election.last_seen_leader().is_some() || election.overdue().is_some();
    match () {
        () if leads => Some("a handle says that it leads"),
        () if shows => Some("a handle tells of a driver that is not there"),
        () if ready(election.run_if_leader(async {})) != Some(None) => Some("work is run"),
        () if !refused(ready(election.start())) => Some("start() is not refused"),
        () if !refused(ready(election.stop())) => Some("stop() is not refused"),
        () if !refused(ready(election.resign())) => Some("resign() is not refused"),
        () if !refused(ready(async { election.campaign().await.map(drop) })) => {
            Some("campaign() is not refused")
        }
        () if !refused(ready(async { election.current_leader().await.map(drop) })) => {
            Some("current_leader() is not refused")
        }
        () => None,
    }
}

/// The same for whoever holds a tenure when the process forks.
pub(crate) fn fork_with(proc: &Proc, tenure: &Tenure) {
    if !proc.more.forks || !proc.one_in(8) {
        return;
    }
    let trusts = in_child(|| {
        tenure.is_current()
            || tenure.is_leader()
            || tenure.remaining() > Duration::ZERO
            || tenure.trusted_until() > Time::ZERO
            || ready(tenure.lost()).is_none()
            || ready(tenure.ended()).is_none()
    });
    if trusts {
        proc.broken("L3", format!("a child trusts the tenure of term {}", tenure.term()));
    }
}
