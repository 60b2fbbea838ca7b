//! `tenure forget` on every kind of store: the name is gone, its term is not.
#![cfg(all(feature = "postgres", feature = "redis", feature = "sqlite"))]

use serde_json::Value;

use crate::servers::{self, Postgres};
use crate::support::{Done, Place, Process, finish};

/// The command on one store.
struct Store {
    place: Place,
    url: String,
    election: String,
}

impl Store {
    fn new(url: String) -> Store {
        // Advisory locks are the database's, not the schema's.
        let election = format!("preview {}", std::process::id());
        Store { place: Place::new(), url, election }
    }

    fn tenure(&self, args: &[&str]) -> Done {
        finish(self.place.command(args).env("TENURE_STORE", &self.url))
    }

    /// One reign, and its term.
    fn reign(&self) -> u64 {
        let args = ["run", &self.election, "--once", "--", "sh", "-c", "echo $TENURE_TERM"];
        let done = self.tenure(&args);
        assert_eq!(done.code, 0, "{}: {done:?}", self.url);
        done.out.trim().parse().unwrap()
    }

    /// The elections that `status` lists.
    fn listed(&self) -> Vec<String> {
        let done = self.tenure(&["status", "--json"]);
        let name = |line: &str| {
            let object: Value = serde_json::from_str(line).unwrap();
            object["election"].as_str().unwrap().to_owned()
        };
        done.out.lines().map(name).collect()
    }

    /// The same story on each kind of store.
    fn forgets(&self) {
        let election = &*self.election;
        let forget = || self.tenure(&["forget", election]);
        let never = forget();
        assert_eq!(never.code, 1, "{never:?}");
        assert!(never.err.contains("is not known here"), "{never:?}");

        let first = self.reign();
        let args = ["campaign", election, "--ttl", "10m", "--at-once", "--json"];
        let mut campaign = self.place.command(&args);
        let mut leader = Process::new(campaign.env("TENURE_STORE", &self.url));
        let term = leader.event("elected")["term"].as_u64().unwrap();
        assert!(term > first, "{term} after {first}");
        let led = forget();
        assert_eq!(led.code, 1, "{led:?}");
        assert!(led.err.contains("has a leader, and stays"), "{led:?}");
        assert_eq!(self.listed(), [election]);
        leader.signal(rustix::process::Signal::TERM);
        leader.code();

        let posted = self.tenure(&["post", election, "orders", "{\"id\":7}"]);
        assert_eq!(posted.code, 0, "{posted:?}");
        let done = self.tenure(&["forget", election, "another", "--json"]);
        assert_eq!(done.code, 1, "one of them was not known: {done:?}");
        let told: Vec<Value> =
            done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let outcomes: Vec<(&str, &str)> = told
            .iter()
            .map(|told| (told["election"].as_str().unwrap(), told["outcome"].as_str().unwrap()))
            .collect();
        assert_eq!(outcomes, [(election, "forgotten"), ("another", "unknown")]);
        assert_eq!(self.listed(), [""; 0], "{}", self.url);
        assert_eq!(forget().code, 1, "it is forgotten already");

        let next = self.reign();
        assert!(next > term, "I2: {next} after {term} on {}", self.url);
        let status = self.tenure(&["status", "--json", election]);
        let status: Value = serde_json::from_str(&status.out).unwrap();
        assert_eq!(status["last_term"].as_u64(), Some(next));
        let done = forget();
        assert_eq!(done.code, 0, "{done:?}");
        assert!(done.err.contains("is forgotten; its last term is kept"), "{done:?}");
    }
}

#[test]
fn an_election_is_forgotten_on_sqlite() {
    let place = Place::new();
    Store::new(place.url()).forgets();
}

#[needs(redis)]
#[test]
fn needs_redis_an_election_is_forgotten_on_redis() {
    let server = servers::redis();
    let store = Store::new(format!("{}?settle=off", server.url()));
    store.forgets();
    // Its term alone, and what the server's run and the key of the post are known by.
    let keys = server.run(&["EVAL", "return table.concat(redis.call('KEYS', '*'), ' ')", "0"]);
    assert!(keys.contains(":tenure:kept"), "{keys}");
    for gone in [":tenure ", ":mail:waits", ":mail:channels", ":mail:keys"] {
        assert!(!format!("{keys} ").contains(gone), "{keys}");
    }
}

#[needs(postgres)]
#[test]
fn needs_postgres_an_election_is_forgotten_in_the_table_and_by_advisory_locks() {
    let postgres = Postgres::connect();
    let (_, rest) = postgres.url.split_once("://").unwrap();
    for scheme in ["postgres", "postgres+advisory"] {
        let kind = scheme.replace("postgres", "forget").replace('+', "_");
        let schema = format!("{kind}_{}", std::process::id());
        let store = Store::new(format!("{scheme}://{rest}?schema={schema}"));
        let migrated = store.tenure(&["migrate"]);
        assert_eq!(migrated.code, 0, "{migrated:?}");
        store.forgets();
        postgres.run(&format!("DROP SCHEMA {schema} CASCADE"));
    }
    // Without the tables nothing is kept of an election.
    let url = format!("postgres+advisory://{rest}?schema=forget_no_{}", std::process::id());
    let done = Store::new(url).tenure(&["forget", "anything"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.err.contains("the election is gone with its lock"), "{done:?}");
}
