//! Writes that happen under their own term or not at all.

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use tenure_core::{ErrorKind, Term};
use tenure_redis::fence::{Fence, FenceError};

use crate::common::{Player, Server, Stores as _, granted, ms, player, wait};

async fn connect(server: &Server) -> MultiplexedConnection {
    let client = redis::Client::open(server.url()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

fn fence(player: &Player, term: Term) -> Fence {
    Fence::new("", &player.election, term).unwrap()
}

async fn set(
    fence: &Fence,
    connection: &mut MultiplexedConnection,
    value: &str,
) -> Result<(), FenceError> {
    let write = redis::cmd("SET").arg("stock").arg(value).to_owned();
    fence.run(connection, &write, &["stock"]).await
}

#[track_caller]
fn stale(outcome: Result<(), FenceError>) -> Option<Term> {
    match outcome {
        Err(FenceError::Stale(stale)) => stale.latest,
        other => panic!("not stale: {other:?}"),
    }
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_only_the_leader_s_writes_pass() {
    let server = Server::start();
    let mut connection = connect(&server).await;
    for name in ["jobs", "{shop}:jobs", "odd}name", "日本"] {
        let store = server.settled();
        let (a, b) = (player(name, "a", ms(3_000)), player(name, "bb", ms(3_000)));
        let old = a.takes(&store, 1).await.term;
        set(&fence(&a, old), &mut connection, "of the old").await.unwrap();
        granted(a.release(&store, Some(old), 1).await);
        let new = b.takes(&store, 1).await.term;
        assert_eq!(stale(set(&fence(&a, old), &mut connection, "late").await), Some(new));
        set(&fence(&b, new), &mut connection, "of the new").await.unwrap();
        let value: String = connection.get("stock").await.unwrap();
        assert_eq!(value, "of the new", "{name}");
    }
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_lease_that_ended_fences_nothing() {
    let server = Server::start();
    let mut connection = connect(&server).await;
    let (store, a) = (server.settled(), player("jobs", "a", ms(150)));
    let term = a.takes(&store, 1).await.term;
    wait(ms(200)).await;
    let outcome = set(&fence(&a, term), &mut connection, "late").await;
    assert_eq!(stale(outcome), Some(term), "it ran out");
    server.run(&["SET", "jobs", "foreign"]);
    stale(set(&fence(&a, term), &mut connection, "late").await);
    server.run(&["FLUSHALL"]);
    assert_eq!(stale(set(&fence(&a, term), &mut connection, "late").await), None);
    let value: Option<String> = connection.get("stock").await.unwrap();
    assert_eq!(value, None);
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_any_command_can_be_fenced_and_its_answer_is_passed_on() {
    let server = Server::start();
    let mut connection = connect(&server).await;
    let (store, a) = (server.settled(), player("jobs", "a", ms(3_000)));
    let fence = fence(&a, a.takes(&store, 1).await.term);
    let add = redis::cmd("XADD").arg("log").arg("*").arg("what").arg("it's \"\r\n\0").to_owned();
    let id: String = fence.run(&mut connection, &add, &["log"]).await.unwrap();
    assert!(id.contains('-'), "{id}");
    let set = redis::cmd("HSET").arg("hash").arg(&[("a", 1), ("b", 2)]).to_owned();
    let fields: u64 = fence.run(&mut connection, &set, &["hash"]).await.unwrap();
    assert_eq!(fields, 2);
    let wrong = redis::cmd("INCR").arg("hash").to_owned();
    let Err(FenceError::Failed(error)) = fence.run::<u64>(&mut connection, &wrong, &["hash"]).await
    else {
        panic!("a hash can't be counted");
    };
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

/// What people paste from the guide is what we test.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_the_documented_snippet_fences_from_any_language() {
    let guide = include_str!("../../../../docs/moving-from-redis-lease.md");
    let (_, snippet) = guide.split_once("```lua\n").unwrap();
    let (snippet, _) = snippet.split_once("```").unwrap();
    assert_eq!(snippet, tenure_redis::fence::FENCE_LUA);
    let server = Server::start();
    let (store, a) = (server.settled(), player("leader:cron", "a", ms(3_000)));
    let term = a.takes(&store, 1).await.term.get();
    let keys = ["3", "leader:cron", "{leader:cron}:tenure", "invoices"];
    let write = |term: u64| {
        let term = term.to_string();
        let words = [&["EVAL", snippet][..], &keys, &[&term, "RPUSH", "invoices", "4711"]];
        server.run(&words.concat())
    };
    assert_eq!(write(term), ":1");
    let stale = write(term - 1);
    assert!(stale.contains(&format!("TENURESTALE {term}")), "{stale}");
    assert_eq!(server.run(&["LLEN", "invoices"]), ":1");
}
