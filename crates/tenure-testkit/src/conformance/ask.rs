//! Asking the holder to resign.

use super::arena::{
    Arena, Player, Verdict, Want, ensure, granted, refused_as_vacant, refused_for, term_at,
};
use super::cases;

cases![
    the_holder_learns_of_an_ask_with_its_next_renewal,
    the_holder_is_told_again_because_a_reply_may_be_lost,
    the_holder_learns_of_an_ask_from_a_healed_acquire,
    an_ask_may_name_the_term,
    an_ask_of_a_stale_term_is_refused,
    an_ask_of_a_vacant_election_is_refused,
    an_ask_changes_nothing_else,
    an_ask_is_forgotten_after_a_release,
    an_ask_is_forgotten_after_expiry,
    an_ask_is_forgotten_when_the_holder_begins_a_new_term,
];

async fn the_holder_learns_of_an_ask_with_its_next_renewal(arena: &Arena<'_>) -> Verdict {
    let (a, b) = (arena.player("a")?, arena.player("b")?.on(&arena.another_handle().await?));
    let term = a.takes().await?.term;
    ensure!(!granted("a renewal", a.renew(term).await)?.asked, "told of an ask before there was");
    let grant = granted("an ask", b.ask(None).await)?;
    ensure!(grant.term == term, "the holder of {term} was asked, and {} granted", grant.term);
    ensure!(granted("a renewal", a.renew(term).await)?.asked, "the holder was not told");
    Ok(())
}

async fn the_holder_is_told_again_because_a_reply_may_be_lost(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let term = a.takes().await?.term;
    granted("an ask", a.ask(None).await)?;
    for time in 1..4 {
        let grant = granted("a renewal", a.renew(term).await)?;
        ensure!(grant.asked, "renewal {time} after the ask does not tell of it");
    }
    Ok(())
}

async fn the_holder_learns_of_an_ask_from_a_healed_acquire(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    a.takes().await?;
    granted("an ask", a.ask(None).await)?;
    let healed = granted("the same acquire again", a.acquire(Want::default()).await)?;
    ensure!(healed.asked, "a healed acquire does not tell of the ask: {healed:?}");
    Ok(())
}

async fn an_ask_may_name_the_term(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let term = a.takes().await?.term;
    granted("an ask of the held term", a.ask(Some(term)).await)?;
    ensure!(granted("a renewal", a.renew(term).await)?.asked, "the holder was not told");
    Ok(())
}

async fn an_ask_of_a_stale_term_is_refused(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let old = a.takes().await?.term;
    granted("a release", a.release(Some(old)).await)?;
    let term = a.takes().await?.term;
    for other in [old, term_at(term, 1)?] {
        refused_for("an ask of another term", a.ask(Some(other)).await, &a, term)?;
    }
    let grant = granted("a renewal", a.renew(term).await)?;
    ensure!(!grant.asked, "a refused ask reached the holder");
    Ok(())
}

async fn an_ask_of_a_vacant_election_is_refused(arena: &Arena<'_>) -> Verdict {
    let (a, b) = (arena.player("a")?.with_ttl(arena.short_ttl()), arena.player("b")?);
    refused_as_vacant("an ask of an election that never was", a.ask(None).await)?;
    let term = a.takes().await?.term;
    arena.expire(a.ttl).await;
    refused_as_vacant("an ask after expiry", a.ask(Some(term)).await)?;
    refused_as_vacant("an ask after expiry", a.ask(None).await)?;
    let term = b.takes().await?.term;
    granted("a release", b.release(Some(term)).await)?;
    refused_as_vacant("an ask after a release", b.ask(Some(term)).await)?;
    refused_as_vacant("an ask after a release", b.ask(None).await)?;
    let term = b.takes().await?.term;
    ensure!(!granted("a renewal", b.renew(term).await)?.asked, "an ask of nobody was kept");
    Ok(())
}

async fn an_ask_changes_nothing_else(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    a.takes().await?;
    let before = arena.read().await?;
    granted("an ask", a.ask(None).await)?;
    arena.is_unchanged(&before, "an ask").await
}

async fn an_ask_is_forgotten_after_a_release(arena: &Arena<'_>) -> Verdict {
    let (a, b) = (arena.player("a")?, arena.player("b")?);
    let term = a.takes().await?.term;
    granted("an ask", a.ask(None).await)?;
    granted("a release", a.release(Some(term)).await)?;
    is_not_asked(&b).await
}

async fn an_ask_is_forgotten_after_expiry(arena: &Arena<'_>) -> Verdict {
    let (a, b) = (arena.player("a")?.with_ttl(arena.short_ttl()), arena.player("b")?);
    let started = arena.subject.now();
    a.takes().await?;
    let reply = a.ask(None).await;
    arena.still_within(started, a.ttl)?;
    granted("an ask", reply)?;
    arena.expire(a.ttl).await;
    is_not_asked(&b).await
}

async fn an_ask_is_forgotten_when_the_holder_begins_a_new_term(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let term = a.takes().await?.term;
    granted("an ask", a.ask(None).await)?;
    let want = Want { above: Some(term), ..Want::default() };
    let grant = granted("an acquire above the own term", a.acquire(want).await)?;
    ensure!(!grant.asked, "a new term begins with the ask of the former one");
    let grant = granted("a renewal", a.renew(grant.term).await)?;
    ensure!(!grant.asked, "the ask of the former term outlived it");
    Ok(())
}

async fn is_not_asked(successor: &Player) -> Verdict {
    let grant = successor.takes().await?;
    ensure!(!grant.asked, "the ask went over to the successor");
    let grant = granted("a renewal", successor.renew(grant.term).await)?;
    ensure!(!grant.asked, "the ask went over to the successor's renewal");
    Ok(())
}
