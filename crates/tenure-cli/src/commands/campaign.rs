//! `tenure campaign`: takes part without a command.

use super::{Narration, build, make_way, note_default_store, open_patiently};
use crate::exit::{Exit, Failure};
use crate::options::Candidacy;
use crate::output::{self, Output};
use crate::signals::Signals;
use crate::store::StoreChoice;

/// Takes part until a signal asks to end.
pub(crate) async fn run(
    candidacy: &Candidacy,
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    choice.check(&candidacy.timing)?;
    note_default_store(choice, out);
    let opened = open_patiently(choice, out).await?;
    let election = build(candidacy, &opened)?;
    let mut signals = Signals::listen()?;
    let mut narration = Narration::new();
    narration.follow(&election, out, output::sentence);
    tokio::select! {
        started = election.start() => started?,
        _ = signals.end() => return Ok(Exit::DONE),
    }
    signals.end().await;
    let led = election.is_leader();
    tokio::select! {
        stopped = election.stop() => if let Err(error) = stopped {
            out.warn(&error.to_string());
        },
        _ = signals.end() => {}
    }
    if led {
        make_way(&mut signals).await;
    }
    drop(election);
    narration.finish().await;
    Ok(Exit::DONE)
}
