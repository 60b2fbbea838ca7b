//! `tenure campaign`: takes part without a command.
//!
//! Those who act on what is printed are not known here, so each reign that is told of is relied
//! upon (I8): at its end the lease is kept until `done TERM` comes on stdin, or the drain is over.

use tenure::{Election, Event, Reason};

use super::input::{Input, Said};
use super::presence::Presence;
use super::{Narration, build, make_way, note_default_store, open_or_end};
use crate::exit::{Exit, Failure};
use crate::options::Candidacy;
use crate::output::{self, Output, show_short};
use crate::signals::Signals;
use crate::store::StoreChoice;

/// Takes part until a signal asks to end.
pub(crate) async fn run(
    candidacy: &Candidacy,
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    choice.check(&candidacy.timing)?;
    let mut signals = Signals::of_candidate(out)?;
    note_default_store(choice, out);
    let Ok(opened) = open_or_end(choice, None, &mut signals, out).await? else {
        return Ok(Exit::DONE);
    };
    let election = build(candidacy, &opened)?;
    let mut presence = Presence::new(None)?;
    presence.show(&election, out)?;
    let mut narration = Narration::new();
    let at_once = candidacy.at_once;
    narration.vouch(&election, out, move |event| sentence(event, at_once));
    let mut input = Input::listen();
    take_part(&election, &mut input, &mut signals, out).await?;
    presence.stopping();
    let led = election.peek().is_some();
    stop(&election, &mut input, &mut signals, out).await;
    if led {
        make_way(&mut signals).await;
    }
    drop((election, presence));
    narration.finish().await;
    Ok(Exit::DONE)
}

/// Until a signal asks to end.
async fn take_part(
    election: &Election,
    input: &mut Input,
    signals: &mut Signals,
    out: &Output,
) -> Result<(), Failure> {
    let start = election.start();
    tokio::pin!(start);
    let mut starting = true;
    loop {
        tokio::select! {
            started = &mut start, if starting => {
                started?;
                starting = false;
            }
            // Also while it starts: it may have been elected and told so before that is known here.
            _ = signals.end() => return Ok(()),
            said = input.next() => hear(said, election, out),
        }
    }
}

/// Gives the lease back when it may be; another signal does not wait for that.
async fn stop(election: &Election, input: &mut Input, signals: &mut Signals, out: &Output) {
    let stop = election.stop();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            stopped = &mut stop => {
                if let Err(error) = stopped {
                    out.warn(&error.to_string());
                }
                return;
            }
            _ = signals.end() => return,
            said = input.next() => hear(said, election, out),
        }
    }
}

/// What people are told; also for how long a lease is kept for those who were told before.
fn sentence(event: &Event, at_once: bool) -> Option<String> {
    match event {
        Event::Draining { term, reason: Reason::Resigned | Reason::Asked, left } if !at_once => {
            let left = show_short(*left);
            Some(format!(
                "leading as term {term} no more; its lease is kept for those who work under it, \
                 until a line `done {term}` on stdin, at most for {left}"
            ))
        }
        event => output::sentence(event),
    }
}

fn hear(said: Said, election: &Election, out: &Output) {
    let term = match said {
        Said::Done(term) => term,
        Said::Nonsense(line) => {
            out.warn(&format!(
                "line {line} of the input means nothing here and is ignored; write `done TERM` \
                 when all work of that term has ended"
            ));
            return;
        }
    };
    let led = election.peek().map(|standing| standing.term);
    if led != Some(term) && election.winding_up() != Some(term) {
        out.warn(&format!("term {term} is not held here, so `done {term}` changes nothing"));
        return;
    }
    if let Err(error) = election.done(term) {
        out.warn(&error.to_string());
    }
}
