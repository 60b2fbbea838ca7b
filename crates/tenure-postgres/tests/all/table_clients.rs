//! Clients of the older design beside tenure, and the faults that the old functions had.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use tenure_core::Reply;
use tokio::runtime::Handle;

use crate::common::{self, Place, Player, granted, now, real_wait, refused};

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_of_fifty_first_calls_one_leads_and_none_fails() {
    let server = common::server();
    let place = Arc::new(Place::new(&server).await);
    for round in 0..5 {
        let mut running = Vec::new();
        for caller in 0..50 {
            let session = place.session().await;
            let sql = format!("SELECT try_become_leader('first {round}', 'c{caller}')");
            running.push(Handle::current().spawn(async move { session.truth(&sql).await }));
        }
        let mut leaders = 0;
        for caller in running {
            leaders += u32::from(caller.await.unwrap());
        }
        assert_eq!(leaders, 1);
        assert_eq!(place.row(&format!("first {round}")).await.1, 1);
    }
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_three_functions_mean_what_they_say() {
    let server = common::server();
    let place = Place::new(&server).await;
    let session = place.session().await;
    let yes = async |sql: &str| session.truth(&format!("SELECT {sql}")).await;
    assert!(yes("try_become_leader('e', 'a', 1)").await);
    assert!(yes("try_become_leader('e', 'a', 1)").await, "the holder refreshes");
    assert!(yes("leader_heartbeat('e', 'a')").await);
    assert!(!yes("leader_heartbeat('e', 'b')").await);
    assert!(!yes("leader_heartbeat('unknown', 'b')").await);
    assert!(!yes("step_down('e', 'b')").await);
    assert_eq!(place.row("e").await, ("a".to_owned(), 1));
    // Giving it up keeps the term.
    assert!(yes("step_down('e', 'a')").await);
    assert!(!yes("step_down('e', 'a')").await);
    assert!(!yes("leader_heartbeat('e', 'a')").await);
    assert!(yes("try_become_leader('e', 'a', 1)").await);
    assert_eq!(place.row("e").await, ("a".to_owned(), 2), "a new term, for the same one too");
    // What ran out is vacant for everyone.
    real_wait(Duration::from_millis(1_050)).await;
    assert!(!yes("leader_heartbeat('e', 'a')").await);
    assert!(!yes("step_down('e', 'a')").await);
    assert!(yes("try_become_leader('e', 'a', 30)").await);
    assert_eq!(place.row("e").await, ("a".to_owned(), 3));
    let empty = session.try_run("SELECT try_become_leader('e', '')").await.unwrap_err();
    assert!(empty.contains("is empty"), "{empty}");
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_timeout_of_the_holder_decides() {
    let server = common::server();
    let place = Place::new(&server).await;
    let session = place.session().await;
    assert!(session.truth("SELECT try_become_leader('e', 'patient', 30)").await);
    real_wait(Duration::from_millis(1_200)).await;
    assert!(!session.truth("SELECT try_become_leader('e', 'hasty', 1)").await);
    let hasty = Player::new(&place.store(), "hasty", 1).with_ttl(Duration::from_secs(1));
    let lease = refused(hasty.acquire("e", 1).await).lease.unwrap();
    assert_eq!(lease.ttl, Some(Duration::from_secs(30)));
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_beat_that_waited_writes_the_time_of_its_writing() {
    let server = common::server();
    let place = Place::new(&server).await;
    let (leader, other) = (place.session().await, place.session().await);
    for call in ["leader_heartbeat('e', 'a')", "try_become_leader('e', 'a', 30)"] {
        assert!(leader.truth("SELECT try_become_leader('e', 'a', 30)").await);
        other.run("BEGIN; SELECT FROM leader_election WHERE service_name = 'e' FOR UPDATE").await;
        let beat = async {
            leader.run("BEGIN").await;
            let beat = leader.truth(&format!("SELECT {call}")).await;
            leader.run("COMMIT").await;
            beat
        };
        let release = async {
            real_wait(Duration::from_millis(600)).await;
            other.run("COMMIT").await;
        };
        assert!(tokio::join!(beat, release).0);
        let age = "SELECT (extract(epoch FROM clock_timestamp() - last_heartbeat) * 1000)::bigint \
                   FROM leader_election WHERE service_name = 'e'";
        let age = other.number(age).await;
        assert!(age < 400, "{call} wrote a time that is {age} ms old");
    }
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_followers_that_poll_hold_up_no_leader() {
    let server = common::server();
    let place = Place::new(&server).await;
    let leader = place.session().await;
    assert!(leader.truth("SELECT try_become_leader('e', 'a', 30)").await);
    let follower = place.session().await;
    follower.run("BEGIN").await;
    assert!(!follower.truth("SELECT try_become_leader('e', 'b', 30)").await);
    // Its transaction is still open, and so would be a lock.
    leader.run("SET lock_timeout = '1s'").await;
    assert!(leader.truth("SELECT leader_heartbeat('e', 'a')").await);
    follower.run("COMMIT").await;
    let ours = Player::new(&place.store(), "ours", 1);
    refused(ours.acquire("e", 1).await);
}

/// Two fleets, one calling the functions and one of tenure's: one holder at any time.
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_mixed_fleet_has_one_leader_and_rising_terms() {
    let server = common::server();
    let place = Arc::new(Place::new(&server).await);
    // Terms in the order in which leaders saw that nobody else led.
    let reigns: Arc<Mutex<Vec<i32>>> = Arc::default();
    let leading: Arc<Mutex<Option<String>>> = Arc::default();
    let enter = |who: &str, leading: &Mutex<Option<String>>| {
        let before = leading.lock().unwrap().replace(who.to_owned());
        assert_eq!(before, None, "{who} leads beside another");
    };
    let leave = |leading: &Mutex<Option<String>>| drop(leading.lock().unwrap().take());
    let mut fleet = Vec::new();
    for member in 0..6_u64 {
        let (place, reigns, leading) = (place.clone(), reigns.clone(), leading.clone());
        fleet.push(Handle::current().spawn(async move {
            let mut rng = Rng::with_seed(member);
            let session = place.session().await;
            let ours = Player::new(&place.store(), "ours", u128::from(member) + 1);
            let theirs = format!("theirs-{member}");
            for seq in 1..=60 {
                real_wait(Duration::from_millis(rng.u64(..8))).await;
                if member % 2 == 0 {
                    let take = format!("SELECT try_become_leader('e', '{theirs}', 30)");
                    if session.truth(&take).await {
                        enter(&theirs, &leading);
                        let (_, term) = place.row("e").await;
                        reigns.lock().unwrap().push(term);
                        leave(&leading);
                        let give = format!("SELECT step_down('e', '{theirs}')");
                        assert!(session.truth(&give).await, "it was its own");
                    }
                } else if let Reply::Granted(grant) = ours.acquire("e", seq).await {
                    enter("ours", &leading);
                    reigns.lock().unwrap().push(grant.term.get() as i32);
                    leave(&leading);
                    loop {
                        match ours.release("e", grant.term, seq).await {
                            Reply::Unknown(_) => {}
                            reply => {
                                granted(reply);
                                break;
                            }
                        }
                    }
                }
            }
        }));
    }
    for member in fleet {
        member.await.unwrap();
    }
    let reigns = reigns.lock().unwrap().clone();
    assert!(reigns.len() > 20, "only {} reigns", reigns.len());
    assert!(reigns.is_sorted_by(|a, b| a < b), "terms only rise: {reigns:?}");
    assert_eq!(place.row("e").await.1, *reigns.last().unwrap());
}

/// Issue 12, item 18: in a fleet of such clients nobody else ends a stuck fence (P3).
#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_functions_alone_end_a_fence_that_is_stuck() {
    let server = common::server();
    let place = Place::new(&server).await;
    let (first, second) = (place.session().await, place.session().await);
    assert!(first.truth("SELECT try_become_leader('e', 'first', 1)").await);
    let (_, term) = place.row("e").await;
    // Not idle: a statement runs, and no timeout of the server's ends it.
    let work = format!("BEGIN; SELECT tenure_fence('e', {term}); SELECT pg_sleep(600)");
    let began = now();
    let stuck = Handle::current().spawn(async move { first.try_run(&work).await });
    let take = "SELECT try_become_leader('e', 'second', 30)";
    while !second.truth(take).await {
        assert!((now() - began) < common::PATIENCE * 2, "nobody ends it");
        real_wait(Duration::from_millis(100)).await;
    }
    assert!((now() - began) > Duration::from_secs(10), "it has its grace");
    assert!(stuck.await.unwrap().is_err(), "its work was undone");
    assert_eq!(place.row("e").await, ("second".to_owned(), term + 1));
}
