//! Everything called at any time, from several tasks at once.

use std::sync::Arc;

use tenure::{Candidate, Election};

use super::Proc;
use super::callbacks;

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

/// Whoever campaigns is put out by a stop, unless it leads before.
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
            builder = callbacks::add(&proc, "churn", builder.ttl(proc.timing.ttl), true);
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
