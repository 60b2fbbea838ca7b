//! Running out, by the store's clock and by no other.

use super::arena::{Arena, Stop, Verdict, Want, ensure, granted, is_held_by, refused_for};
use super::cases;

cases![
    a_lease_never_runs_out_before_its_ttl,
    a_renewed_lease_never_runs_out_before_its_ttl,
    an_expired_lease_is_vacant,
    the_ttl_of_the_holder_decides_and_not_a_shorter_one_of_the_caller,
    the_ttl_of_the_holder_decides_and_not_a_longer_one_of_the_caller,
    an_expired_lease_is_a_new_term_for_its_last_holder_too,
    a_takeover_after_expiry_tells_the_ttl_that_ran_out,
    a_takeover_after_a_release_does_not_speak_of_expiry,
];

async fn a_lease_never_runs_out_before_its_ttl(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?.with_ttl(arena.short_ttl());
    let sent = arena.subject.now();
    let term = a.takes().await?.term;
    grants_nothing_before(arena, sent, a.ttl, term).await
}

async fn a_renewed_lease_never_runs_out_before_its_ttl(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?.with_ttl(arena.short_ttl());
    let started = arena.subject.now();
    let term = a.takes().await?.term;
    arena.subject.wait(a.ttl / 3).await;
    let sent = arena.subject.now();
    let reply = a.renew(term).await;
    arena.still_within(started, a.ttl)?;
    granted("a renewal by the holder", reply)?;
    grants_nothing_before(arena, sent, a.ttl, term).await
}

/// Tries to take the lease until it is granted, and looks at the clock then. The lease was
/// granted after `sent`, and what is granted now was granted before now: however slow the
/// machine, a store that keeps its contract has let `ttl` pass in between.
async fn grants_nothing_before(
    arena: &Arena<'_>,
    sent: tenure_core::Time,
    ttl: std::time::Duration,
    term: tenure_core::Term,
) -> Verdict {
    let b = arena.player("b")?;
    for _ in 0..200 {
        let reply = b.acquire(Want::default()).await;
        let after = arena.subject.now() - sent;
        if let tenure_core::Reply::Granted(grant) = reply {
            // A hundredth is the stated bound between two clocks (C4).
            ensure!(after >= ttl - ttl / 100, "a lease of {ttl:?} was taken over after {after:?}");
            ensure!(grant.term > term, "I2: after {term} came {}", grant.term);
            return Ok(());
        }
        arena.subject.wait(ttl / 40).await;
    }
    Err(Stop::Failed(format!("a lease of {ttl:?} never ran out")))
}

async fn an_expired_lease_is_vacant(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?.with_ttl(arena.short_ttl());
    let b = arena.player("b")?.on(&arena.another_handle().await?);
    let term = a.takes().await?.term;
    arena.expire(a.ttl).await;
    let sight = arena.read().await?;
    ensure!(sight.lease.is_none(), "after its ttl the lease is still there: {sight:?}");
    ensure!(sight.last_term == Some(term), "the last term is {term}, not {sight:?}");
    let next = b.takes().await?.term;
    ensure!(next > term, "I2: after {term} came {next}");
    Ok(())
}

async fn the_ttl_of_the_holder_decides_and_not_a_shorter_one_of_the_caller(
    arena: &Arena<'_>,
) -> Verdict {
    let short = arena.short_ttl();
    let (a, b) = (arena.player("a")?, arena.player("b")?.with_ttl(short));
    let term = a.takes().await?.term;
    arena.expire(short).await;
    let reply = b.acquire(Want::default()).await;
    refused_for("an acquire with a shorter ttl", reply, &a, term)?;
    granted("a renewal by the holder", a.renew(term).await)?;
    Ok(())
}

async fn the_ttl_of_the_holder_decides_and_not_a_longer_one_of_the_caller(
    arena: &Arena<'_>,
) -> Verdict {
    let (a, b) = (arena.player("a")?.with_ttl(arena.short_ttl()), arena.player("b")?);
    let term = a.takes().await?.term;
    arena.expire(a.ttl).await;
    let next = b.takes().await?.term;
    ensure!(next > term, "I2: after {term} came {next}");
    is_held_by(arena.read().await?, &b, next)?;
    Ok(())
}

async fn an_expired_lease_is_a_new_term_for_its_last_holder_too(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?.with_ttl(arena.short_ttl());
    let term = a.takes().await?.term;
    arena.expire(a.ttl).await;
    let next = a.takes().await?.term;
    ensure!(next > term, "I2: the last holder of {term} was granted {next} after expiry");
    Ok(())
}

async fn a_takeover_after_expiry_tells_the_ttl_that_ran_out(arena: &Arena<'_>) -> Verdict {
    let (a, b) = (arena.player("a")?.with_ttl(arena.short_ttl()), arena.player("b")?);
    a.takes().await?;
    arena.expire(a.ttl).await;
    let grant = b.takes().await?;
    ensure!(
        grant.expired == Some(a.ttl),
        "a lease of {:?} ran out, and the grant says {:?}",
        a.ttl,
        grant.expired
    );
    Ok(())
}

async fn a_takeover_after_a_release_does_not_speak_of_expiry(arena: &Arena<'_>) -> Verdict {
    let (a, b) = (arena.player("a")?.with_ttl(arena.short_ttl()), arena.player("b")?);
    let started = arena.subject.now();
    let term = a.takes().await?.term;
    let reply = a.release(Some(term)).await;
    arena.still_within(started, a.ttl)?;
    granted("a release by the holder", reply)?;
    arena.expire(a.ttl).await;
    let grant = b.takes().await?;
    ensure!(grant.expired.is_none(), "the lease was released, and the grant says {grant:?}");
    Ok(())
}
