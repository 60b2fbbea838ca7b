//! What no leader could handle.

use tenure_core::{DeadLetter, Taken};

use crate::conformance::arena::{Arena, Stop, Verdict, ensure};

use super::cases;
use super::user::{ChannelUser, leader};

cases![
    a_message_is_dead_after_its_tries_and_the_next_one_follows,
    a_replayed_letter_comes_last_and_counts_anew,
    a_discarded_letter_is_gone_with_its_key,
    only_dead_letters_are_replayed_and_discarded,
    letters_are_listed_oldest_first_up_to_a_limit,
];

/// Has the head of a channel delivered twice and given up.
async fn bury(user: &ChannelUser, term: tenure_core::Term, channel: &str) -> Result<Taken, Stop> {
    for _ in 0..2 {
        user.take(term, channel, 2).await?;
    }
    user.take(term, channel, 2).await
}

async fn letters(user: &ChannelUser, channel: Option<&str>) -> Result<Vec<DeadLetter>, Stop> {
    Ok(user.channels()?.dead_letters(&user.election, channel, 100).await?)
}

async fn a_message_is_dead_after_its_tries_and_the_next_one_follows(arena: &Arena<'_>) -> Verdict {
    let user = ChannelUser::new(arena).await?;
    let posted = user.post(&[("c", "{\"bad\":1}", "a"), ("c", "2", "b")]).await?;
    let (_leader, term) = leader(arena, "a").await?;
    let next = bury(&user, term, "c").await?;
    let Taken::Message(next) = next else {
        return Err(Stop::Failed(format!("the next was due, not {next:?}")));
    };
    ensure!(next.key == "b" && next.count == 1, "the next was due, not {next:?}");
    let dead = letters(&user, Some("c")).await?;
    let [letter] = &dead[..] else {
        return Err(Stop::Failed(format!("one letter is dead, not {dead:?}")));
    };
    let expected = DeadLetter {
        id: posted[0].id,
        channel: "c".to_owned(),
        key: "a".to_owned(),
        payload: "{\"bad\":1}".to_owned(),
        deliveries: 2,
    };
    ensure!(*letter == expected, "{expected:?} died, and is listed as {letter:?}");
    ensure!(!user.post(&[("c", "1", "a")]).await?[0].is_new, "its key was forgotten");
    let backlog = user.channels()?.backlog(&user.election).await?;
    ensure!(backlog.len() == 1 && backlog[0].dead == 1, "the backlog says {backlog:?}");
    Ok(())
}

async fn a_replayed_letter_comes_last_and_counts_anew(arena: &Arena<'_>) -> Verdict {
    let user = ChannelUser::new(arena).await?;
    let posted = user.post(&[("c", "1", "a"), ("c", "2", "b")]).await?;
    let (_leader, term) = leader(arena, "a").await?;
    bury(&user, term, "c").await?;
    let replayed = user.channels()?.replay(&user.election, &[posted[0].id]).await?;
    ensure!(replayed == 1, "{replayed} were replayed");
    ensure!(letters(&user, None).await?.is_empty(), "it is dead still");
    ensure!(user.handles(term, "c").await?.key == "b", "a replayed letter came first");
    let again = user.takes(term, "c").await?;
    ensure!(again.key == "a" && again.payload == "1", "it came back as {again:?}");
    ensure!(again.count == 1, "its old deliveries are counted: {again:?}");
    ensure!(again.id > posted[1].id, "its number is not the last: {again:?}");
    ensure!(!user.post(&[("c", "1", "a")]).await?[0].is_new, "its key was forgotten");
    user.handles(term, "c").await?;
    user.is_empty(term, "c").await
}

async fn a_discarded_letter_is_gone_with_its_key(arena: &Arena<'_>) -> Verdict {
    let user = ChannelUser::new(arena).await?;
    let posted = user.post(&[("c", "1", "a")]).await?;
    let (_leader, term) = leader(arena, "a").await?;
    bury(&user, term, "c").await?;
    let gone = user.channels()?.discard(&user.election, &[posted[0].id, 987_654]).await?;
    ensure!(gone == 1, "{gone} were discarded");
    ensure!(letters(&user, None).await?.is_empty(), "it is there still");
    ensure!(user.channels()?.backlog(&user.election).await?.is_empty(), "it is counted still");
    ensure!(user.post(&[("c", "1", "a")]).await?[0].is_new, "its key is known still");
    Ok(())
}

async fn only_dead_letters_are_replayed_and_discarded(arena: &Arena<'_>) -> Verdict {
    let user = ChannelUser::new(arena).await?;
    let waiting = user.post(&[("c", "1", "a")]).await?[0].id;
    let dead = user.post(&[("d", "1", "a")]).await?[0].id;
    let (_leader, term) = leader(arena, "a").await?;
    bury(&user, term, "d").await?;
    let other = user.about(&arena.other_election("other")?);
    for user in [&user, &other] {
        let channels = user.channels()?;
        let ids = if user.election == other.election { vec![dead] } else { vec![waiting, 99_999] };
        let moved = channels.replay(&user.election, &ids).await?;
        ensure!(moved == 0, "{moved} that are not dead here were replayed");
        let moved = channels.discard(&user.election, &ids).await?;
        ensure!(moved == 0, "{moved} that are not dead here were discarded");
    }
    user.handles(term, "c").await?;
    ensure!(letters(&user, None).await?.len() == 1, "another election touched it");
    Ok(())
}

async fn letters_are_listed_oldest_first_up_to_a_limit(arena: &Arena<'_>) -> Verdict {
    let user = ChannelUser::new(arena).await?;
    let posted = user.post(&[("d", "1", "1"), ("c", "2", "2"), ("c", "3", "3")]).await?;
    let (_leader, term) = leader(arena, "a").await?;
    for channel in ["c", "d", "c"] {
        bury(&user, term, channel).await?;
    }
    user.take(term, "c", 2).await?;
    let ids = |letters: &[DeadLetter]| letters.iter().map(|one| one.id).collect::<Vec<_>>();
    let all = letters(&user, None).await?;
    let due: Vec<u64> = posted.iter().map(|posted| posted.id).collect();
    ensure!(ids(&all) == due, "{due:?} are dead, listed are {all:?}");
    let some = user.channels()?.dead_letters(&user.election, Some("c"), 1).await?;
    ensure!(ids(&some) == [due[1]], "one of c was asked for, listed are {some:?}");
    Ok(())
}
