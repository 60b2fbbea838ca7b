//! A Cluster in trouble: a primary that hangs, slots that move, users that may not do all.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rustix::process::Signal;
use tenure::Candidate;
use tenure_core::{
    Arrival, Channels as _, ErrorKind, Hint, Inbox, Name, Op, Reply, Store, Term, Timing,
};
use tenure_redis::fence::{Fence, FenceError};
use tenure_redis::{RedisConfig, RedisStore, Settle};
use tokio::time::timeout;

use crate::common::fleet::{ClusterSet, PASSWORD};
use crate::common::{self, Player, Server, Stores as _, granted, ms, now, player, unknown, wait};

const TTL: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(30);

fn open(set: &ClusterSet) -> RedisStore {
    set.config().with_settle(Settle::Off).open().unwrap()
}

fn renewal(player: &Player, term: Term) -> Op {
    let Player { election, candidate, ttl } = player.clone();
    Op::Renew { election, candidate, term, ttl }
}

async fn next_hint(hints: &mut Box<dyn tenure_core::Hints>) -> Hint {
    let hint = timeout(PATIENCE, poll_fn(|cx| hints.poll_next(cx))).await;
    hint.expect("a hint").unwrap()
}

async fn next_arrival(inbox: &mut Box<dyn Inbox>) -> Arrival {
    let arrival = timeout(PATIENCE, poll_fn(|cx| inbox.poll_next(cx))).await;
    arrival.expect("an arrival").unwrap()
}

/// Asks until granted.
async fn takes_in_time(store: &RedisStore, player: &Player) -> Term {
    for seq in 1..600 {
        if let Reply::Granted(grant) = player.acquire(store, seq).await {
            return grant.term;
        }
        wait(ms(20)).await;
    }
    panic!("{} was never granted {}", player.candidate, player.election);
}

/// One that hangs is not replaced while a test looks at it.
fn without_failover(set: &ClusterSet) {
    for server in &set.servers {
        assert_eq!(server.run(&["CONFIG", "SET", "cluster-node-timeout", "600000"]), "+OK");
    }
}

/// Gives a slot that has no keys to another primary.
fn move_empty_slot(set: &ClusterSet, slot: &str, from: usize, to: usize) {
    let id = set.servers[to].run(&["CLUSTER", "MYID"]);
    for server in [&set.servers[to], &set.servers[from]] {
        assert_eq!(server.run(&["CLUSTER", "SETSLOT", slot, "NODE", &id]), "+OK");
    }
}

/// The parts of a batch that were answered count, before a driver gives up on all of it.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_primary_that_hangs_does_not_take_the_others_answers_with_it() {
    let set = ClusterSet::start();
    without_failover(&set);
    let store = open(&set);
    let players: Vec<Player> =
        set.a_name_on_each().iter().map(|name| player(name, "a", TTL)).collect();
    let mut renewals = Vec::new();
    for player in &players {
        renewals.push(renewal(player, player.takes(&store, 1).await.term));
    }
    set.servers[1].signal(Signal::STOP);
    // The first hangs on the old connection, those after it on new ones that the kernel took.
    for _ in 0..4 {
        let started = now();
        let replies = store.apply(&renewals).await;
        let took = now() - started;
        assert!(matches!(replies[0], Reply::Granted(_)), "{replies:?}");
        assert!(matches!(replies[1], Reply::Unknown(_)), "{replies:?}");
        assert!(matches!(replies[2], Reply::Granted(_)), "{replies:?}");
        let limit = Timing::new(TTL).call_timeout();
        assert!(took < limit, "a driver gives up after {limit:?}, this took {took:?}");
    }
    set.servers[1].signal(Signal::CONT);
    let mut replies = store.apply(&renewals).await;
    if matches!(replies[1], Reply::Unknown(_)) {
        // It needs some time to wake.
        replies = store.apply(&renewals).await;
    }
    assert!(matches!(replies[1], Reply::Granted(_)), "{replies:?}");
}

#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_leaders_on_other_primaries_lead_on_while_one_hangs() {
    let set = ClusterSet::start();
    without_failover(&set);
    let candidate = Candidate::builder(Arc::new(open(&set))).label("a").build().unwrap();
    let names: Vec<String> = (0..30).map(|number| format!("jobs-{number}")).collect();
    // Together, so that they are renewed together.
    let elections = names.iter().map(|name| candidate.election(name).ttl(TTL).start());
    let elections: Vec<_> = futures_util::future::join_all(elections).await;
    let elections: Vec<_> = elections.into_iter().map(Result::unwrap).collect();
    let reigns = futures_util::future::join_all(elections.iter().map(|one| one.campaign())).await;
    let reigns: Vec<_> = reigns.into_iter().map(Result::unwrap).collect();
    let (hung, well): (Vec<usize>, Vec<usize>) =
        (0..names.len()).partition(|index| set.home_of(&names[*index]) == 1);
    assert!(!hung.is_empty() && well.len() > 10);
    set.servers[1].signal(Signal::STOP);
    for index in &hung {
        timeout(PATIENCE, reigns[*index].ended()).await.expect("nobody renews it");
    }
    // Many more renewals, each beside an acquire that hangs.
    wait(TTL * 2).await;
    for index in &well {
        assert!(reigns[*index].is_current(), "{} was lost", names[*index]);
    }
    set.servers[1].signal(Signal::CONT);
}

/// C3: nor does a runtime that is blocked while it asks for the slots hold up another.
#[needs(redis)]
#[test]
fn needs_redis_a_runtime_that_is_blocked_as_it_looks_for_a_cluster_holds_up_no_other() {
    let set = ClusterSet::start();
    let store = open(&set);
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let blocked = runtime();
    let mut check = pin!(store.check());
    blocked.block_on(poll_fn(|cx| {
        assert!(check.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    }));
    // Nobody drives the first runtime from here on.
    runtime().block_on(async {
        player("jobs", "a", TTL).takes(&store, 1).await;
    });
}

/// One that hangs makes nobody deaf for the others, when it is connected to and later on.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_hints_of_other_primaries_come_in_time_while_one_hangs() {
    let set = ClusterSet::start();
    without_failover(&set);
    let (store, other) = (open(&set), open(&set));
    let a = player(&set.a_name_on_each()[0], "a", TTL * 5);
    a.takes(&store, 1).await;
    let mut hints = store.hints();
    set.servers[1].signal(Signal::STOP);
    let started = now();
    assert_eq!(next_hint(&mut hints).await, Hint::Any);
    granted(a.release(&other, None, 1).await);
    assert_eq!(next_hint(&mut hints).await, Hint::Election(a.election.clone()));
    // To connect to the one that hangs takes three seconds and fails.
    let took = now() - started;
    assert!(took < ms(2_500), "{took:?}");
    set.servers[1].signal(Signal::CONT);
    assert_eq!(next_hint(&mut hints).await, Hint::Any, "it is listened to as well");
}

/// A primary dies. Its replica has another address, and its hints are heard all the same.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_hints_come_from_the_replica_that_took_over() {
    let mut set = ClusterSet::start();
    let (store, other) = (open(&set), open(&set));
    // Its lease outlasts the second that a candidate may take to find the replica.
    let a = player(&set.a_name_on_each()[1], "a", TTL * 2);
    a.takes(&store, 1).await;
    let mut hints = store.hints();
    assert_eq!(next_hint(&mut hints).await, Hint::Any);
    set.servers[1].kill();
    let mut term = None;
    for seq in 2..600 {
        if let Reply::Granted(grant) = a.acquire(&other, seq).await {
            term = Some((grant.term, seq));
            break;
        }
        wait(ms(50)).await;
    }
    let (term, seq) = term.expect("the replica takes over");
    assert_eq!(next_hint(&mut hints).await, Hint::Any, "the replica is listened to");
    granted(a.renew(&other, term).await);
    granted(a.release(&other, Some(term), seq).await);
    loop {
        match next_hint(&mut hints).await {
            Hint::Election(name) => break assert_eq!(name, a.election),
            // The Cluster may change once more.
            _ => granted(a.acquire(&other, seq + 1).await),
        };
    }
}

/// A primary is given a slot below all that it had. Who asks for the slots now and who asked
/// before talk of the same channel.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_notices_are_heard_wherever_slots_go() {
    let set = ClusterSet::start();
    let store = open(&set);
    let name = set.a_name_on_each().swap_remove(1);
    let election = Name::new(&name).unwrap();
    let channels = ["c".to_owned()];
    let mut inbox = store.listen(&election, Term::FIRST, &channels).await.unwrap();
    let notice = |text: &str| Arrival::Notice { channel: "c".to_owned(), payload: text.to_owned() };
    store.notify(&election, "c", "0").await.unwrap();
    assert_eq!(next_arrival(&mut inbox).await, notice("0"));
    move_empty_slot(&set, "0", 0, 1);
    set.servers[2].until(&["CLUSTER", "NODES"], " 0 5461-10922");
    let fresh = open(&set);
    fresh.notify(&election, "c", "1").await.unwrap();
    store.notify(&election, "c", "2").await.unwrap();
    for text in ["1", "2"] {
        assert_eq!(next_arrival(&mut inbox).await, notice(text));
    }
    // Its own slot goes elsewhere.
    let slot = set.servers[0].run(&["CLUSTER", "KEYSLOT", &name]);
    move_empty_slot(&set, slot.trim_start_matches(':'), 1, 2);
    assert_eq!(next_arrival(&mut inbox).await, Arrival::Gap);
    store.notify(&election, "c", "3").await.unwrap();
    assert_eq!(next_arrival(&mut inbox).await, notice("3"));
}

/// The same for hints, whose channel belongs to the primary: who listens finds out by itself.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_hints_are_heard_after_a_primary_got_a_lower_slot() {
    let set = ClusterSet::start();
    let store = open(&set);
    let a = player(&set.a_name_on_each()[1], "a", TTL * 20);
    a.takes(&store, 1).await;
    let mut hints = store.hints();
    assert_eq!(next_hint(&mut hints).await, Hint::Any);
    // Not the lowest of the one that had it: nobody who listens is told.
    move_empty_slot(&set, "5000", 0, 1);
    for server in &set.servers {
        server.until(&["CLUSTER", "NODES"], " 5000 5461-10922");
    }
    assert_eq!(next_hint(&mut hints).await, Hint::Any, "it listens on the new channel");
    granted(a.release(&open(&set), None, 1).await);
    assert_eq!(next_hint(&mut hints).await, Hint::Election(a.election.clone()));
}

/// A slot is on its way to a server that has none yet.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_lease_is_renewed_on_its_way_to_a_primary_without_slots() {
    let set = ClusterSet::start();
    let bus = common::free_port().to_string();
    let new = Server::start_with(&["--cluster-enabled", "yes", "--cluster-port", &bus]);
    let port = new.port.to_string();
    assert_eq!(set.servers[0].run(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]), "+OK");
    new.until(&["CLUSTER", "INFO"], "cluster_known_nodes:7");
    new.until(&["CLUSTER", "INFO"], "cluster_state:ok");
    for (settle, endpoint) in [
        (Settle::Off, "ip"),
        (Settle::For(ms(500)), "ip"),
        // Then they tell ports without a host, in ASK too.
        (Settle::Off, "unknown-endpoint"),
    ] {
        for server in set.servers.iter().chain([&new]) {
            let set = ["CONFIG", "SET", "cluster-preferred-endpoint-type", endpoint];
            assert_eq!(server.run(&set), "+OK");
        }
        let store = set.config().with_settle(settle).open().unwrap();
        let name = format!("way-{}-{endpoint}", matches!(settle, Settle::Off));
        let (from, a) = (&set.servers[set.home_of(&name)], player(&name, "a", TTL));
        let term = takes_in_time(&store, &a).await;
        let slot = from.run(&["CLUSTER", "KEYSLOT", &name]).trim_start_matches(':').to_owned();
        let ids = [from.run(&["CLUSTER", "MYID"]), new.run(&["CLUSTER", "MYID"])];
        assert_eq!(new.run(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[0]]), "+OK");
        assert_eq!(from.run(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[1]]), "+OK");
        for key in [name.clone(), format!("{{{name}}}:tenure")] {
            assert_eq!(from.run(&["MIGRATE", "127.0.0.1", &port, &key, "0", "1000"]), "+OK");
        }
        // Nobody else on the map has the keys.
        assert_eq!(granted(a.renew(&store, term).await).term, term);
        let error = unknown(player(&name, "bb", TTL).acquire(&store, 1).await);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}

/// A user that may use plain channels and no sharded ones tells nobody, and hears of it.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_notice_that_nobody_can_hear_is_an_error() {
    let set = ClusterSet::start();
    let password = format!(">{PASSWORD}");
    let words = ["ACL", "SETUSER", "plain", "on", &password, "~*", "&*", "+@all", "-spublish"];
    for server in &set.servers {
        assert_eq!(server.run(&words), "+OK");
    }
    let url = set.url().replace("://", &format!("://plain:{PASSWORD}@"));
    let store = RedisConfig::from_url(&format!("{url}?settle=off")).unwrap().open().unwrap();
    let error = store.notify(&Name::new("jobs").unwrap(), "c", "1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.message().contains("it lacks +spublish;"), "{error}");
}

/// The fence on a Cluster: keys of the election's slot, and no others.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_fence_guards_the_keys_of_its_slot() {
    let set = ClusterSet::start();
    let store = open(&set);
    for name in ["jobs", "{shop}:jobs"] {
        let (a, b) = (player(name, "a", TTL), player(name, "bb", TTL));
        let term = a.takes(&store, 1).await.term;
        let tag = if name == "jobs" { "{jobs}" } else { "{shop}" };
        let server = &set.servers[set.home_of(name)];
        let client = redis::Client::open(server.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut write = async |term: Term, key: &str| {
            let fence = Fence::new("", &a.election, term).unwrap();
            let write = redis::cmd("SET").arg(key).arg("1").to_owned();
            fence.run::<()>(&mut connection, &write, &[key]).await
        };
        let near = format!("{tag}:stock");
        write(term, &near).await.unwrap();
        let Err(FenceError::Failed(error)) = write(term, "elsewhere").await else {
            panic!("a key of another slot was written");
        };
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.message().contains("give them the same hash tag"), "{error}");
        granted(a.release(&store, Some(term), 1).await);
        b.takes(&store, 1).await;
        assert!(matches!(write(term, &near).await, Err(FenceError::Stale(_))), "{name}");
    }
}
