//! Many at once.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tenure_core::sync::lock;
use tenure_core::{BoxFuture, CandidateId, Name, Op, Reply, Store, Term};

use super::arena::{Arena, Player, Stop, Verdict, Want, ensure, is_held_by};
use super::cases;

const HANDLES: usize = 5;
const TRIES: usize = 50;

cases![
    of_fifty_concurrent_acquires_exactly_one_is_granted,
    concurrent_changes_of_hands_never_share_a_term,
    overlapping_batches_in_opposite_order_both_end,
];

/// What concurrent candidates were granted.
type Grants = Arc<Mutex<Vec<(CandidateId, Name, Term)>>>;

async fn of_fifty_concurrent_acquires_exactly_one_is_granted(arena: &Arena<'_>) -> Verdict {
    let handles = handles(arena).await?;
    let grants = Grants::default();
    let mut work: Vec<BoxFuture<'static, ()>> = Vec::new();
    for index in 0..50 {
        let player = arena.player(&format!("candidate {index}"))?.on(&handles[index % HANDLES]);
        let grants = grants.clone();
        work.push(Box::pin(async move {
            if let Some(term) = acquire(&player).await {
                lock(&grants).push((player.candidate, player.election, term));
            }
        }));
    }
    arena.subject.run_together(work).await;
    let grants = lock(&grants).clone();
    let [(candidate, _, term)] = &grants[..] else {
        return Err(Stop::Failed(format!("{} were granted at once: {grants:?}", grants.len())));
    };
    let mut winner = arena.player("winner")?;
    winner.candidate = candidate.clone();
    is_held_by(arena.read().await?, &winner, *term)?;
    Ok(())
}

async fn concurrent_changes_of_hands_never_share_a_term(arena: &Arena<'_>) -> Verdict {
    let handles = handles(arena).await?;
    let grants = Grants::default();
    let mut work: Vec<BoxFuture<'static, ()>> = Vec::new();
    for index in 0..10 {
        let player = arena.player(&format!("candidate {index}"))?.on(&handles[index % HANDLES]);
        let grants = grants.clone();
        work.push(Box::pin(async move {
            for _ in 0..10 {
                if let Some(term) = acquire(&player).await {
                    lock(&grants).push((player.candidate.clone(), player.election.clone(), term));
                    release(&player, term).await;
                }
            }
        }));
    }
    arena.subject.run_together(work).await;
    let grants = lock(&grants).clone();
    let terms: BTreeSet<Term> = grants.iter().map(|(_, _, term)| *term).collect();
    ensure!(!terms.is_empty(), "nobody was granted anything");
    ensure!(terms.len() == grants.len(), "I2: a term was granted twice: {grants:?}");
    Ok(())
}

async fn overlapping_batches_in_opposite_order_both_end(arena: &Arena<'_>) -> Verdict {
    let size = arena.info.batch_limit.clamp(1, 100);
    let names: Vec<Name> =
        (0..size).map(|index| arena.other_election(index)).collect::<Result<_, _>>()?;
    let grants = Grants::default();
    let mut work: Vec<BoxFuture<'static, ()>> = Vec::new();
    // Kept to the end: a store that is bound to a connection frees all when its handle goes.
    let mut handles = Vec::new();
    for label in ["forwards", "backwards"] {
        let player = arena.player(label)?.on(&arena.another_handle().await?);
        handles.push(player.store.clone());
        let op = |name| player.twin().within(name).acquire_op(Want::default());
        let mut batch: Vec<Op> = names.iter().map(op).collect();
        if label == "backwards" {
            batch.reverse();
        }
        let grants = grants.clone();
        work.push(Box::pin(async move {
            let granted = apply_all(&*player.store, batch).await;
            let mut grants = lock(&grants);
            for (name, term) in granted {
                grants.push((player.candidate.clone(), name, term));
            }
        }));
    }
    arena.subject.run_together(work).await;
    drop(handles);
    let mut granted: Vec<Name> = lock(&grants).iter().map(|(_, name, _)| name.clone()).collect();
    granted.sort_unstable();
    let mut names = names;
    names.sort_unstable();
    ensure!(granted == names, "of {size} elections each was to be granted once, not {granted:?}");
    Ok(())
}

/// Releases, again if nobody knows whether that was done: else the same term is rightly healed.
async fn release(player: &Player, term: Term) {
    for _ in 0..TRIES {
        if !matches!(player.release(Some(term)).await, Reply::Unknown(_)) {
            return;
        }
    }
}

async fn handles(arena: &Arena<'_>) -> Result<Vec<Arc<dyn Store>>, Stop> {
    let mut handles = Vec::new();
    for _ in 0..HANDLES {
        handles.push(arena.another_handle().await?);
    }
    Ok(handles)
}

/// Acquires; asks again while the outcome is unknown, as a busy store may answer.
async fn acquire(player: &Player) -> Option<Term> {
    for _ in 0..TRIES {
        match player.acquire(Want::default()).await {
            Reply::Granted(grant) => return Some(grant.term),
            Reply::Refused(_) | Reply::Seen(_) => return None,
            Reply::Unknown(_) => {}
        }
    }
    None
}

/// What a batch was granted, asking again for what is unknown.
async fn apply_all(store: &dyn Store, mut batch: Vec<Op>) -> Vec<(Name, Term)> {
    let mut granted = Vec::new();
    for _ in 0..TRIES {
        let replies = store.apply(&batch).await;
        let mut unknown = Vec::new();
        for (op, reply) in batch.into_iter().zip(replies) {
            match reply {
                Reply::Granted(grant) => granted.push((op.election().clone(), grant.term)),
                Reply::Unknown(_) => unknown.push(op),
                Reply::Refused(_) | Reply::Seen(_) => {}
            }
        }
        if unknown.is_empty() {
            break;
        }
        batch = unknown;
    }
    granted
}
