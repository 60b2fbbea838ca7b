//! The proof of the fence: a leader freezes somewhere in its transaction and is outlived by a
//! successor, at a random instant. The test that runs it decides what it is to show.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tenure_core::{Reply, Term};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::{Place, Player, TTL, granted, real_wait};

pub(crate) const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
pub(crate) const SHORT: Duration = Duration::from_millis(300);

/// What became of the work of the old term.
#[derive(Debug)]
pub(crate) enum Came {
    /// It was committed before the new term began to work.
    InTime,
    /// Nothing of it is there.
    Undone,
    /// It was committed after work of the new term, or in part; says how.
    Stale(String),
}

/// Goes through so many rounds. Each is a seed, and most of it is waiting, so many run at once.
pub(crate) async fn rounds(place: &Place, rounds: u64) -> Vec<Came> {
    place.session().await.run("CREATE TABLE work (round integer, term integer)").await;
    let turns = Arc::new(Semaphore::new(8));
    let mut running = Vec::new();
    for round in 0..rounds {
        let (server, schema) = (place.server.clone(), place.schema.clone());
        let (place, turns) = (Place { server, schema }, turns.clone());
        running.push(Handle::current().spawn(async move {
            let _turn = turns.acquire().await.unwrap();
            frozen_round(&place, round).await
        }));
    }
    let mut came = Vec::new();
    for (round, running) in running.into_iter().enumerate() {
        came.push(running.await.unwrap_or_else(|error| panic!("round {round}: {error}")));
    }
    came
}

async fn frozen_round(place: &Place, round: u64) -> Came {
    let mut rng = Rng::with_seed(round);
    let (store, election) = (place.store(), format!("frozen {round}"));
    // The lease runs out, or is given up too early, while the work of its term goes on.
    let gives_up = rng.bool();
    let ttl = if gives_up { TTL } else { SHORT };
    let old = Player::new(&store, "old", 1).with_ttl(ttl);
    let new = Player::new(&store, "new", 2);
    let term = old.takes(&election, 1).await;

    let frozen = place.session().await;
    let level = LEVELS[(round % 3) as usize];
    // The instant of the freeze: before the fence, after it, or after a write. The snapshot of a
    // stricter level is older than all of it. Silent, the server may end it; in a statement not.
    let (freezes_at, millis, silent) = (rng.usize(..3), rng.u64(100..900), rng.u8(..3) == 0);
    let write = format!("INSERT INTO work VALUES ({round}, {term})");
    let works = async {
        frozen.try_run(&format!("BEGIN ISOLATION LEVEL {level}")).await?;
        frozen.try_run("SELECT count(*) FROM work").await?;
        for (step, sql) in [fence(&election, term), write.clone(), write.clone()].iter().enumerate()
        {
            if step == freezes_at {
                if gives_up {
                    granted(old.release(&election, term, 1).await);
                }
                if silent {
                    real_wait(Duration::from_millis(millis)).await;
                } else {
                    frozen.try_run(&format!("SELECT pg_sleep({millis} / 1000.0)")).await?;
                }
            }
            frozen.try_run(sql).await?;
        }
        frozen.try_run("COMMIT").await
    };
    let succeeds = async {
        let next = next_term(&new, &election).await;
        let session = place.session().await;
        session.run("BEGIN").await;
        session.run(&fence(&election, next)).await;
        session.run(&format!("INSERT INTO work VALUES ({round}, {next})")).await;
        session.run("COMMIT").await;
        (next, written(place, round, term).await)
    };
    let (worked, (next, seen)) = tokio::join!(works, succeeds);
    let after = written(place, round, term).await;
    assert!(next > term);
    // All or nothing, and nothing more once the new term has worked.
    let sound = after == seen && worked.is_ok() == (after == 2);
    match worked {
        Ok(()) if sound => Came::InTime,
        Err(_) if sound => Came::Undone,
        _ => Came::Stale(format!(
            "round {round}, {level}, frozen at {freezes_at} for {millis} ms: {seen} writes of the \
             old term when the new one had worked, {after} in the end, {worked:?}"
        )),
    }
}

pub(crate) fn fence(election: &str, term: Term) -> String {
    format!("SELECT tenure_fence('{election}', {term})")
}

/// Asks until it is granted, as the machine does.
pub(crate) async fn next_term(player: &Player, election: &str) -> Term {
    let mut seq = 0;
    loop {
        seq += 1;
        if let Reply::Granted(grant) = player.acquire(election, seq).await {
            return grant.term;
        }
        real_wait(Duration::from_millis(20)).await;
    }
}

async fn written(place: &Place, round: u64, term: Term) -> i64 {
    let sql = format!("SELECT count(*) FROM work WHERE round = {round} AND term = {term}");
    place.session().await.number(&sql).await
}
