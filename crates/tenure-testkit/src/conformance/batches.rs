//! Many ops in one call.

use tenure_core::{Name, Op, Reply, Sight, Term};

use super::arena::{
    Arena, Player, Stop, Verdict, Want, ensure, granted, is_held_by, refused_for, skip,
};
use super::cases;

cases![
    an_empty_batch_is_answered_empty,
    a_batch_of_one_is_answered_by_one,
    a_batch_of_a_thousand_is_answered_op_by_op_in_order,
    a_batch_of_a_thousand_renewals_renews_all_but_the_stale_ones,
    a_refusal_in_a_batch_does_not_undo_its_neighbours,
];

async fn an_empty_batch_is_answered_empty(arena: &Arena<'_>) -> Verdict {
    let replies = arena.store.apply(&[]).await;
    ensure!(replies.is_empty(), "an empty batch got {} replies", replies.len());
    Ok(())
}

async fn a_batch_of_one_is_answered_by_one(arena: &Arena<'_>) -> Verdict {
    let a = arena.player("a")?;
    let [reply] =
        apply(arena, &[a.acquire_op(Want::default())]).await?.try_into().map_err(count)?;
    granted("a batch of one", reply)?;
    Ok(())
}

fn count(replies: Vec<Reply>) -> Stop {
    Stop::Failed(format!("one op got {} replies", replies.len()))
}

/// A thousand elections, each in one of five states, then one batch with an op for each. Every
/// reply tells of its own election, so that one out of place is seen.
async fn a_batch_of_a_thousand_is_answered_op_by_op_in_order(arena: &Arena<'_>) -> Verdict {
    let (a, b) = (arena.player("a")?, arena.player("b")?);
    let names = names(arena, 1_000)?;
    // Each starts from its own term: the reply alone tells which election it speaks of.
    let terms: Vec<Term> = (0..names.len()).filter_map(|i| Term::new(10_000 + i as u64)).collect();
    let in_election = |player: &Player, index: usize| player.twin().within(&names[index]);
    let taken: Vec<usize> = (0..names.len()).filter(|index| index % 5 != 0).collect();
    let setup: Vec<Op> = taken
        .iter()
        .map(|index| {
            let player = if index % 5 == 1 { &b } else { &a };
            let want = Want { floor: Some(terms[*index]), ..Want::default() };
            in_election(player, *index).acquire_op(want)
        })
        .collect();
    let mut held: Vec<Option<Term>> = vec![None; names.len()];
    for (index, reply) in taken.iter().zip(apply(arena, &setup).await?) {
        held[*index] = Some(granted("a vacant election of a batch", reply)?.term);
    }
    let batch: Vec<Op> = (0..names.len())
        .map(|index| {
            let a = in_election(&a, index);
            let term = held[index].unwrap_or(Term::FIRST);
            match index % 5 {
                0 | 1 => a.acquire_op(Want { floor: Some(terms[index]), ..Want::default() }),
                2 => a.renew_op(term),
                3 => a.renew_op(Term::FIRST),
                _ => Op::Read { election: names[index].clone() },
            }
        })
        .collect();
    for (index, reply) in apply(arena, &batch).await?.into_iter().enumerate() {
        let (a, b) = (in_election(&a, index), in_election(&b, index));
        let what = format!("op {index} of the batch");
        check_mixed(&what, index, reply, (&a, &b), held[index], terms[index])?;
    }
    Ok(())
}

fn check_mixed(
    what: &str,
    index: usize,
    reply: Reply,
    (a, b): (&Player, &Player),
    held: Option<Term>,
    floor: Term,
) -> Verdict {
    match (index % 5, held) {
        (1, Some(held)) => {
            refused_for(what, reply, b, held)?;
        }
        (2, Some(held)) => {
            let term = granted(what, reply)?.term;
            ensure!(term == held, "{what} renewed {term}, not {held}: out of order?");
        }
        (3, Some(held)) => {
            refused_for(what, reply, a, held)?;
        }
        (4, Some(held)) => {
            let sight = seen(what, reply)?;
            is_held_by(sight, a, held)?;
        }
        _ => {
            let term = granted(what, reply)?.term;
            ensure!(term >= floor, "{what} was granted {term}, below {floor}: out of order?");
        }
    }
    Ok(())
}

async fn a_batch_of_a_thousand_renewals_renews_all_but_the_stale_ones(
    arena: &Arena<'_>,
) -> Verdict {
    let a = arena.player("a")?;
    let players: Vec<Player> =
        names(arena, 1_000)?.iter().map(|name| a.twin().within(name)).collect();
    let acquires: Vec<Op> =
        players.iter().map(|player| player.acquire_op(Want::default())).collect();
    let mut terms = Vec::new();
    for reply in apply(arena, &acquires).await? {
        terms.push(granted("a vacant election of a batch", reply)?.term);
    }
    let stale = |index: usize| index % 100 == 7;
    let renewals: Vec<Op> = players
        .iter()
        .zip(&terms)
        .enumerate()
        .map(|(index, (player, term))| {
            player.renew_op(if stale(index) { Term::MAX } else { *term })
        })
        .collect();
    for (index, reply) in apply(arena, &renewals).await?.into_iter().enumerate() {
        let what = format!("renewal {index} of the batch");
        if stale(index) {
            refused_for(&what, reply, &players[index], terms[index])?;
        } else {
            granted(&what, reply)?;
        }
    }
    Ok(())
}

async fn a_refusal_in_a_batch_does_not_undo_its_neighbours(arena: &Arena<'_>) -> Verdict {
    if arena.info.batch_limit < 3 {
        return skip(format!("the store takes {} ops at most", arena.info.batch_limit));
    }
    let (a, b) = (arena.player("a")?, arena.player("b")?);
    let names = names(arena, 3)?;
    let middle = b.twin().within(&names[1]);
    let held = middle.takes().await?.term;
    let ops: Vec<Op> =
        names.iter().map(|name| a.twin().within(name).acquire_op(Want::default())).collect();
    let [first, second, third] =
        apply(arena, &ops).await?.try_into().map_err(|_| Stop::Failed("not 3".to_owned()))?;
    let (first, third) = (granted("the first", first)?.term, granted("the third", third)?.term);
    refused_for("the second", second, &middle, held)?;
    for (name, term) in [(&names[0], first), (&names[2], third)] {
        let player = a.twin().within(name);
        granted("a renewal of the neighbour", player.renew(term).await)?;
    }
    Ok(())
}

fn names(arena: &Arena<'_>, count: usize) -> Result<Vec<Name>, Stop> {
    (0..count).map(|index| arena.other_election(index)).collect()
}

fn seen(what: &str, reply: Reply) -> Result<Sight, Stop> {
    match reply {
        Reply::Seen(sight) => Ok(sight),
        other => Err(Stop::Failed(format!("{what} is a read and was answered {other:?}"))),
    }
}

/// Applies the ops, in as few calls as the store's limit allows; one reply for each.
async fn apply(arena: &Arena<'_>, ops: &[Op]) -> Result<Vec<Reply>, Stop> {
    let mut replies = Vec::new();
    for batch in ops.chunks(arena.info.batch_limit.max(1)) {
        let some = arena.store.apply(batch).await;
        ensure!(some.len() == batch.len(), "{} ops got {} replies", batch.len(), some.len());
        replies.extend(some);
    }
    Ok(replies)
}
