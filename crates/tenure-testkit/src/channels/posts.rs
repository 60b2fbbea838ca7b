//! Posts: kept, in order, until they are acknowledged.

use tenure_core::{Acknowledged, ChannelBacklog};

use crate::conformance::arena::{Arena, Verdict, ensure};

use super::cases;
use super::user::{ChannelUser, is_woken, leader, succeed};

cases![
    the_head_of_a_channel_is_handed_out_until_it_is_acknowledged,
    each_delivery_is_counted_across_leaders,
    a_key_is_kept_once,
    a_key_is_remembered_after_it_was_acknowledged,
    a_batch_keeps_a_key_once,
    channels_and_elections_do_not_mix,
    names_keys_and_payloads_are_data,
    a_post_of_the_greatest_length_is_kept_whole,
    a_full_batch_is_kept_in_order,
    the_backlog_is_counted,
    a_leader_that_listens_is_told_of_a_post,
    posts_survive_a_crash,
];

async fn the_head_of_a_channel_is_handed_out_until_it_is_acknowledged(
    arena: &Arena<'_>,
) -> Verdict {
    let (user, sender) = (ChannelUser::new(arena).await?, ChannelUser::new(arena).await?);
    let posted = sender.post(&[("c", "1", "a"), ("c", "2", "b"), ("c", "3", "c")]).await?;
    ensure!(posted.iter().all(|posted| posted.is_new), "all are new: {posted:?}");
    ensure!(posted.is_sorted_by(|a, b| a.id < b.id), "the numbers do not rise: {posted:?}");
    let (_leader, term) = leader(arena, "a").await?;
    for count in 1..4 {
        let head = user.takes(term, "c").await?;
        ensure!(head.id == posted[0].id && head.count == count, "try {count} got {head:?}");
    }
    let done = user.acknowledge(term, "c", posted[0].id).await?;
    ensure!(done == Acknowledged::Done, "it could not be acknowledged: {done:?}");
    let again = user.acknowledge(term, "c", posted[0].id).await?;
    ensure!(again == Acknowledged::Gone, "it was acknowledged twice: {again:?}");
    for (key, payload) in [("b", "2"), ("c", "3")] {
        let next = user.handles(term, "c").await?;
        ensure!(next.key == key && next.payload == payload, "{key} was due, not {next:?}");
    }
    user.is_empty(term, "c").await
}

async fn each_delivery_is_counted_across_leaders(arena: &Arena<'_>) -> Verdict {
    let user = ChannelUser::new(arena).await?;
    user.post(&[("c", "1", "a")]).await?;
    let (mut player, mut term) = leader(arena, "a").await?;
    for count in 1..4 {
        let head = user.takes(term, "c").await?;
        ensure!(head.count == count, "delivery {count} says {}", head.count);
        (player, term) = succeed(arena, &player, term).await?;
    }
    Ok(())
}

async fn a_key_is_kept_once(arena: &Arena<'_>) -> Verdict {
    let (user, sender) = (ChannelUser::new(arena).await?, ChannelUser::new(arena).await?);
    let first = sender.post(&[("c", "1", "key")]).await?[0];
    let second = user.post(&[("c", "2", "key")]).await?[0];
    ensure!(!second.is_new && second.id == first.id, "{second:?} repeats {first:?}");
    let (_leader, term) = leader(arena, "a").await?;
    let head = user.handles(term, "c").await?;
    ensure!(head.payload == "1", "the second payload has replaced the first: {head:?}");
    user.is_empty(term, "c").await
}

async fn a_key_is_remembered_after_it_was_acknowledged(arena: &Arena<'_>) -> Verdict {
    let user = ChannelUser::new(arena).await?;
    let first = user.post(&[("c", "1", "key")]).await?[0];
    let (_leader, term) = leader(arena, "a").await?;
    user.handles(term, "c").await?;
    let second = user.post(&[("c", "1", "key")]).await?[0];
    ensure!(!second.is_new && second.id == first.id, "{second:?} repeats {first:?}");
    user.is_empty(term, "c").await
}

async fn a_batch_keeps_a_key_once(arena: &Arena<'_>) -> Verdict {
    let user = ChannelUser::new(arena).await?;
    let posts = [("c", "1", "k"), ("c", "2", "k"), ("d", "3", "k"), ("c", "4", "l")];
    let posted = user.post(&posts).await?;
    let new: Vec<bool> = posted.iter().map(|posted| posted.is_new).collect();
    ensure!(new == [true, false, true, true], "which are new: {new:?}");
    ensure!(posted[0].id == posted[1].id, "one key has two numbers: {posted:?}");
    let (_leader, term) = leader(arena, "a").await?;
    for (channel, payload) in [("c", "1"), ("d", "3"), ("c", "4")] {
        let head = user.handles(term, channel).await?;
        ensure!(head.payload == payload, "{payload} was due in {channel}, not {head:?}");
    }
    user.is_empty(term, "c").await?;
    user.is_empty(term, "d").await
}

async fn channels_and_elections_do_not_mix(arena: &Arena<'_>) -> Verdict {
    let user = ChannelUser::new(arena).await?;
    let other = user.about(&arena.other_election("other")?);
    user.post(&[("c", "1", "k"), ("d", "2", "k")]).await?;
    ensure!(other.post(&[("c", "3", "k")]).await?[0].is_new, "a key counts in its election");
    let (_leader, term) = leader(arena, "a").await?;
    let head = user.handles(term, "d").await?;
    ensure!(head.payload == "2", "another channel's message came: {head:?}");
    user.is_empty(term, "d").await?;
    user.handles(term, "c").await?;
    user.is_empty(term, "c").await?;
    let successor = arena.player("b")?.within(&other.election);
    let term = successor.takes().await?.term;
    let head = other.handles(term, "c").await?;
    ensure!(head.payload == "3", "another election's message came: {head:?}");
    Ok(())
}

async fn names_keys_and_payloads_are_data(arena: &Arena<'_>) -> Verdict {
    let user = ChannelUser::new(arena).await?;
    let (_leader, term) = leader(arena, "a").await?;
    let payload = "{\"it's\":\"\\\"quoted\\\" \\u0000 日本 \\\\ $1 %s\"}";
    for odd in ["it's \"quoted\"", "'); DROP TABLE x; --", "日本 %s {}", "a:b", "a", "\\'"] {
        user.post(&[(odd, payload, odd)]).await?;
        let head = user.handles(term, odd).await?;
        ensure!(head.key == odd && head.payload == payload, "{odd:?} came back as {head:?}");
    }
    Ok(())
}

async fn a_post_of_the_greatest_length_is_kept_whole(arena: &Arena<'_>) -> Verdict {
    let user = ChannelUser::new(arena).await?;
    let length = user.channels()?.limits().post_bytes;
    let payload = format!("\"{}\"", "x".repeat(length - 2));
    user.post(&[("c", &payload, "k")]).await?;
    let (_leader, term) = leader(arena, "a").await?;
    let head = user.handles(term, "c").await?;
    ensure!(head.payload == payload, "{} of {length} bytes were kept", head.payload.len());
    Ok(())
}

async fn a_full_batch_is_kept_in_order(arena: &Arena<'_>) -> Verdict {
    let user = ChannelUser::new(arena).await?;
    let count = user.channels()?.limits().batch;
    let texts: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    let posts: Vec<(&str, &str, &str)> = texts.iter().map(|t| ("c", &**t, &**t)).collect();
    let posted = user.post(&posts).await?;
    ensure!(posted.is_sorted_by(|a, b| a.id < b.id), "the numbers do not rise");
    let (_leader, term) = leader(arena, "a").await?;
    for text in texts.iter().take(20) {
        let head = user.handles(term, "c").await?;
        ensure!(head.payload == *text, "{text} was due, not {head:?}");
    }
    Ok(())
}

async fn the_backlog_is_counted(arena: &Arena<'_>) -> Verdict {
    let user = ChannelUser::new(arena).await?;
    let backlog = user.channels()?.backlog(&arena.election).await?;
    ensure!(backlog.is_empty(), "there is a backlog before there are posts: {backlog:?}");
    user.post(&[("b", "1", "1"), ("a", "2", "2"), ("b", "3", "3")]).await?;
    let (_leader, term) = leader(arena, "a").await?;
    user.takes(term, "b").await?;
    let waits = |backlog: &[ChannelBacklog]| -> Vec<(String, u64, u64)> {
        backlog.iter().map(|one| (one.channel.clone(), one.waiting, one.dead)).collect()
    };
    let backlog = user.channels()?.backlog(&arena.election).await?;
    let counts = waits(&backlog);
    ensure!(counts == [("a".into(), 1, 0), ("b".into(), 2, 0)], "it says {backlog:?}");
    ensure!(backlog.iter().all(|one| one.oldest.is_some()), "since when? {backlog:?}");
    user.handles(term, "b").await?;
    user.handles(term, "b").await?;
    let backlog = user.channels()?.backlog(&arena.election).await?;
    ensure!(waits(&backlog) == [("a".into(), 1, 0)], "of what is done it says {backlog:?}");
    Ok(())
}

async fn a_leader_that_listens_is_told_of_a_post(arena: &Arena<'_>) -> Verdict {
    let (user, sender) = (ChannelUser::new(arena).await?, ChannelUser::new(arena).await?);
    let (_leader, term) = leader(arena, "a").await?;
    let mut inbox = user.listen(term, &["c"]).await?;
    sender.post(&[("c", "1", "k")]).await?;
    is_woken(arena, &mut *inbox).await
}

async fn posts_survive_a_crash(arena: &Arena<'_>) -> Verdict {
    let user = ChannelUser::new(arena).await?;
    user.post(&[("c", "1", "a"), ("c", "2", "b")]).await?;
    let (player, term) = leader(arena, "a").await?;
    user.handles(term, "c").await?;
    player.release(Some(term)).await;
    let store = arena.crash().await?;
    let user = user.on(&store);
    let term = arena.player("b")?.on(&store).takes().await?.term;
    let head = user.handles(term, "c").await?;
    ensure!(head.key == "b", "what was acknowledged came again, or more was lost: {head:?}");
    ensure!(!user.post(&[("c", "1", "a")]).await?[0].is_new, "a key was forgotten");
    Ok(())
}
