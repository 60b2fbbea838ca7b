//! Making a lease last.

use tenure_core::Metadata;

use super::arena::{
    Arena, Verdict, Want, ensure, granted, is_held_by, refused_as_vacant, refused_for, term_at,
};
use super::cases;

cases![
    the_holder_renews_its_term,
    a_renewal_makes_the_lease_last_anew,
    a_renewal_keeps_the_metadata_and_the_beginning,
    a_renewal_works_on_another_handle,
    a_renewal_of_an_older_term_changes_nothing,
    a_renewal_of_a_higher_term_changes_nothing,
    a_renewal_by_another_candidate_changes_nothing,
    an_expired_lease_cannot_be_renewed_even_by_its_holder,
    a_released_lease_cannot_be_renewed,
    an_election_that_never_was_cannot_be_renewed,
];

async fn the_holder_renews_its_term(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let term = a.takes().await?.term;
    for _ in 0..3 {
        let grant = granted("a renewal by the holder", a.renew(term).await)?;
        ensure!(grant.term == term, "the renewal of {term} was granted {}", grant.term);
        ensure!(!grant.asked && grant.expired.is_none(), "nothing happened, yet {grant:?}");
    }
    Ok(())
}

async fn a_renewal_makes_the_lease_last_anew(arena: &Arena<'_>) -> Verdict {
    let short = arena.short_ttl();
    let (a, b) = (arena.player("a")?.with_ttl(short), arena.player("b")?);
    let started = arena.subject.now();
    let term = a.takes().await?.term;
    let a = a.with_ttl(arena.long_ttl());
    let reply = a.renew(term).await;
    arena.still_within(started, short)?;
    granted("a renewal by the holder", reply)?;
    arena.expire(short).await;
    let reply = b.acquire(Want::default()).await;
    let lease = refused_for("an acquire of a renewed lease", reply, &a, term)?;
    ensure!(lease.ttl == Some(a.ttl), "the renewal's ttl {:?} is not kept: {lease:?}", a.ttl);
    Ok(())
}

async fn a_renewal_keeps_the_metadata_and_the_beginning(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let metadata = Some(Metadata::new(r#"{"url":"http://10.0.0.7"}"#)?);
    let want = Want { metadata, ..Want::default() };
    let term = granted("a vacant election", a.acquire(want).await)?.term;
    let before = is_held_by(arena.read().await?, &a, term)?;
    ensure!(before.metadata.is_some(), "the metadata is gone: {before:?}");
    granted("a renewal by the holder", a.renew(term).await)?;
    let after = is_held_by(arena.read().await?, &a, term)?;
    ensure!(after.metadata == before.metadata, "the metadata changed: {before:?}, {after:?}");
    ensure!(
        after.since_unix_ms == before.since_unix_ms,
        "the beginning of the term moved: {before:?}, {after:?}"
    );
    Ok(())
}

async fn a_renewal_works_on_another_handle(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let term = a.takes().await?.term;
    let elsewhere = a.twin().on(&arena.another_handle().await?);
    granted("a renewal elsewhere", elsewhere.renew(term).await)?;
    Ok(())
}

async fn a_renewal_of_an_older_term_changes_nothing(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let old = a.takes().await?.term;
    granted("a release", a.release(Some(old)).await)?;
    let term = a.takes().await?.term;
    let before = arena.read().await?;
    let longer = a.twin().with_ttl(2 * a.ttl);
    refused_for("I4: a renewal of an older term", longer.renew(old).await, &a, term)?;
    arena.is_unchanged(&before, "I4: a renewal of an older term").await
}

async fn a_renewal_of_a_higher_term_changes_nothing(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let term = a.takes().await?.term;
    let before = arena.read().await?;
    let longer = a.twin().with_ttl(2 * a.ttl);
    let reply = longer.renew(term_at(term, 1)?).await;
    refused_for("I4: a renewal of a term not yet issued", reply, &a, term)?;
    arena.is_unchanged(&before, "I4: a renewal of a higher term").await
}

async fn a_renewal_by_another_candidate_changes_nothing(arena: &Arena<'_>) -> Verdict {
    let (a, b) = (arena.player("a")?, arena.player("b")?);
    let term = a.takes().await?.term;
    let before = arena.read().await?;
    let longer = b.with_ttl(2 * a.ttl);
    refused_for("I4: a renewal by another candidate", longer.renew(term).await, &a, term)?;
    arena.is_unchanged(&before, "I4: a renewal by another candidate").await
}

async fn an_expired_lease_cannot_be_renewed_even_by_its_holder(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?.with_ttl(arena.short_ttl());
    let term = a.takes().await?.term;
    arena.expire(a.ttl).await;
    let sight = refused_as_vacant("a renewal of an expired lease", a.renew(term).await)?;
    ensure!(sight.last_term == Some(term), "the last term is {term}, not {sight:?}");
    Ok(())
}

async fn a_released_lease_cannot_be_renewed(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let term = a.takes().await?.term;
    granted("a release", a.release(Some(term)).await)?;
    refused_as_vacant("a renewal of a released lease", a.renew(term).await)?;
    Ok(())
}

async fn an_election_that_never_was_cannot_be_renewed(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let reply = a.renew(tenure_core::Term::FIRST).await;
    refused_as_vacant("a renewal of an election that never was", reply)?;
    refused_as_vacant("a renewal of it again", a.renew(tenure_core::Term::FIRST).await)?;
    Ok(())
}
