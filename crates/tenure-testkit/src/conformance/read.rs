//! Looking without touching.

use tenure_core::{Op, Reply, Sight, StoreExt};

use super::arena::{Arena, Stop, Verdict, ensure, granted, is_held_by};
use super::cases;

cases![
    an_election_that_never_was_is_vacant_and_has_no_term,
    a_read_is_answered_as_seen,
    a_held_lease_shows_its_holder_and_what_remains,
    what_remains_shrinks_with_time,
    after_a_release_the_last_term_is_shown,
    a_read_changes_nothing,
    all_handles_see_the_same,
];

async fn an_election_that_never_was_is_vacant_and_has_no_term(arena: &Arena<'_>) -> Verdict {
    for time in 1..3 {
        let sight = arena.read().await?;
        ensure!(
            sight.lease.is_none() && sight.last_term.is_none(),
            "read {time} of an election that never was shows {sight:?}"
        );
    }
    Ok(())
}

async fn a_read_is_answered_as_seen(arena: &Arena<'_>) -> Verdict {
    seen(arena).await?;
    arena.player("a")?.takes().await?;
    let sight = seen(arena).await?;
    ensure!(sight.lease.is_some(), "a held lease is not seen: {sight:?}");
    Ok(())
}

async fn seen(arena: &Arena<'_>) -> Result<Sight, Stop> {
    let read = Op::Read { election: arena.election.clone() };
    match arena.store.apply_one(&read).await {
        Reply::Seen(sight) => Ok(sight),
        other => Err(Stop::Failed(format!("a read was not answered as seen: {other:?}"))),
    }
}

async fn a_held_lease_shows_its_holder_and_what_remains(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let term = a.takes().await?.term;
    let sight = arena.read().await?;
    ensure!(sight.last_term == Some(term), "{term} is held, but the last is {sight:?}");
    let lease = is_held_by(sight, &a, term)?;
    ensure!(lease.remaining <= a.ttl, "more remains than {:?}: {lease:?}", a.ttl);
    ensure!(lease.ttl == Some(a.ttl), "the ttl is {:?}, not {lease:?}", a.ttl);
    ensure!(lease.metadata.is_none(), "nothing was published, yet there is {lease:?}");
    Ok(())
}

async fn what_remains_shrinks_with_time(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let term = a.takes().await?.term;
    let before = is_held_by(arena.read().await?, &a, term)?.remaining;
    let span = arena.short_ttl() / 2;
    arena.subject.wait(span).await;
    let after = is_held_by(arena.read().await?, &a, term)?.remaining;
    let gone = before.saturating_sub(after);
    ensure!(gone >= span * 9 / 10, "{span:?} passed, but {before:?} became {after:?}");
    Ok(())
}

async fn after_a_release_the_last_term_is_shown(arena: &Arena<'_>) -> Verdict {
    let (a, b) = (arena.player("a")?, arena.player("b")?);
    for player in [&a, &b, &a] {
        let term = player.takes().await?.term;
        granted("a release", player.release(Some(term)).await)?;
        let sight = arena.read().await?;
        ensure!(
            sight.lease.is_none() && sight.last_term == Some(term),
            "after the release of {term} a read shows {sight:?}"
        );
    }
    Ok(())
}

async fn a_read_changes_nothing(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let term = a.takes().await?.term;
    let before = arena.read().await?;
    for _ in 0..10 {
        arena.is_unchanged(&before, "a read").await?;
    }
    granted("a renewal afterwards", a.renew(term).await)?;
    Ok(())
}

async fn all_handles_see_the_same(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let other = arena.another_handle().await?;
    let term = a.takes().await?.term;
    is_held_by(other.read(&arena.election).await?, &a, term)?;
    granted("a release", a.release(Some(term)).await)?;
    let sight = other.read(&arena.election).await?;
    ensure!(sight.lease.is_none(), "another handle still sees {sight:?}");
    Ok(())
}
