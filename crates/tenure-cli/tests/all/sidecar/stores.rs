//! The same answers on every store that has a server.

use super::instance::Instance;
use crate::common::eventually;
use crate::servers::{self, Postgres};
use crate::support::{Place, finish};

/// One leads, one follows; a message is taken; who resigns hands over.
fn works_on(place: &Place, store: &str) {
    // An election is of one kind: the tests of both kinds share a database.
    let kind = store.split(':').next().unwrap();
    let name = format!("smoke-{}-{kind}", std::process::id());
    let more = ["-e", &name, "--ttl", "3s"];
    let first = Instance::start_on(place, store, "web-1", &more);
    first.leads();
    let second = Instance::start_on(place, store, "web-2", &more);
    eventually("the follower knows that somebody leads", || {
        let answer = second.get("/leader");
        (answer.status == 503 && answer.json()["leader"].is_string()).then_some(())
    });
    let term = first.get("/leader").json()["term"].as_u64().unwrap();
    for instance in [&first, &second] {
        let sent = instance.post(&format!("/elections/{name}/notify/wake"), "{\"n\": 7}");
        assert_eq!(sent.status, 202, "{sent:?}");
        assert_eq!(instance.get("/healthz").status, 200);
        // Who leads can be asked of the store before the election itself has been answered.
        eventually("ready", || (instance.get("/readyz").status == 200).then_some(()));
    }
    let resigned = first.resign(&name);
    assert_eq!((resigned.status, &resigned.json()["outcome"]), (200, &"resigned".into()));
    second.leads();
    assert!(second.get("/leader").json()["term"].as_u64().unwrap() > term);
    assert_eq!(first.get("/leader").status, 503);
    // Through the store: the follower passes it on.
    let asked = first.resign(&name);
    assert_eq!((asked.status, &asked.json()["outcome"]), (202, &"asked".into()));
    eventually("it has resigned", || (second.get("/leader").status == 503).then_some(()));
}

#[needs(postgres)]
#[test]
fn needs_postgres_the_sidecar_works_on_a_table() {
    let (server, place) = (Postgres::connect(), Place::new());
    assert_eq!(finish(place.command(&["migrate"]).env("TENURE_STORE", &server.url)).code, 0);
    works_on(&place, &server.url);
}

#[needs(postgres)]
#[test]
fn needs_postgres_the_sidecar_works_on_advisory_locks() {
    let (server, place) = (Postgres::connect(), Place::new());
    // Other tests make tables in this database, and nobody campaigns without them then.
    assert_eq!(finish(place.command(&["migrate"]).env("TENURE_STORE", &server.url)).code, 0);
    works_on(&place, &server.url.replacen("postgres://", "postgres+advisory://", 1));
}

#[needs(redis)]
#[test]
fn needs_redis_the_sidecar_works_on_a_server() {
    let (server, place) = (servers::redis(), Place::new());
    works_on(&place, &format!("{}?settle=off", server.url()));
}

/// R6: what an operator deletes by hand is still led, and is shown so.
#[needs(redis)]
#[test]
fn needs_redis_deleting_the_key_frees_no_lease_and_resigning_does() {
    let (server, place) = (servers::redis(), Place::new());
    let store = format!("{}?settle=off", server.url());
    let more = ["-e", "jobs", "--ttl", "30s"];
    let first = Instance::start_on(&place, &store, "web-1", &more);
    first.leads();
    assert_eq!(server.ask("DEL jobs").as_deref(), Some(":1"));
    let status = finish(place.command(&["status", "jobs", "--json"]).env("TENURE_STORE", &store));
    assert!(status.code == 0 && status.out.contains("web-1"), "{status:?}");
    let second = Instance::start_on(&place, &store, "web-2", &more);
    eventually("the follower knows that somebody leads", || {
        let answer = second.get("/leader");
        (answer.status == 503 && answer.json()["leader"].is_string()).then_some(())
    });
    assert_eq!(first.get("/leader").status, 200);
    assert_eq!(finish(place.command(&["resign", "jobs"]).env("TENURE_STORE", &store)).code, 0);
    second.leads();
    assert_eq!(first.get("/leader").status, 503);
}
