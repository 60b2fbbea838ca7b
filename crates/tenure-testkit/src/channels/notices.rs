//! Notices: heard by whoever listens, or lost.

use crate::conformance::arena::{Arena, Verdict, ensure, granted};
use crate::util::join_all;

use super::cases;
use super::user::{ChannelUser, hears, leader};

cases![
    what_is_sent_once_listening_has_begun_is_heard_in_order,
    what_was_sent_before_is_not_heard,
    what_was_sent_before_is_not_heard_on_a_handle_that_listens_already,
    notices_that_are_alike_are_all_heard,
    a_channel_that_nobody_listens_to_is_not_heard,
    names_and_payloads_are_data,
    a_notice_of_the_greatest_length_is_heard_whole,
    nobody_has_to_lead,
    a_dropped_inbox_harms_nobody,
];

async fn what_is_sent_once_listening_has_begun_is_heard_in_order(arena: &Arena<'_>) -> Verdict {
    let (user, sender) = (ChannelUser::new(arena).await?, ChannelUser::new(arena).await?);
    let (_leader, term) = leader(arena, "a").await?;
    let mut inbox = user.listen(term, &["orders", "refunds"]).await?;
    for number in 0..50 {
        let channel = if number % 2 == 0 { "orders" } else { "refunds" };
        sender.notify(channel, &format!("{{\"number\":{number}}}")).await?;
    }
    for number in 0..50 {
        let channel = if number % 2 == 0 { "orders" } else { "refunds" };
        let heard = hears(arena, &mut *inbox).await?;
        let sent = (channel.to_owned(), format!("{{\"number\":{number}}}"));
        ensure!(heard == sent, "{sent:?} was due, and {heard:?} was heard");
    }
    Ok(())
}

async fn what_was_sent_before_is_not_heard(arena: &Arena<'_>) -> Verdict {
    let (user, sender) = (ChannelUser::new(arena).await?, ChannelUser::new(arena).await?);
    let (_leader, term) = leader(arena, "a").await?;
    for number in 0..20 {
        sender.notify("c", &format!("\"early {number}\"")).await?;
    }
    let mut inbox = user.listen(term, &["c"]).await?;
    sender.notify("c", "\"late\"").await?;
    let (_, heard) = hears(arena, &mut *inbox).await?;
    ensure!(heard == "\"late\"", "what was sent before is heard: {heard}");
    Ok(())
}

async fn what_was_sent_before_is_not_heard_on_a_handle_that_listens_already(
    arena: &Arena<'_>,
) -> Verdict {
    let (user, sender) = (ChannelUser::new(arena).await?, ChannelUser::new(arena).await?);
    let (player, term) = leader(arena, "a").await?;
    let mut former = user.listen(term, &["c"]).await?;
    for number in 0..20 {
        sender.notify("c", &format!("\"early {number}\"")).await?;
    }
    granted("a release", player.release(Some(term)).await)?;
    let (_successor, next) = leader(arena, "b").await?;
    let mut inbox = user.listen(next, &["c"]).await?;
    sender.notify("c", "\"late\"").await?;
    let (_, heard) = hears(arena, &mut *inbox).await?;
    ensure!(heard == "\"late\"", "what was sent before is heard: {heard}");
    let (_, heard) = hears(arena, &mut *former).await?;
    ensure!(heard == "\"early 0\"", "the other inbox lost its beginning: {heard}");
    Ok(())
}

async fn notices_that_are_alike_are_all_heard(arena: &Arena<'_>) -> Verdict {
    let (user, sender) = (ChannelUser::new(arena).await?, ChannelUser::new(arena).await?);
    let (_leader, term) = leader(arena, "a").await?;
    let mut inbox = user.listen(term, &["c"]).await?;
    let again = || -> tenure_core::BoxFuture<'_, Verdict> { Box::pin(sender.notify("c", "{}")) };
    for sent in join_all((0..5).map(|_| again()).collect()).await {
        sent?;
    }
    for _ in 0..5 {
        hears(arena, &mut *inbox).await?;
    }
    Ok(())
}

async fn a_channel_that_nobody_listens_to_is_not_heard(arena: &Arena<'_>) -> Verdict {
    let (user, sender) = (ChannelUser::new(arena).await?, ChannelUser::new(arena).await?);
    let (_leader, term) = leader(arena, "a").await?;
    let mut inbox = user.listen(term, &["mine"]).await?;
    sender.notify("other", "1").await?;
    sender.notify("Mine", "2").await?;
    sender.notify("mine", "3").await?;
    let heard = hears(arena, &mut *inbox).await?;
    ensure!(heard.1 == "3", "another channel was heard: {heard:?}");
    Ok(())
}

async fn names_and_payloads_are_data(arena: &Arena<'_>) -> Verdict {
    let (user, sender) = (ChannelUser::new(arena).await?, ChannelUser::new(arena).await?);
    let (_leader, term) = leader(arena, "a").await?;
    let limit = user.channels()?.limits().channel_bytes;
    let longest = "x".repeat(limit);
    let names = ["it's \"quoted\"", "\"; DROP TABLE x; --", "日本 %s {}[]*?", "A b:c/d", &longest];
    let payload = "{\"it's\":\"\\\"quoted\\\" \\u0000 日本 \\\\ $1 %s\"}";
    let mut inbox = user.listen(term, &names).await?;
    for name in names {
        sender.notify(name, payload).await?;
        let heard = hears(arena, &mut *inbox).await?;
        ensure!(heard == (name.to_owned(), payload.to_owned()), "{name:?} was heard as {heard:?}");
    }
    Ok(())
}

async fn a_notice_of_the_greatest_length_is_heard_whole(arena: &Arena<'_>) -> Verdict {
    let (user, sender) = (ChannelUser::new(arena).await?, ChannelUser::new(arena).await?);
    let (_leader, term) = leader(arena, "a").await?;
    let mut inbox = user.listen(term, &["c"]).await?;
    let length = user.channels()?.limits().notice_bytes;
    let payload = format!("\"{}\"", "x".repeat(length - 2));
    sender.notify("c", &payload).await?;
    let (_, heard) = hears(arena, &mut *inbox).await?;
    ensure!(heard == payload, "{} of {length} bytes were heard", heard.len());
    Ok(())
}

async fn nobody_has_to_lead(arena: &Arena<'_>) -> Verdict {
    ChannelUser::new(arena).await?.notify("c", "1").await
}

async fn a_dropped_inbox_harms_nobody(arena: &Arena<'_>) -> Verdict {
    let (user, sender) = (ChannelUser::new(arena).await?, ChannelUser::new(arena).await?);
    let (_leader, term) = leader(arena, "a").await?;
    let mut kept = user.listen(term, &["c"]).await?;
    drop(user.listen(term, &["c", "d"]).await?);
    sender.notify("d", "1").await?;
    sender.notify("c", "2").await?;
    let heard = hears(arena, &mut *kept).await?;
    ensure!(heard.1 == "2", "what another inbox wanted was heard: {heard:?}");
    Ok(())
}
