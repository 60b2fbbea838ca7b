//! Giving a lease up, and what must not come back afterwards (C2).

use std::time::Duration;

use tenure_core::RELEASE_MEMORY;

use super::arena::{
    Arena, Verdict, Want, ensure, granted, is_held_by, refused, refused_as_vacant, refused_for,
    skip, term_at,
};
use super::cases;

cases![
    a_release_vacates_and_keeps_the_term,
    a_release_by_incarnation_alone_vacates,
    a_release_makes_way_at_once_for_another_handle,
    a_release_of_another_term_changes_nothing,
    a_release_by_another_candidate_changes_nothing,
    a_late_release_of_an_older_term_changes_nothing,
    a_late_release_by_incarnation_alone_spares_a_newer_acquire,
    a_second_release_is_refused,
    a_release_of_an_expired_lease_is_refused,
    a_delayed_acquire_after_a_release_is_refused,
    a_delayed_acquire_is_refused_though_others_reigned_in_between,
    a_delayed_acquire_is_refused_while_another_holds,
    a_delayed_acquire_is_refused_after_a_release_that_was_refused,
    a_delayed_acquire_is_refused_after_a_release_of_the_wrong_term,
    a_delayed_acquire_is_refused_though_an_older_release_came_late,
    a_delayed_acquire_is_refused_as_long_as_releases_are_remembered,
    a_release_with_the_highest_number_ends_an_incarnation,
    a_later_acquire_is_granted,
    a_release_concerns_one_candidate_in_one_election,
];

async fn a_release_vacates_and_keeps_the_term(arena: &Arena<'_>) -> Verdict {
    let (a, b) = (arena.player("a")?, arena.player("b")?);
    let term = a.takes().await?.term;
    let grant = granted("a release by the holder", a.release(Some(term)).await)?;
    ensure!(grant.term == term, "the release of {term} was granted as {}", grant.term);
    let sight = arena.read().await?;
    ensure!(sight.lease.is_none(), "the released lease is still held: {sight:?}");
    ensure!(sight.last_term == Some(term), "the term went with the release: {sight:?}");
    let next = b.takes().await?.term;
    ensure!(next > term, "I2: after the release of {term} came {next}");
    Ok(())
}

async fn a_release_by_incarnation_alone_vacates(arena: &Arena<'_>) -> Verdict {
    let (a, b) = (arena.player("a")?, arena.player("b")?);
    let term = a.takes().await?.term;
    let grant = granted("C2: a release without a term", a.release(None).await)?;
    ensure!(grant.term == term, "the release of {term} was granted as {}", grant.term);
    ensure!(b.takes().await?.term > term, "I2: the term did not rise");
    Ok(())
}

async fn a_release_makes_way_at_once_for_another_handle(arena: &Arena<'_>) -> Verdict {
    let (a, b) = (arena.player("a")?, arena.player("b")?.on(&arena.another_handle().await?));
    let term = a.takes().await?.term;
    refused_for("an acquire of a held lease", b.acquire(Want::default()).await, &a, term)?;
    granted("a release by the holder", a.release(Some(term)).await)?;
    b.takes().await?;
    Ok(())
}

async fn a_release_of_another_term_changes_nothing(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let old = a.takes().await?.term;
    granted("a release by the holder", a.release(Some(old)).await)?;
    let term = a.takes().await?.term;
    let before = arena.read().await?;
    for other in [old, term_at(term, 1)?] {
        let reply = a.release_at(Some(other), 0).await;
        refused_for("I4: a release of another term", reply, &a, term)?;
        arena.is_unchanged(&before, "I4: a release of another term").await?;
    }
    Ok(())
}

async fn a_release_by_another_candidate_changes_nothing(arena: &Arena<'_>) -> Verdict {
    let (a, b) = (arena.player("a")?, arena.player("b")?);
    let term = a.takes().await?.term;
    let before = arena.read().await?;
    for named in [Some(term), None] {
        refused_for("I4: a release by another", b.release(named).await, &a, term)?;
        arena.is_unchanged(&before, "I4: a release by another candidate").await?;
    }
    granted("a renewal afterwards", a.renew(term).await)?;
    Ok(())
}

async fn a_late_release_of_an_older_term_changes_nothing(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let old = a.takes().await?.term;
    granted("a release by the holder", a.release_at(Some(old), 1).await)?;
    let term = a.takes().await?.term;
    let reply = a.release_at(Some(old), 1).await;
    refused_for("I4: a release of the term before", reply, &a, term)?;
    granted("a renewal afterwards", a.renew(term).await)?;
    Ok(())
}

async fn a_late_release_by_incarnation_alone_spares_a_newer_acquire(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    a.takes().await?;
    granted("C2: a release without a term", a.release_at(None, 1).await)?;
    let term = a.takes().await?.term;
    // It gave up acquire 1. Acquire 2 came after it, and its sender may lead by now.
    let reply = a.release_at(None, 1).await;
    refused_for("C2: a late release of an older acquire", reply, &a, term)?;
    granted("a renewal afterwards", a.renew(term).await)?;
    granted("C2: a release of the newer acquire", a.release_at(None, 2).await)?;
    Ok(())
}

async fn a_second_release_is_refused(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let term = a.takes().await?.term;
    granted("a release by the holder", a.release(Some(term)).await)?;
    for named in [Some(term), None] {
        let sight = refused_as_vacant("a second release", a.release(named).await)?;
        ensure!(sight.last_term == Some(term), "the last term is {term}, not {sight:?}");
    }
    Ok(())
}

async fn a_release_of_an_expired_lease_is_refused(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?.with_ttl(arena.short_ttl());
    let term = a.takes().await?.term;
    arena.expire(a.ttl).await;
    refused_as_vacant("a release of an expired lease", a.release(Some(term)).await)?;
    Ok(())
}

async fn a_delayed_acquire_after_a_release_is_refused(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    for _ in 0..2 {
        a.takes().await?;
    }
    granted("C2: a release without a term", a.release(None).await)?;
    for seq in [2, 1] {
        let delayed = Want { seq: Some(seq), ..Want::default() };
        refused_as_vacant("C2: a delayed acquire", a.acquire(delayed).await)?;
    }
    let sight = arena.read().await?;
    ensure!(sight.lease.is_none(), "C2: a delayed acquire came back to life: {sight:?}");
    Ok(())
}

async fn a_delayed_acquire_is_refused_though_others_reigned_in_between(
    arena: &Arena<'_>,
) -> Verdict {
    let (a, b) = (arena.player("a")?, arena.player("b")?.on(&arena.another_handle().await?));
    let term = a.takes().await?.term;
    granted("a release by the holder", a.release(Some(term)).await)?;
    for _ in 0..3 {
        let term = b.takes().await?.term;
        granted("a release by the next holder", b.release(Some(term)).await)?;
    }
    let delayed = Want { seq: Some(1), ..Want::default() };
    refused_as_vacant("C2: a delayed acquire", a.acquire(delayed).await)?;
    Ok(())
}

async fn a_delayed_acquire_is_refused_while_another_holds(arena: &Arena<'_>) -> Verdict {
    let (a, b) = (arena.player("a")?, arena.player("b")?);
    let term = a.takes().await?.term;
    granted("a release by the holder", a.release(Some(term)).await)?;
    let next = b.takes().await?.term;
    let delayed = Want { seq: Some(1), ..Want::default() };
    refused_for("C2: a delayed acquire", a.acquire(delayed).await, &b, next)?;
    granted("a renewal afterwards", b.renew(next).await)?;
    Ok(())
}

async fn a_delayed_acquire_is_refused_after_a_release_that_was_refused(
    arena: &Arena<'_>,
) -> Verdict {
    let (a, b) = (arena.player("a")?, arena.player("b")?);
    refused_as_vacant("a release of nothing", a.release_at(None, 1).await)?;
    let delayed = Want { seq: Some(1), ..Want::default() };
    refused_as_vacant("C2: the acquire that it overtook", a.acquire(delayed).await)?;
    b.takes().await?;
    Ok(())
}

async fn a_delayed_acquire_is_refused_after_a_release_of_the_wrong_term(
    arena: &Arena<'_>,
) -> Verdict {
    let (a, b) = (arena.player("a")?.with_ttl(arena.short_ttl()), arena.player("b")?);
    let term = a.takes().await?.term;
    arena.expire(a.ttl).await;
    let next = b.takes().await?.term;
    refused_for("a release of a lost lease", a.release(Some(term)).await, &b, next)?;
    granted("a release by the holder", b.release(Some(next)).await)?;
    let delayed = Want { seq: Some(1), ..Want::default() };
    refused_as_vacant("C2: a delayed acquire", a.acquire(delayed).await)?;
    Ok(())
}

async fn a_delayed_acquire_is_refused_though_an_older_release_came_late(
    arena: &Arena<'_>,
) -> Verdict {
    let a = arena.player("a")?;
    refused_as_vacant("a release of nothing", a.release_at(None, 5).await)?;
    refused_as_vacant("an older release, late", a.release_at(None, 2).await)?;
    let delayed = Want { seq: Some(4), ..Want::default() };
    refused_as_vacant("C2: a delayed acquire", a.acquire(delayed).await)?;
    Ok(())
}

async fn a_delayed_acquire_is_refused_as_long_as_releases_are_remembered(
    arena: &Arena<'_>,
) -> Verdict {
    if !arena.subject.time_is_free() {
        return skip("it would wait for ten minutes");
    }
    let (a, b) = (arena.player("a")?, arena.player("b")?);
    let term = a.takes().await?.term;
    granted("a release by the holder", a.release(Some(term)).await)?;
    arena.subject.wait(RELEASE_MEMORY - Duration::from_secs(1)).await;
    refused("a release of nothing", b.release(None).await)?;
    let delayed = Want { seq: Some(1), ..Want::default() };
    refused_as_vacant("C2: an acquire delayed for minutes", a.acquire(delayed).await)?;
    Ok(())
}

/// D3: what a witness sends for the dead, and what they may have sent before.
async fn a_release_with_the_highest_number_ends_an_incarnation(arena: &Arena<'_>) -> Verdict {
    let (a, b) = (arena.player("a")?, arena.player("b")?);
    let term = a.takes().await?.term;
    granted("D3: a release for the dead", a.release_at(None, u64::MAX).await)?;
    for seq in [2, 1 << 40] {
        let late = Want { seq: Some(seq), ..Want::default() };
        refused_as_vacant("D3: an acquire of the dead", a.acquire(late).await)?;
    }
    refused("D3: a renewal of the dead", a.renew(term).await)?;
    let next = b.takes().await?.term;
    ensure!(next > term, "I2: after {term} came {next}");
    let late = Want { seq: Some(2), ..Want::default() };
    refused_for("D3: an acquire of the dead", a.acquire(late).await, &b, next)?;
    refused_for("D3: a second release for them", a.release_at(None, u64::MAX).await, &b, next)?;
    Ok(())
}

async fn a_later_acquire_is_granted(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let mut last = a.takes().await?.term;
    for round in 0..3 {
        granted("a release by the holder", a.release(Some(last)).await)?;
        let term = a.takes().await?.term;
        ensure!(term > last, "I2: in round {round} {term} came after {last}");
        last = term;
    }
    is_held_by(arena.read().await?, &a, last)?;
    Ok(())
}

async fn a_release_concerns_one_candidate_in_one_election(arena: &Arena<'_>) -> Verdict {
    let (a, again) = (arena.player("a")?, arena.player("a")?);
    refused_as_vacant("a release of nothing", a.release_at(None, 9).await)?;
    let first = Want { seq: Some(1), ..Want::default() };
    granted("the first acquire of another incarnation", again.acquire(first).await)?;
    let elsewhere = a.twin().within(&arena.other_election("elsewhere")?);
    let first = Want { seq: Some(1), ..Want::default() };
    granted("the first acquire in another election", elsewhere.acquire(first).await)?;
    Ok(())
}
