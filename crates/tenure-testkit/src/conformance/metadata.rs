//! What a leader publishes.

use serde_json::Value;
use tenure_core::Metadata;

use super::arena::{Arena, Stop, Verdict, Want, ensure, granted, is_held_by, refused};
use super::cases;

cases![
    odd_json_is_kept,
    four_kib_are_kept,
    a_refused_acquire_shows_the_holders_metadata,
    metadata_belongs_to_one_term,
];

async fn odd_json_is_kept(arena: &Arena<'_>) -> Verdict {
    let odd = [
        "{}",
        r#"{"":""}"#,
        r#"{"quotes":"it's \"so\"","path":"C:\\x\\y","lines":"a\nb\tc"}"#,
        r#"{"sql":"'; DROP TABLE leases; --","lua":"]] .. 'x'","format":"%s %d 100%"}"#,
        r#"{"unicode":"Büro 日本 💣","escaped":"\u00e9\ud83d\udca3"}"#,
        r#"{"deep":{"a":[1,2,[3,{"b":null}]],"t":true,"f":false}}"#,
        r#"{"negative":-12.5,"big":9007199254740991}"#,
        r#"{"spaced" : [ 1 , 2 ] }"#,
    ];
    for (index, json) in odd.into_iter().enumerate() {
        is_kept(arena, index, json).await?;
    }
    Ok(())
}

async fn four_kib_are_kept(arena: &Arena<'_>) -> Verdict {
    let frame = r#"{"a":""}"#.len();
    let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(Metadata::MAX_BYTES - frame));
    is_kept(arena, 0, &long).await
}

/// The same value, that is: a store may write the JSON in a form of its own.
async fn is_kept(arena: &Arena<'_>, index: usize, json: &str) -> Verdict {
    let a = arena.player("a")?.within(&arena.other_election(index)?);
    let want = Want { metadata: Some(Metadata::new(json)?), ..Want::default() };
    let term = granted("an acquire with metadata", a.acquire(want).await)?.term;
    let reply = arena.player("b")?.within(&a.election).acquire(Want::default()).await;
    let lease = is_held_by(refused("a held lease", reply)?, &a, term)?;
    let kept = lease.metadata.as_ref().map(Metadata::as_str);
    let Some(kept) = kept else {
        return Err(Stop::Failed(format!("{json} was published, and nothing is there")));
    };
    ensure!(value(kept)? == value(json)?, "{json} became {kept}");
    Ok(())
}

fn value(json: &str) -> Result<Value, Stop> {
    serde_json::from_str(json).map_err(|error| Stop::Failed(format!("{json}: {error}")))
}

async fn a_refused_acquire_shows_the_holders_metadata(arena: &Arena<'_>) -> Verdict {
    is_kept(arena, 0, r#"{"url":"http://10.0.0.7:8080"}"#).await
}

async fn metadata_belongs_to_one_term(arena: &Arena<'_>) -> Verdict {
    let (a, b) = (arena.player("a")?, arena.player("b")?);
    let metadata = Some(Metadata::new(r#"{"of":"a"}"#)?);
    let want = Want { metadata, ..Want::default() };
    let term = granted("a vacant election", a.acquire(want).await)?.term;
    granted("a release", a.release(Some(term)).await)?;
    let term = b.takes().await?.term;
    let lease = is_held_by(arena.read().await?, &b, term)?;
    ensure!(lease.metadata.is_none(), "the successor shows its predecessor's {lease:?}");
    Ok(())
}
