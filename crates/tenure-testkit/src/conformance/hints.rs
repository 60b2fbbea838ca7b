//! Faster news, where a store has them. Never believed (I5), so all that is asked is that they
//! come.

use std::future::poll_fn;

use tenure_core::{Hint, Hints};

use super::arena::{Arena, Stop, Verdict, Want, granted, refused, skip};
use super::cases;
use crate::util::within;

/// A stream may take a while until it listens; what it misses meanwhile is allowed.
const ROUNDS: usize = 3;

cases![
    a_release_is_hinted_to_another_handle,
    an_ask_is_hinted_to_another_handle,
    a_dropped_stream_harms_nobody,
];

async fn a_release_is_hinted_to_another_handle(arena: &Arena<'_>) -> Verdict {
    claims_hints(arena)?;
    let other = arena.another_handle().await?;
    let (a, b) = (arena.player("a")?, arena.player("b")?.on(&other));
    let mut hints = other.hints();
    for _ in 0..ROUNDS {
        let term = a.takes().await?.term;
        refused("an acquire of a held lease", b.acquire(Want::default()).await)?;
        granted("a release", a.release(Some(term)).await)?;
        if arrives(arena, &mut *hints).await? {
            return Ok(());
        }
    }
    Err(Stop::Failed("a release was not hinted at, though info() claims hints".to_owned()))
}

async fn an_ask_is_hinted_to_another_handle(arena: &Arena<'_>) -> Verdict {
    claims_hints(arena)?;
    let a = arena.player("a")?.on(&arena.another_handle().await?);
    let mut hints = a.store.hints();
    a.takes().await?;
    for _ in 0..ROUNDS {
        granted("an ask", arena.player("b")?.ask(None).await)?;
        if arrives(arena, &mut *hints).await? {
            return Ok(());
        }
    }
    Err(Stop::Failed("an ask was not hinted at, though info() claims hints".to_owned()))
}

async fn a_dropped_stream_harms_nobody(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let (dropped, kept) = (arena.store.hints(), arena.store.hints());
    drop(dropped);
    let term = a.takes().await?.term;
    granted("a release", a.release(Some(term)).await)?;
    drop(kept);
    let term = a.takes().await?.term;
    granted("a release", a.release(Some(term)).await)?;
    Ok(())
}

fn claims_hints(arena: &Arena<'_>) -> Verdict {
    if arena.info.hints { Ok(()) } else { skip("the store does not claim hints") }
}

/// Whether a hint for this case's election, or for any, comes before patience ends.
async fn arrives(arena: &Arena<'_>, hints: &mut dyn Hints) -> Result<bool, Stop> {
    let hint = async {
        loop {
            match poll_fn(|cx| hints.poll_next(cx)).await {
                Some(Hint::Election(name)) if name == arena.election => return Ok(()),
                Some(Hint::Election(_)) => {}
                Some(_) => return Ok(()),
                None => {
                    let what = "the stream of hints has ended, though info() claims hints";
                    return Err(Stop::Failed(what.to_owned()));
                }
            }
        }
    };
    match within(arena.subject.patience(), hint).await {
        Some(hint) => hint.map(|()| true),
        None => Ok(false),
    }
}
