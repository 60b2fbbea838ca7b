//! The suite of `tenure-testkit` on a real server, bare and under faults.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{BoxFuture, Error, Store, Time};
use tenure_testkit::conformance::{self, Subject};

use crate::common::{self, Place, now, real_wait};

/// Each number is a schema of its own; each handle has a connection of its own.
struct Server {
    url: String,
    started: Time,
    places: Mutex<HashMap<u32, Arc<Place>>>,
}

impl Server {
    fn new(url: String) -> Server {
        Server { url, started: now(), places: Mutex::default() }
    }
}

impl Subject for Server {
    fn open(&self, data: u32) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async move {
            let known = self.places.lock().unwrap().get(&data).cloned();
            let place = match known {
                Some(place) => place,
                None => {
                    let place = Arc::new(Place::new(&self.url).await);
                    self.places.lock().unwrap().insert(data, place.clone());
                    place
                }
            };
            Ok(Arc::new(place.store()) as Arc<dyn Store>)
        })
    }

    fn now(&self) -> Time {
        Time::from_nanos((now() - self.started).as_nanos() as u64)
    }

    fn wait(&self, span: Duration) -> BoxFuture<'_, ()> {
        Box::pin(real_wait(span))
    }

    fn run_together(&self, work: Vec<BoxFuture<'static, ()>>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let runtime = tokio::runtime::Handle::current();
            for task in work.into_iter().map(|work| runtime.spawn(work)).collect::<Vec<_>>() {
                task.await.unwrap();
            }
        })
    }
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_store_keeps_its_contract() {
    let url = common::server();
    conformance::run(&Server::new(url)).await.assert_passed();
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_store_keeps_the_invariants_under_faults() {
    let url = common::server();
    for seed in 0..5 {
        conformance::run_under_faults(&Server::new(url.clone()), seed).await.assert_passed();
    }
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_store_keeps_the_contract_of_channels() {
    let url = common::server();
    tenure_testkit::channels::run(&Server::new(url)).await.assert_passed();
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_the_store_keeps_a_ledger() {
    let url = common::server();
    tenure_testkit::ledger::run(&Server::new(url)).await.assert_passed();
}
