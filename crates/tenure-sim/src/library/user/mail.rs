//! Messages: posts that must be handled or kept, and notices that a leader must hear (M1).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tenure::{Election, ElectionBuilder, Message};
use tenure_core::sync::lock;

use super::Proc;

/// The notices that this process has heard.
pub(crate) type Heard = Arc<Mutex<BTreeSet<String>>>;

/// Handlers for an election.
pub(crate) fn add(proc: &Arc<Proc>, builder: ElectionBuilder, heard: &Heard) -> ElectionBuilder {
    let (heard, worker) = (heard.clone(), proc.clone());
    builder
        .on_notify("news", move |message| {
            lock(&heard).insert(message.payload);
        })
        .on_post("orders", move |message| handle(worker.clone(), message))
        .post_tries(1_000)
        .post_timeout(proc.timing.ttl * 2)
}

fn handle(
    proc: Arc<Proc>,
    message: Message,
) -> impl Future<Output = Result<(), String>> + Send + 'static {
    let stay = proc.stay("mail", message.term, true);
    if message.is_current() {
        proc.effect("mail", message.term);
    }
    if proc.is_hostile(20) {
        proc.panic();
    }
    async move {
        if proc.is_hostile(8) {
            stay.block(proc.timing.ttl + proc.span(proc.timing.ttl * 2));
        }
        match proc.pick(12) {
            0 if proc.is_hostile(1) => proc.hang().await,
            1 if proc.is_hostile(1) => proc.panic(),
            2 if !proc.is_calm() => return Err("not now".to_owned()),
            3 if proc.is_hostile(2) => {
                message.lost().await;
                return Err("lost".to_owned());
            }
            _ => proc.sleep(proc.span(proc.timing.ttl / 5)).await,
        }
        let key = message.key.clone().unwrap_or_default();
        let mut book = proc.sim.judge().book();
        book.seen.posts += 1;
        book.handled.insert(key);
        drop(book);
        drop(stay);
        Ok(())
    }
}

/// Posts under keys of its own, each until it is known to be kept.
pub(crate) async fn posting(proc: Arc<Proc>, election: Election) {
    for number in 0.. {
        let key = format!("{}-{number}", proc.label);
        loop {
            match proc.call("post", election.post("orders", "{}", &key)).await {
                Ok(_) => break,
                Err(_) => proc.nap().await,
            }
        }
        proc.sim.judge().book().posted.insert(key);
        proc.sleep(proc.timing.ttl / 4 + proc.span(proc.timing.ttl)).await;
        if proc.is_calm() {
            return;
        }
    }
}

/// Once it is told that it leads, whatever is sent is heard (M1).
pub(crate) async fn listening(proc: Arc<Proc>, election: Election, heard: Heard) {
    let mut changes = election.changes();
    let mut number = 0;
    while let Some(change) = changes.next().await {
        let Some(term) = change else { continue };
        let since = proc.sim.now();
        number += 1;
        let payload = format!("\"{term} {number}\"");
        if election.notify("news", &payload).await.is_err() {
            continue;
        }
        if election.peek().is_none_or(|standing| standing.term != term) {
            continue;
        }
        proc.sleep(proc.timing.ttl / 4).await;
        let leads = election.peek().is_some_and(|standing| standing.term == term);
        let missed = !lock(&heard).contains(&payload);
        if leads && missed && proc.sim.is_undisturbed_since(proc.host, since) {
            proc.broken("M1", format!("the leader of term {term} did not hear a notice"));
        }
    }
}
