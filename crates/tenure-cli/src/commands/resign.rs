//! `tenure resign`: asks the leader to resign.

use std::future::poll_fn;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::{BootClock, Leader, Name, Term, Time};
use tenure_core::{Hints, Sight, Store, StoreExt as _};

use super::{in_time, pause};
use crate::exit::{Exit, Failure};
use crate::options::ResignOptions;
use crate::output::{self, Output, boot_now, leads, show_short};
use crate::store::StoreChoice;

/// How often to look, if no hint comes.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// How long to wait for a successor, so that it can be told who leads now.
const SUCCESSOR_WITHIN: Duration = Duration::from_millis(500);

/// Asks, and waits until the term has ended.
pub(crate) async fn run(
    options: &ResignOptions,
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    let name = &options.name;
    if choice.is_missing() {
        return Ok(nobody(name, out));
    }
    let opened = choice.open()?;
    let store = &*opened.store;
    // Before anything is asked, so that no hint is missed.
    let mut hints = store.hints();
    let Some((asked, leader, ttl)) = ask(store, name).await? else {
        return Ok(nobody(name, out));
    };
    let wait = options.timeout.unwrap_or(ttl);
    let deadline = BootClock::time() + wait;
    let ended = |sight: &Sight| sight.lease.as_ref().is_none_or(|lease| lease.term != Some(asked));
    let Some(sight) = look_until(store, name, &mut *hints, deadline, ended).await? else {
        say(out, name, asked, "timeout", Some(&leader));
        out.error(&format!("{} still, {} after it was asked", leads(&leader), show_short(wait)));
        return Ok(Exit::NEGATIVE);
    };
    let taken = |sight: &Sight| sight.lease.is_some();
    let deadline = BootClock::time() + SUCCESSOR_WITHIN;
    let successor = match taken(&sight) {
        true => Some(sight),
        false => look_until(store, name, &mut *hints, deadline, taken).await?,
    };
    let successor = successor.and_then(|sight| sight.lease).map(Leader::from);
    say(out, name, asked, "resigned", successor.as_ref());
    Ok(Exit::DONE)
}

/// Asks the leader; tells who that is, under which term and with which ttl.
async fn ask(store: &dyn Store, name: &Name) -> Result<Option<(Term, Leader, Duration)>, Failure> {
    loop {
        let Some(lease) = in_time(store.read(name)).await??.lease else { return Ok(None) };
        let ttl = lease.ttl.unwrap_or(lease.remaining);
        // Refused means that the lease has changed hands since; then somebody else is asked.
        if let Ok(term) = in_time(store.ask(name, lease.term)).await?? {
            return Ok(Some((term, Leader::from(lease), ttl)));
        }
    }
}

/// Looks at each hint, and now and then, until there is to see what is looked for.
async fn look_until(
    store: &dyn Store,
    name: &Name,
    hints: &mut dyn Hints,
    deadline: Time,
    found: impl Fn(&Sight) -> bool,
) -> Result<Option<Sight>, Failure> {
    loop {
        let sight = in_time(store.read(name)).await??;
        if found(&sight) {
            return Ok(Some(sight));
        }
        let left = deadline - BootClock::time();
        if left.is_zero() {
            return Ok(None);
        }
        tokio::select! {
            () = pause(left.min(LOOK_AGAIN)) => {}
            () = next_hint(hints) => {}
        }
    }
}

async fn next_hint(hints: &mut dyn Hints) {
    if poll_fn(|cx| hints.poll_next(cx)).await.is_none() {
        std::future::pending().await
    }
}

fn nobody(name: &Name, out: &Output) -> Exit {
    if out.json {
        let none = ("outcome", json!("nobody"));
        let fields = vec![("candidate", Value::Null), ("term", Value::Null), none];
        out.object(boot_now(), "resign", name, fields);
    } else {
        out.say(&format!("nobody leads {name}"));
    }
    Exit::NEGATIVE
}

fn say(out: &Output, name: &Name, asked: Term, outcome: &str, leader: Option<&Leader>) {
    if out.json {
        let mut fields = vec![
            ("candidate", Value::Null),
            ("term", json!(asked.get())),
            ("outcome", json!(outcome)),
        ];
        let now = output::leader_fields(leader).into_iter().skip(1);
        fields.push(("leader_term", json!(leader.and_then(|l| l.term).map(Term::get))));
        fields.extend(now);
        out.object(boot_now(), "resign", name, fields);
    } else if outcome == "resigned" {
        let now = leader.map_or_else(|| "nobody leads now".to_owned(), leads);
        out.say(&format!("term {asked} of {name} is over; {now}"));
    }
}
