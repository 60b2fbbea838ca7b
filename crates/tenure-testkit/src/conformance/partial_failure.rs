//! Calls that nobody waited for.

use tenure_core::{Name, Op, Sight, StoreExt};

use super::arena::{Arena, Verdict, Want, ensure, granted, is_held_by};
use super::cases;
use crate::util::abandon_after;

cases![a_dropped_call_leaves_each_op_done_or_not, a_dropped_call_does_not_stop_the_store,];

/// How often a call is polled before it is dropped.
const POLLS: [usize; 6] = [0, 1, 2, 3, 5, 8];

/// How often what a dropped call left is looked at, until it is whole.
const READS: usize = 1_000;

async fn a_dropped_call_leaves_each_op_done_or_not(arena: &Arena<'_>) -> Verdict {
    let (a, b) = (arena.player("a")?, arena.player("b")?);
    for polls in POLLS {
        let size = arena.info.batch_limit.clamp(1, 20);
        let name = |index| arena.other_election(format!("{polls} polls, {index}"));
        let names: Vec<Name> = (0..size).map(name).collect::<Result<_, _>>()?;
        let op = |name| a.twin().within(name).acquire_op(Want::default());
        let ops: Vec<Op> = names.iter().map(op).collect();
        abandon_after(polls, arena.store.apply(&ops)).await;
        for name in &names {
            let whole = |sight: &Sight| match &sight.lease {
                Some(lease) => {
                    lease.holder.is(&a.candidate)
                        && lease.ttl == Some(a.ttl)
                        && lease.term == sight.last_term
                        && lease.term.is_some()
                }
                None => true,
            };
            // Where a grant takes several steps, it may be between two of them.
            let mut sight = arena.store.read(name).await?;
            for _ in 0..READS {
                if whole(&sight) {
                    break;
                }
                sight = arena.store.read(name).await?;
            }
            ensure!(whole(&sight), "a dropped call left {name:?} half done: {sight:?}");
            // The caller that dropped it asks again, and is healed or granted anew (C1).
            let a = a.twin().within(name);
            let term = granted("the acquire of a dropped call, again", {
                a.acquire(Want { seq: Some(2), ..Want::default() }).await
            })?
            .term;
            is_held_by(arena.store.read(name).await?, &a, term)?;
            granted("a release", a.release(Some(term)).await)?;
            granted("a later acquire", b.twin().within(name).acquire(Want::default()).await)?;
        }
    }
    Ok(())
}

async fn a_dropped_call_does_not_stop_the_store(arena: &Arena<'_>) -> Verdict {
    let (a, b) = (arena.player("a")?, arena.player("b")?.on(&arena.another_handle().await?));
    let other = b.twin().within(&arena.other_election("of another")?);
    let term = a.takes().await?.term;
    let others = other.takes().await?.term;
    for polls in POLLS {
        let renewal = [a.renew_op(term)];
        abandon_after(polls, arena.store.apply(&renewal)).await;
        granted("a renewal after a dropped one", a.renew(term).await)?;
        granted("a renewal by another on another handle", other.renew(others).await)?;
        let ask = [Op::Ask { election: arena.election.clone(), term: Some(term) }];
        abandon_after(polls, arena.store.apply(&ask)).await;
    }
    granted("a release", a.release(Some(term)).await)?;
    b.takes().await?;
    Ok(())
}
