//! Numbers that only ever rise (I2).

use fastrand::Rng;
use tenure_core::{ErrorKind, Forgotten, Post, Reply, StoreExt as _, Term};

use super::arena::{Arena, Player, Stop, Verdict, Want, ensure, granted, is_held_by, skip};
use super::cases;

cases![
    terms_rise_over_a_hundred_changes_of_hands,
    terms_rise_over_expiry,
    terms_rise_over_a_crash_after_a_release,
    terms_rise_over_a_crash_while_held,
    a_lease_outlives_a_restart_of_the_store,
    each_election_counts_for_itself,
    at_the_end_of_the_range_nothing_more_is_granted,
    an_election_that_was_forgotten_keeps_its_term,
];

async fn terms_rise_over_a_hundred_changes_of_hands(arena: &Arena<'_>) -> Verdict {
    let mut rng = Rng::with_seed(100);
    let other = arena.another_handle().await?;
    let players = [
        arena.player("a")?,
        arena.player("b")?.on(&other),
        arena.player("c")?,
        arena.player("d")?.on(&other),
    ];
    let mut last: Option<Term> = None;
    for change in 0..100 {
        let player = &players[rng.usize(..players.len())];
        let floor = if rng.u8(..10) == 0 { last } else { None };
        let want = Want { floor, ..Want::default() };
        let mut term = granted("a vacant election", player.acquire(want).await)?.term;
        rises(last, term, change)?;
        if rng.bool() {
            let want = Want { above: Some(term), ..Want::default() };
            let next = granted("an acquire above the own term", player.acquire(want).await)?.term;
            rises(Some(term), next, change)?;
            term = next;
        }
        last = Some(term);
        let named = if rng.bool() { Some(term) } else { None };
        granted("a release by the holder", player.release(named).await)?;
    }
    Ok(())
}

fn rises(last: Option<Term>, term: Term, change: usize) -> Verdict {
    ensure!(last.is_none_or(|last| term > last), "I2: change {change}: {term} after {last:?}");
    Ok(())
}

async fn terms_rise_over_expiry(arena: &Arena<'_>) -> Verdict {
    let ttl = arena.short_ttl();
    let players = [arena.player("a")?.with_ttl(ttl), arena.player("b")?.with_ttl(ttl)];
    let mut last: Option<Term> = None;
    for change in 0..4 {
        let term = players[change % 2].takes().await?.term;
        rises(last, term, change)?;
        last = Some(term);
        arena.expire(ttl).await;
    }
    Ok(())
}

async fn terms_rise_over_a_crash_after_a_release(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let term = a.takes().await?.term;
    granted("a release", a.release(Some(term)).await)?;
    let a = crash(arena, &a).await?;
    let next = a.takes().await?.term;
    ensure!(next > term, "I2: {term} was granted before the crash, {next} after it");
    Ok(())
}

async fn terms_rise_over_a_crash_while_held(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?.with_ttl(arena.short_ttl());
    let term = a.takes().await?.term;
    let b = crash(arena, &arena.player("b")?).await?;
    arena.expire(a.ttl).await;
    let next = b.takes().await?.term;
    ensure!(next > term, "I2: {term} was granted before the crash, {next} after it");
    Ok(())
}

/// The same candidate on the store that came back.
async fn crash(arena: &Arena<'_>, player: &Player) -> Result<Player, Stop> {
    if !arena.info.durable_terms {
        return skip("the store does not claim durable terms");
    }
    Ok(player.twin().on(&arena.crash().await?))
}

async fn a_lease_outlives_a_restart_of_the_store(arena: &Arena<'_>) -> Verdict {
    if !arena.info.survives_restart {
        return skip("the store does not claim that leases survive its restart");
    }
    let (a, b) = (arena.player("a")?, arena.player("b")?);
    let term = a.takes().await?.term;
    let store = arena.crash().await?;
    let (a, b) = (a.twin().on(&store), b.on(&store));
    let reply = b.acquire(Want::default()).await;
    ensure!(!matches!(reply, Reply::Granted(_)), "a lease was taken over a restart: {reply:?}");
    granted("a renewal after the restart", a.renew(term).await)?;
    Ok(())
}

async fn each_election_counts_for_itself(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let b = arena.player("b")?.within(&arena.other_election("next door")?);
    let term = a.takes().await?.term;
    let next_door = b.takes().await?.term;
    granted("a release", b.release(Some(next_door)).await)?;
    is_held_by(arena.read().await?, &a, term)?;
    granted("a renewal", a.renew(term).await)?;
    Ok(())
}

async fn at_the_end_of_the_range_nothing_more_is_granted(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let want = Want { floor: Some(Term::MAX), ..Want::default() };
    let Reply::Granted(grant) = a.acquire(want).await else {
        return skip("the store does not count as far as 2^53 - 1");
    };
    ensure!(grant.term == Term::MAX, "the floor is {}, and {} was issued", Term::MAX, grant.term);
    granted("a release of the last term", a.release(Some(grant.term)).await)?;
    let reply = a.acquire(Want::default()).await;
    ensure!(!matches!(reply, Reply::Granted(_)), "I2: after the last term came {reply:?}");
    Ok(())
}

async fn an_election_that_was_forgotten_keeps_its_term(arena: &Arena<'_>) -> Verdict {
    let Some(elections) = arena.store.elections() else {
        return skip("it does not list elections");
    };
    let (a, name) = (arena.player("a")?, &arena.election);
    let never = match elections.forget(name).await {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            return skip("it can't forget an election");
        }
        never => never?,
    };
    ensure!(never == Forgotten::NotKnown, "an election that never was is {never:?}");
    let lists = async || -> Result<bool, Stop> {
        match elections.list().await {
            Err(error) if error.kind() == ErrorKind::Denied => skip("this user may not list"),
            list => Ok(list?.contains(name)),
        }
    };
    let mut last = None;
    for round in 0..2 {
        let term = granted("an acquire", a.acquire(Want::default()).await)?.term;
        rises(last, term, round)?;
        last = Some(term);
        ensure!(lists().await?, "an election that is led is not listed");
        let led = elections.forget(name).await?;
        ensure!(led == Forgotten::Led, "an election that is led was {led:?}");
        granted("a renewal by its leader", a.renew(term).await)?;
        granted("a release", a.release(Some(term)).await)?;
        post(arena).await?;
        let done = elections.forget(name).await?;
        ensure!(done == Forgotten::Done, "an election that nobody leads was {done:?}");
        ensure!(!lists().await?, "it is listed after it was forgotten");
        let waiting = waiting(arena).await?;
        ensure!(waiting == 0, "{waiting} messages wait for the leader of a forgotten election");
        let sight = arena.store.read(name).await?;
        ensure!(sight.last_term == Some(term), "I2: {term} is forgotten: {:?}", sight.last_term);
        let again = elections.forget(name).await?;
        ensure!(again == Forgotten::NotKnown, "the second time it was {again:?}");
    }
    Ok(())
}

/// Leaves a message for the next leader, where the store keeps messages.
async fn post(arena: &Arena<'_>) -> Verdict {
    let Some(channels) = arena.store.channels() else { return Ok(()) };
    let [channel, payload, key] = ["orders", "{}", "1"].map(str::to_owned);
    channels.post(&arena.election, &[Post { channel, payload, key }]).await?;
    let waiting = waiting(arena).await?;
    ensure!(waiting == 1, "{waiting} messages wait after one was posted");
    Ok(())
}

async fn waiting(arena: &Arena<'_>) -> Result<u64, Stop> {
    let Some(channels) = arena.store.channels() else { return Ok(0) };
    let backlog = channels.backlog(&arena.election).await?;
    Ok(backlog.iter().map(|channel| channel.waiting).sum())
}
