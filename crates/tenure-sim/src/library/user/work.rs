//! Work under a lease, in every way that the library offers: by asking, by campaigning, by `lead`,
//! `lead_each` and `run_if_leader`, and by reading the feeds.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use tenure::{Election, ErrorKind, Event, Reason, Tenure, Time};
use tenure_core::sync::lock;

use super::Proc;
use super::meddle;
use super::waker::with_hostile_waker;
use crate::library::judge::{Kind, Stay};

/// How late the news of a lost trust may come where nothing stands still.
const LATE_MAX: Duration = Duration::from_millis(60);

/// Asks `is_leader()` again and again, and works on each `true` for up to a drain.
pub(crate) async fn polling(proc: Arc<Proc>, election: Election) {
    let name = election.name().to_string();
    loop {
        if proc.one_in(8) || proc.is_calm() {
            let _fails_if_useless = proc.call("start", election.start()).await;
        }
        if let Some(term) = election.term() {
            proc.effect(&name, term);
            if proc.relies && proc.one_in(2) {
                let judge = proc.sim.judge();
                let stay = judge.stay(&proc, &name, term.get(), Kind::Relied, false);
                let until = proc.clock.peek() + proc.timing.drain;
                let span = proc.span(proc.timing.drain * 19 / 20);
                if proc.is_hostile(4) {
                    proc.sim.block(span);
                } else {
                    proc.sleep(span).await;
                }
                if proc.clock.peek() < until {
                    proc.effect(&name, term);
                }
                drop(stay);
                if proc.one_in(3) {
                    let _driver_gone = election.done(term);
                }
            }
        }
        proc.nap().await;
    }
}

/// Vouches for itself while it acts on `is_leader()`. Now and then it blocks for long, or has other
/// things to do, and comes back.
pub(crate) async fn vouching(proc: Arc<Proc>, election: Election) {
    let name = election.name().to_string();
    loop {
        let mut vouch = Box::pin(election.vouch());
        // Dropped first: without the promise nobody asks.
        let promise = proc.sim.judge().vouches(&proc, &name);
        for _ in 0..5 + proc.pick(20) {
            tokio::select! {
                biased;
                never = &mut vouch => match never {},
                () = proc.nap() => {}
            }
            if let Some(term) = election.term() {
                proc.effect(&name, term);
            }
            if !proc.is_hostile(8) {
                continue;
            }
            let since = proc.sim.now();
            promise.is_silent(Some(since));
            let span = proc.span(proc.timing.ttl * 4);
            if proc.one_in(2) {
                proc.sim.block(span);
            } else {
                proc.sleep(span).await;
                let leads = election.peek().is_some() && proc.sim.drives_since(proc.host, since);
                if leads && !promise.may_still_lead(&proc) {
                    proc.broken("vouch", "a program that has long been silent leads");
                }
            }
            promise.is_silent(None);
        }
        drop((promise, vouch));
        proc.nap().await;
    }
}

/// Looks, without relying on what it sees.
pub(crate) async fn looking(proc: Arc<Proc>, election: Election) {
    loop {
        let _shown = (election.peek(), election.winding_up(), election.store_answers());
        proc.nap().await;
    }
}

/// Campaigns for a tenure, works under it, and lets it go in one of many ways.
pub(crate) async fn campaigning(proc: Arc<Proc>, election: Election) {
    loop {
        let tenure = match with_hostile_waker(&proc, &election, election.campaign()).await {
            Ok(tenure) => tenure,
            Err(error) => {
                if error.kind() != ErrorKind::Stopped {
                    proc.broken("error", format!("campaign() says {error}"));
                }
                proc.nap().await;
                continue;
            }
        };
        let stay = proc.stay(tenure.election().as_str(), tenure.term(), false);
        under_tenure(&proc, &election, &tenure, &stay).await;
        let_go(&proc, &election, tenure, stay).await;
        proc.nap().await;
    }
}

/// Works until it has had enough or is told to stop; some never ask.
async fn under_tenure(proc: &Arc<Proc>, election: &Election, tenure: &Tenure, stay: &Stay) {
    let asks = !proc.is_hostile(4);
    let rounds = 5 + proc.pick(40);
    let mut deadline = Time::ZERO;
    for _ in 0..rounds {
        act(proc, tenure);
        let known = tenure.trusted_until();
        if known > Time::ZERO {
            deadline = known;
        }
        if !asks {
            proc.nap().await;
            if !tenure.is_current() && proc.one_in(4) {
                return;
            }
            continue;
        }
        if proc.is_hostile(40) {
            stay.block(proc.span(proc.timing.ttl * 5 / 2));
        }
        let waits = proc.sim.now();
        let lost = tokio::select! {
            biased;
            reason = with_hostile_waker(proc, election, tenure.lost()) => Some(reason),
            () = proc.nap() => None,
        };
        let last = tenure.trusted_until().max(deadline);
        let late = proc.clock.peek() - last;
        if late > LATE_MAX && proc.sim.is_undisturbed_since(proc.host, waits) {
            proc.broken("told", format!("lost() tells {late:?} after the end of trust"));
        }
        if lost.is_some() {
            return wind_up(proc, tenure).await;
        }
    }
}

fn act(proc: &Proc, tenure: &Tenure) {
    meddle::fork_with(proc, tenure);
    // In this order: what may be started may also be finished.
    let (current, leads) = (tenure.is_current(), tenure.is_leader());
    if leads && !current {
        proc.broken("I3", "is_leader() is true after the end of trust");
    }
    if tenure.is_current() {
        proc.effect(tenure.election().as_str(), tenure.term());
    }
    proc.panic_if_planned();
}

async fn wind_up(proc: &Proc, tenure: &Tenure) {
    for _ in 0..proc.pick(4) {
        if proc.is_calm() {
            return;
        }
        proc.sleep(proc.span(proc.timing.drain / 2)).await;
        act(proc, tenure);
    }
}

async fn let_go(proc: &Arc<Proc>, election: &Election, tenure: Tenure, stay: Stay) {
    match proc.pick(5) {
        0 => {
            drop(stay);
            let _not_told = proc.call("Tenure::resign", tenure.resign()).await;
        }
        1 if !proc.is_calm() => {
            // Elsewhere, and later.
            let other = proc.clone();
            proc.sim.spawn(proc.lane, "drops", async move {
                other.sleep(other.span(other.timing.drain * 2)).await;
                drop((stay, tenure));
            });
        }
        2 if proc.is_hostile(2) => {
            hold_on(proc, election, &tenure).await;
            drop((stay, tenure));
        }
        _ => drop((stay, tenure)),
    }
}

/// Keeps the tenure long after it is over: that must be seen from outside.
async fn hold_on(proc: &Arc<Proc>, election: &Election, tenure: &Tenure) {
    let mut deadline = proc.clock.peek() + proc.timing.ttl;
    let mut starts = proc.more.on;
    for _ in 0..40 {
        let slept_at = proc.clock.peek();
        proc.nap().await;
        // After the nap: if all of the user's code was held up, the lease was renewed meanwhile. It
        // may have been ended since, and then nobody can tell any more until when it was trusted.
        deadline = deadline.max(tenure.trusted_until());
        if proc.clock.peek() - slept_at > proc.timing.ttl / 2 {
            deadline = proc.clock.peek() + proc.timing.ttl;
        }
        let over = proc.clock.peek() > deadline + proc.timing.ttl;
        let overdue = election.overdue();
        if over && overdue.is_none_or(|overdue| overdue.term != tenure.term()) {
            let seen = election.winding_up();
            if seen == Some(tenure.term()) {
                proc.broken("overdue", format!("term {} works on, unseen", tenure.term()));
            }
        }
        if over && std::mem::take(&mut starts) {
            start_anew(proc, election).await;
        }
        if proc.is_calm() {
            return;
        }
    }
}

/// Nobody waits for work that nothing ends: neither who stops nor who starts again.
async fn start_anew(proc: &Arc<Proc>, election: &Election) {
    let since = proc.sim.now();
    let both = async {
        let _still_running = election.stop().await;
        let _useless = election.start().await;
    };
    let in_time = tokio::select! {
        biased;
        () = both => true,
        () = proc.sleep(proc.timing.ttl * 2) => false,
    };
    if !in_time && proc.sim.drives_since(proc.host, since) {
        proc.broken("overdue", "start() waits for work that nothing ends");
    }
}

/// Work that ends, by `lead`: what has ended in time is not run again.
pub(crate) async fn leading(proc: Arc<Proc>, election: Election) {
    loop {
        let finished: Arc<Mutex<Option<Time>>> = Arc::default();
        let led = election.lead(|tenure| {
            let (proc, finished) = (proc.clone(), finished.clone());
            let stay = proc.stay(tenure.election().as_str(), tenure.term(), true);
            if let Some(at) = *lock(&finished)
                && proc.sim.is_undisturbed_since(proc.host, at)
            {
                proc.broken("again", "lead() runs work again that had ended in time");
            }
            if proc.is_hostile(12) {
                stay.block(proc.timing.ttl + proc.span(proc.timing.ttl * 2));
            }
            async move {
                piece_of_work(&proc, &tenure, &stay).await;
                if tenure.is_current() {
                    *lock(&finished) = Some(proc.sim.now());
                }
            }
        });
        if let Err(error) = led.await {
            proc.broken("error", format!("lead() says {error}"));
        }
        proc.nap().await;
    }
}

/// Work that stays, by `lead_each`.
pub(crate) async fn leading_each(proc: Arc<Proc>, election: Election) {
    loop {
        let led = election.lead_each(|tenure| {
            let proc = proc.clone();
            let stay = proc.stay(tenure.election().as_str(), tenure.term(), true);
            async move {
                loop {
                    piece_of_work(&proc, &tenure, &stay).await;
                    if !tenure.is_leader() || proc.one_in(20) {
                        return Ok::<(), tenure::Error>(());
                    }
                }
            }
        });
        if let Err(error) = led.await {
            proc.broken("error", format!("lead_each() says {error}"));
        }
        proc.nap().await;
    }
}

async fn piece_of_work(proc: &Arc<Proc>, tenure: &Arc<Tenure>, stay: &Stay) {
    for _ in 0..1 + proc.pick(8) {
        act(proc, tenure);
        if proc.is_calm() && !tenure.is_leader() {
            return;
        }
        match proc.pick(12) {
            0 if proc.is_hostile(3) => {
                stay.block(proc.span(proc.timing.ttl * 3));
            }
            // Has the task polled again and again.
            1 => tokio::task::yield_now().await,
            2 if tenure.is_leader() && !proc.is_calm() => {
                let _reason: Reason = tokio::select! {
                    biased;
                    reason = tenure.lost() => reason,
                    () = proc.sleep(proc.timing.ttl * 2) => return,
                };
                proc.sleep(proc.span(proc.timing.drain)).await;
                act(proc, tenure);
                return;
            }
            _ => proc.nap().await,
        }
    }
}

/// Small pieces, by `run_if_leader`.
pub(crate) async fn if_leading(proc: Arc<Proc>, election: Election) {
    let name = election.name().to_string();
    loop {
        let work = async {
            let Some(term) = election.peek().map(|standing| standing.term) else { return };
            let stay = proc.stay(&name, term, true);
            proc.effect(&name, term);
            proc.panic_if_planned();
            if proc.is_hostile(10) {
                stay.block(proc.span(proc.timing.ttl * 3));
            } else {
                proc.sleep(proc.span(proc.timing.drain * 2)).await;
            }
        };
        let _ran = election.run_if_leader(work).await;
        if proc.one_in(8) || proc.is_calm() {
            let _fails_if_useless = proc.call("start", election.start()).await;
        }
        proc.nap().await;
    }
}

/// Reads what happens: every loss comes between two reigns.
pub(crate) async fn reading(proc: Arc<Proc>, election: Election) {
    let (mut events, mut leading, mut known) = (election.events(), None, false);
    loop {
        let next = with_hostile_waker(&proc, &election, events.next()).await;
        match next {
            None => return,
            Some(Event::Elected { term }) => {
                if let (true, Some(before)) = (known, leading) {
                    proc.broken("order", format!("events: {term} is elected, {before} not lost"));
                }
                (leading, known) = (Some(term), true);
            }
            Some(Event::Draining { term, .. }) => {
                if known && leading != Some(term) {
                    proc.broken("order", format!("events: {term} is lost, {leading:?} was led"));
                }
                (leading, known) = (None, true);
            }
            Some(Event::Missed { .. }) => known = false,
            Some(_) => {}
        }
    }
}

/// The same by the terms alone.
pub(crate) async fn following(proc: Arc<Proc>, election: Election) {
    let mut changes = election.changes();
    let mut last = None;
    while let Some(now) = with_hostile_waker(&proc, &election, changes.next()).await {
        if let (Some(Some(before)), Some(after)) = (last, now) {
            proc.broken("order", format!("changes: {after} comes after {before}, which goes on"));
        }
        last = Some(now);
        if let Some(term) = now
            && election.term() == Some(term)
        {
            proc.effect(election.name().as_str(), term);
        }
    }
}
