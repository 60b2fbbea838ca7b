//! Taking a lease, and learning that it is taken.

use super::arena::{Arena, Verdict, Want, ensure, granted, is_held_by, refused_for, term_at};
use super::cases;

cases![
    a_vacant_election_is_granted,
    a_held_election_is_refused_and_names_its_holder,
    a_refused_acquire_changes_nothing_whatever_it_asks_for,
    two_incarnations_of_one_label_are_two_candidates,
    a_lost_reply_is_healed_with_the_same_term,
    a_lost_reply_is_healed_above_an_older_term,
    a_lost_reply_is_healed_on_another_handle,
    healing_makes_the_lease_last_anew,
    above_the_held_term_a_new_one_is_issued,
    above_a_term_that_the_store_never_saw_the_next_one_is_higher,
    a_floor_is_honoured,
    a_floor_below_the_last_term_is_ignored,
    a_floor_does_not_change_a_held_term,
];

async fn a_vacant_election_is_granted(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let grant = a.takes().await?;
    ensure!(!grant.asked, "nobody asked for the resignation of a new leader");
    ensure!(grant.expired.is_none(), "nothing ran out before the first term: {grant:?}");
    is_held_by(arena.read().await?, &a, grant.term)?;
    Ok(())
}

async fn a_held_election_is_refused_and_names_its_holder(arena: &Arena<'_>) -> Verdict {
    let (a, b) = (arena.player("a")?, arena.player("b")?.on(&arena.another_handle().await?));
    let term = a.takes().await?.term;
    let reply = b.acquire(Want::default()).await;
    let lease = refused_for("an acquire of a held lease", reply, &a, term)?;
    ensure!(lease.ttl == Some(a.ttl), "the ttl of the holder is {:?}, not {lease:?}", a.ttl);
    Ok(())
}

async fn a_refused_acquire_changes_nothing_whatever_it_asks_for(arena: &Arena<'_>) -> Verdict {
    let (a, b) = (arena.player("a")?, arena.player("b")?);
    let term = a.takes().await?.term;
    let before = arena.read().await?;
    let far = Some(term_at(term, 1_000)?);
    for (above, floor) in [(None, None), (far, None), (None, far), (far, far)] {
        let reply = b.acquire(Want { above, floor, ..Want::default() }).await;
        refused_for("an acquire of a held lease", reply, &a, term)?;
        arena.is_unchanged(&before, "a refused acquire").await?;
    }
    granted("a renewal after refused acquires", a.renew(term).await)?;
    Ok(())
}

async fn two_incarnations_of_one_label_are_two_candidates(arena: &Arena<'_>) -> Verdict {
    let (one, two) = (arena.player("web")?, arena.player("web")?);
    let term = one.takes().await?.term;
    let reply = two.acquire(Want::default()).await;
    refused_for("an acquire by another incarnation", reply, &one, term)?;
    Ok(())
}

async fn a_lost_reply_is_healed_with_the_same_term(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let term = a.takes().await?.term;
    for attempt in 2..5 {
        let healed = granted("the same acquire again", a.acquire(Want::default()).await)?;
        ensure!(
            healed.term == term,
            "C1: attempt {attempt} got term {}, not {term} again",
            healed.term
        );
    }
    // The very same request once more, as a repeating network sends it.
    let want = Want { seq: Some(1), ..Want::default() };
    let healed = granted("the first acquire, repeated", a.acquire(want).await)?;
    ensure!(healed.term == term, "C1: a repeated acquire got {}, not {term}", healed.term);
    Ok(())
}

async fn a_lost_reply_is_healed_above_an_older_term(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let old = a.takes().await?.term;
    granted("a release", a.release(Some(old)).await)?;
    let above = Some(old);
    let want = || Want { above, ..Want::default() };
    let term = granted("a vacant election", a.acquire(want()).await)?.term;
    let healed = granted("the same acquire again", a.acquire(want()).await)?.term;
    ensure!(healed == term, "C1: above {old} the lost reply was healed to {healed}, not {term}");
    Ok(())
}

async fn a_lost_reply_is_healed_on_another_handle(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let term = a.takes().await?.term;
    let elsewhere = a.twin().on(&arena.another_handle().await?);
    let healed = granted("the same acquire elsewhere", elsewhere.acquire(Want::default()).await)?;
    ensure!(healed.term == term, "C1: the other handle got {}, not {term}", healed.term);
    Ok(())
}

async fn healing_makes_the_lease_last_anew(arena: &Arena<'_>) -> Verdict {
    let short = arena.short_ttl();
    let (a, b) = (arena.player("a")?.with_ttl(short), arena.player("b")?);
    let started = arena.subject.now();
    let term = a.takes().await?.term;
    let a = a.with_ttl(arena.long_ttl());
    let healed = granted("the same acquire again", a.acquire(Want::default()).await)?;
    arena.still_within(started, short)?;
    ensure!(healed.term == term, "C1: healed to {}, not {term}", healed.term);
    arena.expire(short).await;
    let reply = b.acquire(Want::default()).await;
    refused_for("an acquire of a lease that was healed to last", reply, &a, term)?;
    Ok(())
}

async fn above_the_held_term_a_new_one_is_issued(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let old = a.takes().await?.term;
    let want = Want { above: Some(old), ..Want::default() };
    let grant = granted("an acquire above the own term", a.acquire(want).await)?;
    let new = grant.term;
    ensure!(new > old, "C1: above {old} came {new}: one term led twice");
    ensure!(grant.expired.is_none(), "the own lease had not run out: {grant:?}");
    refused_for("a renewal of the term before", a.renew(old).await, &a, new)?;
    granted("a renewal of the new term", a.renew(new).await)?;
    Ok(())
}

async fn above_a_term_that_the_store_never_saw_the_next_one_is_higher(
    arena: &Arena<'_>,
) -> Verdict {
    let a = arena.player("a")?;
    let first = a.takes().await?.term;
    granted("a release", a.release(Some(first)).await)?;
    let above = term_at(first, 1_000)?;
    let want = Want { above: Some(above), ..Want::default() };
    let term = granted("a vacant election", a.acquire(want).await)?.term;
    ensure!(term > above, "C1: above {above} came {term}");
    Ok(())
}

async fn a_floor_is_honoured(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let first = a.takes().await?.term;
    granted("a release", a.release(Some(first)).await)?;
    let floor = term_at(first, 1_000)?;
    let want = Want { floor: Some(floor), ..Want::default() };
    let term = granted("a vacant election", a.acquire(want).await)?.term;
    ensure!(term >= floor, "C5: the floor is {floor}, and {term} was issued");
    Ok(())
}

async fn a_floor_below_the_last_term_is_ignored(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let first = a.takes().await?.term;
    granted("a release", a.release(Some(first)).await)?;
    let high = Want { floor: Some(term_at(first, 1_000)?), ..Want::default() };
    let high = granted("a vacant election", a.acquire(high).await)?.term;
    granted("a release", a.release(Some(high)).await)?;
    let low = Want { floor: Some(first), ..Want::default() };
    let next = granted("a vacant election", a.acquire(low).await)?.term;
    ensure!(next > high, "I2: with a floor of {first}, {next} came after {high}");
    Ok(())
}

async fn a_floor_does_not_change_a_held_term(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let term = a.takes().await?.term;
    let want = Want { floor: Some(term_at(term, 1_000)?), ..Want::default() };
    let healed = granted("the same acquire with a floor", a.acquire(want).await)?.term;
    ensure!(healed == term, "C1: a floor is for new terms, yet {term} became {healed}");
    Ok(())
}
