//! Names are data, whatever is in them.

use tenure_core::{CandidateId, Name, StoreExt};

use super::arena::{Arena, Verdict, Want, ensure, granted, is_held_by, refused_for};
use super::cases;

cases![
    odd_names_are_elections_like_any_other,
    braces_are_data,
    the_longest_name_is_kept_whole,
    names_that_look_alike_are_different_elections,
    odd_labels_are_kept_as_they_are,
];

const ODD: [&str; 22] = [
    "Büro:日本:émigré",
    "💣🧨 boom",
    "it's",
    "\"quoted\"",
    "`ticked`",
    "'; DROP TABLE leases; --",
    "1 OR 1=1",
    "a:b:c:",
    "::",
    "100%",
    "%s %d %n",
    "under_score",
    "star*?[a-z]",
    "$1 $$ ${x} $(y)",
    "back\\slash\\n",
    "../../etc/passwd",
    "/",
    "#fragment?query=1&x=2",
    "NULL",
    "null",
    "0",
    "\u{202e}thgir ot tfel",
];

async fn odd_names_are_elections_like_any_other(arena: &Arena<'_>) -> Verdict {
    each_is_its_own(arena, &ODD).await
}

async fn braces_are_data(arena: &Arena<'_>) -> Verdict {
    each_is_its_own(arena, &["{tag}", "a{b}c", "{", "a}b", "a{}b", "}{"]).await
}

async fn the_longest_name_is_kept_whole(arena: &Arena<'_>) -> Verdict {
    let same = "x".repeat(Name::MAX_BYTES - 1);
    let wide = "日".repeat(Name::MAX_BYTES / 3);
    each_is_its_own(arena, &[&format!("{same}1"), &format!("{same}2"), &same, &wide]).await
}

async fn names_that_look_alike_are_different_elections(arena: &Arena<'_>) -> Verdict {
    let alike = ["case", "Case", "CASE", "case ", " case", "case  ", "cas\u{e9}", "case\u{301}"];
    each_is_its_own(arena, &alike).await
}

/// Each name is taken by a candidate of its own and found again on another handle.
async fn each_is_its_own(arena: &Arena<'_>, names: &[&str]) -> Verdict {
    let other = arena.another_handle().await?;
    let mut held = Vec::new();
    for name in names {
        let player = arena.player(&format!("holder {}", held.len()))?.within(&Name::new(name)?);
        let reply = player.acquire(Want::default()).await;
        let term = granted(&format!("the vacant election {name:?}"), reply)?.term;
        held.push((player, term));
    }
    for (player, term) in &held {
        is_held_by(other.read(&player.election).await?, player, *term)?;
        let what = format!("a renewal of {:?}", player.election);
        granted(&what, player.renew(*term).await)?;
    }
    for (player, term) in &held {
        let what = format!("a release of {:?}", player.election);
        granted(&what, player.release(Some(*term)).await)?;
        let sight = other.read(&player.election).await?;
        ensure!(sight.lease.is_none(), "{:?} is still held: {sight:?}", player.election);
    }
    Ok(())
}

async fn odd_labels_are_kept_as_they_are(arena: &Arena<'_>) -> Verdict {
    let long = "é".repeat(CandidateId::MAX_LABEL_BYTES / 2);
    for label in ODD.into_iter().chain(["host:1", "a#b", "a#", " ", "{}", &long]) {
        let election = arena.other_election(label)?;
        let (a, b) = (arena.player(label)?.within(&election), arena.player("b")?.within(&election));
        let term = a.takes().await?.term;
        let lease = refused_for("a held lease", b.acquire(Want::default()).await, &a, term)?;
        ensure!(lease.holder.label() == label, "{label:?} became {:?}", lease.holder.label());
        granted("a renewal", a.renew(term).await)?;
    }
    Ok(())
}
