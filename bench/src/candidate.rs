//! A candidate as a program of the library is one: its work holds a `Tenure` and ends when it is
//! told to, so that the lease is given back at once. The hand-over benches run several of them.

use std::env;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use tenure::{BootClock, Clock as _, Election, Event, Events};
use tokio::signal::unix::{SignalKind, signal};

use crate::fleet::TTL;
use crate::ground::block_on;
use crate::report::say;

/// The word that makes this program a candidate; the election and the label follow.
pub(crate) const CANDIDATE: &str = "__candidate";

/// As `tenure campaign` does: the end of a process takes the processor for just those milliseconds
/// in which the next leader is to be granted.
const MAKE_WAY: Duration = Duration::from_millis(30);

/// Plays a candidate, if that is what this process is for.
pub(crate) fn takes_part() -> Result<bool> {
    let mut args = env::args().skip(1);
    if args.next().as_deref() != Some(CANDIDATE) {
        return Ok(false);
    }
    let (name, label) = (args.next().context("no election")?, args.next().context("no label")?);
    block_on(take_part(&name, &label))?;
    Ok(true)
}

async fn take_part(name: &str, label: &str) -> Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let url = env::var("TENURE_STORE").context("TENURE_STORE is not set")?;
    let election = Election::open(name, &url).label(label).ttl(TTL).build()?;
    let telling = tokio::task::LocalSet::new();
    let events = election.peek_events();
    telling.spawn_local(tell(events));
    telling
        .run_until(async {
            // The work: it holds its tenure for as long as it may, and does nothing else.
            let work = election.lead_each(|tenure| async move {
                tenure.lost().await;
                Ok::<(), tenure::Error>(())
            });
            tokio::pin!(work);
            tokio::select! {
                ended = &mut work => ended?,
                _ = term.recv() => {
                    let (stopped, ended) = tokio::join!(election.stop(), &mut work);
                    stopped?;
                    ended?;
                }
            }
            BootClock.sleep_until(BootClock::time() + MAKE_WAY).await;
            Ok(())
        })
        .await
}

/// Says what happens, as `--json` of the command does.
async fn tell(mut events: Events) {
    while let Some((at, event)) = events.next_at().await {
        let term = match &event {
            Event::Elected { term }
            | Event::Draining { term, .. }
            | Event::SteppedDown { term, .. } => Some(term.get()),
            Event::LeaderChanged { leader } => {
                leader.as_ref().and_then(|leader| leader.term).map(|term| term.get())
            }
            _ => None,
        };
        let line = json!({ "boot_ns": at.as_nanos(), "event": event.name(), "term": term });
        say(&line.to_string());
    }
}
