//! The suite of `tenure-testkit` on real servers of each kind: bare and under faults.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{BoxFuture, Error, Store, Time};
use tenure_redis::{RedisConfig, Settle};
use tenure_testkit::conformance::{self, Subject};

use common::Server;
use common::fleet::{ClusterSet, Secured, SentinelSet};

/// Each number is a prefix of its own.
struct Prefixes {
    config: RedisConfig,
    in_cluster: bool,
}

impl Prefixes {
    fn at(url: &str) -> Prefixes {
        let config = RedisConfig::from_url(url).unwrap();
        Prefixes { config, in_cluster: url.starts_with("redis+cluster") }
    }
}

impl Subject for Prefixes {
    fn open(&self, data: u32) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async move {
            let config = self.config.clone().with_prefix(format!("{data}:"));
            // Settling has tests of its own; here every number is a server's first.
            let store = config.with_settle(Settle::Off).open()?;
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    }

    fn now(&self) -> Time {
        common::now()
    }

    fn wait(&self, span: Duration) -> BoxFuture<'_, ()> {
        Box::pin(common::wait(span))
    }

    fn run_together(&self, work: Vec<BoxFuture<'static, ()>>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let runtime = tokio::runtime::Handle::current();
            for task in work.into_iter().map(|work| runtime.spawn(work)).collect::<Vec<_>>() {
                task.await.unwrap();
            }
        })
    }

    fn exempt(&self, _topic: &str, case: &str) -> Option<String> {
        // The second names an election after a label that is `{}`.
        let braces = self.in_cluster && (case.contains("braces") || case.contains("odd labels"));
        braces.then(|| "a Cluster refuses names with odd braces (R4)".to_owned())
    }
}

async fn passes(url: &str, seeds: std::ops::Range<u64>) {
    let subject = Prefixes::at(url);
    conformance::run(&subject).await.assert_passed();
    for seed in seeds {
        conformance::run_under_faults(&subject, seed).await.assert_passed();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn needs_redis_the_store_keeps_its_contract() {
    let server = Server::start();
    passes(&server.url(), 0..5).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn needs_redis_the_store_keeps_its_contract_with_tls_and_an_acl_user() {
    let secured = Secured::start();
    passes(&secured.url(), 10..12).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn needs_redis_the_store_keeps_its_contract_under_sentinel() {
    let set = SentinelSet::start();
    passes(&set.url(), 20..22).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn needs_redis_the_store_keeps_its_contract_on_a_cluster() {
    let set = ClusterSet::start();
    passes(&set.url(), 30..32).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn needs_redis_the_store_keeps_its_contract_while_it_waits_for_replicas() {
    let set = SentinelSet::start();
    passes(&format!("{}?wait_replicas=1", set.url()), 40..41).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn needs_redis_the_store_keeps_a_ledger() {
    let server = Server::start();
    tenure_testkit::ledger::run(&Prefixes::at(&server.url())).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn needs_redis_the_store_keeps_a_ledger_on_a_cluster() {
    let set = ClusterSet::start();
    tenure_testkit::ledger::run(&Prefixes::at(&set.url())).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn needs_redis_the_store_carries_messages() {
    let server = Server::start();
    tenure_testkit::channels::run(&Prefixes::at(&server.url())).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn needs_redis_the_store_carries_messages_on_a_cluster() {
    let set = ClusterSet::start();
    tenure_testkit::channels::run(&Prefixes::at(&set.url())).await.assert_passed();
}
