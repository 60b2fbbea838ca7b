//! Many senders at once (M3).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tenure_core::sync::lock;
use tenure_core::{Acknowledged, BoxFuture, Taken};

use crate::conformance::arena::{Arena, Stop, Verdict, ensure};
use crate::util::yield_times;

use super::cases;
use super::user::{ChannelUser, MANY, leader};

const SENDERS: usize = 5;
const EACH: usize = 20;

cases![
    posts_of_many_senders_are_handled_in_order_and_none_is_passed_by,
    the_same_key_from_many_senders_is_kept_once,
    batches_over_channels_in_opposite_order_both_end,
];

type Handled = Arc<Mutex<Vec<(u64, String)>>>;

/// A consumer works all the while: a post that becomes visible after a later one would be passed
/// by, and come out of order.
async fn posts_of_many_senders_are_handled_in_order_and_none_is_passed_by(
    arena: &Arena<'_>,
) -> Verdict {
    let user = ChannelUser::new(arena).await?;
    let (_leader, term) = leader(arena, "a").await?;
    let handled = Handled::default();
    let mut work: Vec<BoxFuture<'static, ()>> = Vec::new();
    for sender in 0..SENDERS {
        let user = ChannelUser::new(arena).await?;
        work.push(Box::pin(async move {
            for number in 0..EACH {
                let key = format!("{sender}:{number}");
                // What can't be posted is missed below.
                let _told = user.post(&[("c", "1", &key)]).await;
            }
        }));
    }
    let (consumer, handled_here) = (user.clone(), handled.clone());
    work.push(Box::pin(async move {
        let mut idle = 0;
        while lock(&handled_here).len() < SENDERS * EACH && idle < 20_000 {
            match consumer.take(term, "c", MANY).await {
                Ok(Taken::Message(delivery)) => {
                    idle = 0;
                    let done = consumer.acknowledge(term, "c", delivery.id).await;
                    if matches!(done, Ok(Acknowledged::Done)) {
                        lock(&handled_here).push((delivery.id, delivery.key));
                    }
                }
                _ => {
                    idle += 1;
                    yield_times(10).await;
                }
            }
        }
    }));
    arena.subject.run_together(work).await;
    let handled = lock(&handled).clone();
    ensure!(handled.len() == SENDERS * EACH, "{} of {} came", handled.len(), SENDERS * EACH);
    ensure!(handled.is_sorted_by(|a, b| a.0 < b.0), "out of order: {handled:?}");
    let mut next: HashMap<String, usize> = HashMap::new();
    for (_, key) in &handled {
        let (sender, number) = key.split_once(':').unwrap_or_default();
        let due = next.entry(sender.to_owned()).or_default();
        ensure!(number.parse() == Ok(*due), "of sender {sender}, {due} was due, not {number}");
        *due += 1;
    }
    Ok(())
}

async fn the_same_key_from_many_senders_is_kept_once(arena: &Arena<'_>) -> Verdict {
    let user = ChannelUser::new(arena).await?;
    let answers = Arc::new(Mutex::new(Vec::new()));
    let mut work: Vec<BoxFuture<'static, ()>> = Vec::new();
    for _ in 0..SENDERS {
        let (user, answers) = (ChannelUser::new(arena).await?, answers.clone());
        work.push(Box::pin(async move {
            for _ in 0..5 {
                if let Ok(posted) = user.post(&[("c", "1", "key")]).await {
                    lock(&answers).extend(posted);
                }
            }
        }));
    }
    arena.subject.run_together(work).await;
    let answers = lock(&answers).clone();
    ensure!(answers.len() == SENDERS * 5, "{} answers came", answers.len());
    let new = answers.iter().filter(|posted| posted.is_new).count();
    ensure!(new == 1, "the key was new {new} times");
    ensure!(answers.iter().all(|a| a.id == answers[0].id), "it has several numbers: {answers:?}");
    let (_leader, term) = leader(arena, "a").await?;
    user.handles(term, "c").await?;
    user.is_empty(term, "c").await
}

async fn batches_over_channels_in_opposite_order_both_end(arena: &Arena<'_>) -> Verdict {
    let failures = Arc::new(Mutex::new(Vec::<Stop>::new()));
    let mut work: Vec<BoxFuture<'static, ()>> = Vec::new();
    for sender in 0..SENDERS {
        let (user, failures) = (ChannelUser::new(arena).await?, failures.clone());
        work.push(Box::pin(async move {
            for number in 0..EACH {
                let key = format!("{sender}:{number}");
                let mut posts = [("a", "1", &*key), ("b", "1", &*key), ("c", "1", &*key)];
                if sender % 2 == 0 {
                    posts.reverse();
                }
                if let Err(failure) = user.post(&posts).await {
                    lock(&failures).push(failure);
                }
            }
        }));
    }
    arena.subject.run_together(work).await;
    let failures = std::mem::take(&mut *lock(&failures));
    ensure!(failures.is_empty(), "batches failed: {failures:?}");
    let backlog = ChannelUser::new(arena).await?.channels()?.backlog(&arena.election).await?;
    let counts: Vec<u64> = backlog.iter().map(|one| one.waiting).collect();
    ensure!(counts == [100, 100, 100], "all were kept, but it says {backlog:?}");
    Ok(())
}
