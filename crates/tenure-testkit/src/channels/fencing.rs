//! Only the leader takes and acknowledges.

use tenure_core::{Acknowledged, Taken};

use crate::conformance::arena::{Arena, Verdict, ensure, term_at};

use super::cases;
use super::user::{ChannelUser, MANY, leader, succeed};

cases![
    a_former_leader_acknowledges_nothing,
    a_lease_that_ran_out_takes_and_acknowledges_nothing,
    a_lease_that_was_released_takes_and_acknowledges_nothing,
    a_term_that_never_was_takes_and_acknowledges_nothing,
];

async fn a_former_leader_acknowledges_nothing(arena: &Arena<'_>) -> Verdict {
    let user = ChannelUser::new(arena).await?;
    user.post(&[("c", "1", "k")]).await?;
    let (player, old) = leader(arena, "a").await?;
    let head = user.takes(old, "c").await?;
    let (_successor, new) = succeed(arena, &player, old).await?;
    let done = user.acknowledge(old, "c", head.id).await?;
    ensure!(done == Acknowledged::Stale, "term {old} acknowledged under term {new}: {done:?}");
    let taken = user.take(old, "c", MANY).await?;
    ensure!(taken == Taken::Stale, "term {old} took under term {new}: {taken:?}");
    let again = user.handles(new, "c").await?;
    ensure!(again.id == head.id && again.count == 2, "the successor got {again:?}");
    Ok(())
}

async fn a_lease_that_ran_out_takes_and_acknowledges_nothing(arena: &Arena<'_>) -> Verdict {
    let user = ChannelUser::new(arena).await?;
    user.post(&[("c", "1", "k")]).await?;
    let ttl = arena.short_ttl();
    let player = arena.player("a")?.with_ttl(ttl);
    let term = player.takes().await?.term;
    arena.expire(ttl).await;
    let taken = user.take(term, "c", MANY).await?;
    ensure!(taken == Taken::Stale, "a lease that ran out took: {taken:?}");
    let done = user.acknowledge(term, "c", 1).await?;
    ensure!(done == Acknowledged::Stale, "a lease that ran out acknowledged: {done:?}");
    let (_leader, term) = leader(arena, "b").await?;
    let head = user.takes(term, "c").await?;
    ensure!(head.count == 1, "a refused take was counted: {head:?}");
    Ok(())
}

async fn a_lease_that_was_released_takes_and_acknowledges_nothing(arena: &Arena<'_>) -> Verdict {
    let user = ChannelUser::new(arena).await?;
    user.post(&[("c", "1", "k")]).await?;
    let (player, term) = leader(arena, "a").await?;
    let head = user.takes(term, "c").await?;
    player.release(Some(term)).await;
    let taken = user.take(term, "c", MANY).await?;
    ensure!(taken == Taken::Stale, "a released lease took: {taken:?}");
    let done = user.acknowledge(term, "c", head.id).await?;
    ensure!(done == Acknowledged::Stale, "a released lease acknowledged: {done:?}");
    Ok(())
}

async fn a_term_that_never_was_takes_and_acknowledges_nothing(arena: &Arena<'_>) -> Verdict {
    let user = ChannelUser::new(arena).await?;
    let head = user.post(&[("c", "1", "k")]).await?[0];
    let never = tenure_core::Term::FIRST;
    let taken = user.take(never, "c", MANY).await?;
    ensure!(taken == Taken::Stale, "nobody leads, and somebody took: {taken:?}");
    let (_leader, term) = leader(arena, "a").await?;
    let later = term_at(term, 1)?;
    let taken = user.take(later, "c", MANY).await?;
    ensure!(taken == Taken::Stale, "a later term took: {taken:?}");
    let done = user.acknowledge(later, "c", head.id).await?;
    ensure!(done == Acknowledged::Stale, "a later term acknowledged: {done:?}");
    user.handles(term, "c").await?;
    Ok(())
}
