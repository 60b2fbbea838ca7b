//! What no leader could handle.

use tenure_core::{DeadLetter, Taken};

use crate::conformance::arena::{Arena, Stop, Verdict, ensure};

use super::cases;
use super::desk::{Desk, leader};

cases![
    a_message_is_dead_after_its_tries_and_the_next_one_follows,
    a_replayed_letter_comes_last_and_counts_anew,
    a_discarded_letter_is_gone_with_its_key,
    only_dead_letters_are_replayed_and_discarded,
    letters_are_listed_oldest_first_up_to_a_limit,
];

/// Has the head of a channel delivered twice and given up.
async fn bury(desk: &Desk, term: tenure_core::Term, channel: &str) -> Result<Taken, Stop> {
    for _ in 0..2 {
        desk.take(term, channel, 2).await?;
    }
    desk.take(term, channel, 2).await
}

async fn letters(desk: &Desk, channel: Option<&str>) -> Result<Vec<DeadLetter>, Stop> {
    Ok(desk.channels()?.dead_letters(&desk.election, channel, 100).await?)
}

async fn a_message_is_dead_after_its_tries_and_the_next_one_follows(arena: &Arena<'_>) -> Verdict {
    let desk = Desk::new(arena).await?;
    let posted = desk.post(&[("c", "{\"bad\":1}", "a"), ("c", "2", "b")]).await?;
    let (_leader, term) = leader(arena, "a").await?;
    let next = bury(&desk, term, "c").await?;
    let Taken::Message(next) = next else {
        return Err(Stop::Failed(format!("the next was due, not {next:?}")));
    };
    ensure!(next.key == "b" && next.count == 1, "the next was due, not {next:?}");
    let dead = letters(&desk, Some("c")).await?;
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
    ensure!(!desk.post(&[("c", "1", "a")]).await?[0].is_new, "its key was forgotten");
    let backlog = desk.channels()?.backlog(&desk.election).await?;
    ensure!(backlog.len() == 1 && backlog[0].dead == 1, "the backlog says {backlog:?}");
    Ok(())
}

async fn a_replayed_letter_comes_last_and_counts_anew(arena: &Arena<'_>) -> Verdict {
    let desk = Desk::new(arena).await?;
    let posted = desk.post(&[("c", "1", "a"), ("c", "2", "b")]).await?;
    let (_leader, term) = leader(arena, "a").await?;
    bury(&desk, term, "c").await?;
    let replayed = desk.channels()?.replay(&desk.election, &[posted[0].id]).await?;
    ensure!(replayed == 1, "{replayed} were replayed");
    ensure!(letters(&desk, None).await?.is_empty(), "it is dead still");
    ensure!(desk.handles(term, "c").await?.key == "b", "a replayed letter came first");
    let again = desk.takes(term, "c").await?;
    ensure!(again.key == "a" && again.payload == "1", "it came back as {again:?}");
    ensure!(again.count == 1, "its old deliveries are counted: {again:?}");
    ensure!(again.id > posted[1].id, "its number is not the last: {again:?}");
    ensure!(!desk.post(&[("c", "1", "a")]).await?[0].is_new, "its key was forgotten");
    desk.handles(term, "c").await?;
    desk.is_empty(term, "c").await
}

async fn a_discarded_letter_is_gone_with_its_key(arena: &Arena<'_>) -> Verdict {
    let desk = Desk::new(arena).await?;
    let posted = desk.post(&[("c", "1", "a")]).await?;
    let (_leader, term) = leader(arena, "a").await?;
    bury(&desk, term, "c").await?;
    let gone = desk.channels()?.discard(&desk.election, &[posted[0].id, 987_654]).await?;
    ensure!(gone == 1, "{gone} were discarded");
    ensure!(letters(&desk, None).await?.is_empty(), "it is there still");
    ensure!(desk.channels()?.backlog(&desk.election).await?.is_empty(), "it is counted still");
    ensure!(desk.post(&[("c", "1", "a")]).await?[0].is_new, "its key is known still");
    Ok(())
}

async fn only_dead_letters_are_replayed_and_discarded(arena: &Arena<'_>) -> Verdict {
    let desk = Desk::new(arena).await?;
    let waiting = desk.post(&[("c", "1", "a")]).await?[0].id;
    let dead = desk.post(&[("d", "1", "a")]).await?[0].id;
    let (_leader, term) = leader(arena, "a").await?;
    bury(&desk, term, "d").await?;
    let other = desk.about(&arena.other_election("other")?);
    for desk in [&desk, &other] {
        let channels = desk.channels()?;
        let ids = if desk.election == other.election { vec![dead] } else { vec![waiting, 99_999] };
        let moved = channels.replay(&desk.election, &ids).await?;
        ensure!(moved == 0, "{moved} that are not dead here were replayed");
        let moved = channels.discard(&desk.election, &ids).await?;
        ensure!(moved == 0, "{moved} that are not dead here were discarded");
    }
    desk.handles(term, "c").await?;
    ensure!(letters(&desk, None).await?.len() == 1, "another election touched it");
    Ok(())
}

async fn letters_are_listed_oldest_first_up_to_a_limit(arena: &Arena<'_>) -> Verdict {
    let desk = Desk::new(arena).await?;
    let posted = desk.post(&[("d", "1", "1"), ("c", "2", "2"), ("c", "3", "3")]).await?;
    let (_leader, term) = leader(arena, "a").await?;
    for channel in ["c", "d", "c"] {
        bury(&desk, term, channel).await?;
    }
    desk.take(term, "c", 2).await?;
    let ids = |letters: &[DeadLetter]| letters.iter().map(|one| one.id).collect::<Vec<_>>();
    let all = letters(&desk, None).await?;
    let due: Vec<u64> = posted.iter().map(|posted| posted.id).collect();
    ensure!(ids(&all) == due, "{due:?} are dead, listed are {all:?}");
    let some = desk.channels()?.dead_letters(&desk.election, Some("c"), 1).await?;
    ensure!(ids(&some) == [due[1]], "one of c was asked for, listed are {some:?}");
    Ok(())
}
