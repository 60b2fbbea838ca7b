//! How many connections a candidate needs: what the README says, and no more.

use std::sync::Arc;
use std::time::Duration;

use tenure::{Candidate, Election, Messenger};
use tenure_redis::RedisStore;

use crate::common::{Server, Stores as _, ms, wait};

const TTL: Duration = Duration::from_secs(20);

/// How many clients the server has, without the one that asks.
fn connections(server: &Server) -> usize {
    server.run(&["CLIENT", "LIST"]).lines().filter(|line| line.starts_with("id=")).count() - 1
}

/// Waits until so many candidates listen for hints.
async fn listening(server: &Server, count: usize) {
    let script = "return redis.call('PUBSUB', 'NUMSUB', 'tenure:hints:0')[2]";
    for _ in 0..500 {
        if server.run(&["EVAL", script, "0"]) == format!(":{count}") {
            return;
        }
        wait(ms(10)).await;
    }
    panic!("{count} candidates never listened");
}

fn election(name: &str, store: RedisStore, label: &str) -> tenure::ElectionBuilder {
    Election::builder(name, Arc::new(store)).label(label).ttl(TTL)
}

#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_candidate_has_two_connections_and_with_messages_three() {
    let server = Server::start();
    let leader = election("jobs", server.settled(), "leader").start().await.unwrap();
    let reign = leader.campaign().await.unwrap();
    listening(&server, 1).await;
    assert_eq!(connections(&server), 2, "a leader: one for leases, one to listen");

    let follower = election("jobs", server.settled(), "follower").start().await.unwrap();
    listening(&server, 2).await;
    assert_eq!(connections(&server), 4, "a follower has as many");

    // Its messages are taken on the program's own runtime, which has a connection of its own (C3).
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let store = server.settled();
    let messenger = Messenger::new("mail", Arc::new(store.clone())).unwrap();
    let tell_posts = tell.clone();
    let listener = election("mail", store, "listener")
        .on_notify("notices", move |message| tell.send(message.payload).unwrap_or_default())
        .on_post("posts", move |message| {
            let told = tell_posts.send(message.payload);
            async move { told.map_err(|_| "nobody waits") }
        });
    let listener = listener.start().await.unwrap();
    let listens = listener.campaign().await.unwrap();
    messenger.notify("notices", "1").await.unwrap();
    messenger.post("posts", "2", "key").await.unwrap();
    let heard = [told.recv().await.unwrap(), told.recv().await.unwrap()];
    assert!(heard.contains(&"1".to_owned()) && heard.contains(&"2".to_owned()), "{heard:?}");
    listening(&server, 3).await;
    assert_eq!(connections(&server), 4 + 3, "with messages: one more for those");
    drop((reign, listens, follower));
}

/// All handles of a store share what it listens on.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_candidates_on_one_store_listen_on_one_connection() {
    let server = Server::start();
    let store = server.settled();
    let mut elections = Vec::new();
    for label in ["a", "b", "c"] {
        let candidate = Candidate::builder(Arc::new(store.clone())).label(label).build().unwrap();
        elections.push(candidate.election("jobs").ttl(TTL).start().await.unwrap());
    }
    listening(&server, 1).await;
    assert_eq!(connections(&server), 3 + 1, "each has a thread and a connection for leases");
    drop(elections);
    for _ in 0..500 {
        if connections(&server) == 0 {
            return;
        }
        wait(ms(10)).await;
    }
    panic!("{} connections are left", connections(&server));
}
