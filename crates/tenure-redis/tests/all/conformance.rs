//! The suite of `tenure-testkit` on real servers of each kind: bare and under faults.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{BoxFuture, Error, Store, Time};
use tenure_redis::{RedisConfig, Settle};
use tenure_testkit::conformance::{self, Subject};

use crate::common::fleet::{ClusterSet, PASSWORD, Secured, SentinelSet, documented_acl};
use crate::common::{self, Server};

/// Each number is a prefix of its own.
struct Prefixes {
    config: RedisConfig,
    in_cluster: bool,
    /// What all of them begin with.
    stem: &'static str,
}

impl Prefixes {
    fn at(url: &str) -> Prefixes {
        let config = RedisConfig::from_url(url).unwrap();
        Prefixes { config, in_cluster: url.starts_with("redis+cluster"), stem: "" }
    }

    /// As the user that the README makes.
    fn as_documented_user(url: &str) -> Prefixes {
        let url = url.replace("://", &format!("://tenure:{PASSWORD}@"));
        Prefixes { stem: "app:", ..Prefixes::at(&url) }
    }
}

impl Subject for Prefixes {
    fn open(&self, data: u32) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async move {
            let config = self.config.clone().with_prefix(format!("{}{data}:", self.stem));
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

#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_the_store_keeps_its_contract() {
    let server = Server::start();
    passes(&server.url(), 0..5).await;
}

#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_the_store_keeps_its_contract_with_tls_and_an_acl_user() {
    let secured = Secured::start();
    passes(&secured.url(), 10..12).await;
}

#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_the_store_keeps_its_contract_under_sentinel() {
    let set = SentinelSet::start();
    passes(&set.url(), 20..22).await;
}

#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_the_store_keeps_its_contract_on_a_cluster() {
    let set = ClusterSet::start();
    passes(&set.url(), 30..32).await;
}

#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_the_store_keeps_its_contract_while_it_waits_for_replicas() {
    let set = SentinelSet::start();
    passes(&format!("{}?wait_replicas=1", set.url()), 40..41).await;
}

#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_the_store_keeps_a_ledger() {
    let server = Server::start();
    tenure_testkit::ledger::run(&Prefixes::at(&server.url())).await.assert_passed();
}

#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_the_store_keeps_a_ledger_on_a_cluster() {
    let set = ClusterSet::start();
    tenure_testkit::ledger::run(&Prefixes::at(&set.url())).await.assert_passed();
}

#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_the_store_carries_messages() {
    let server = Server::start();
    tenure_testkit::channels::run(&Prefixes::at(&server.url())).await.assert_passed();
}

#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_the_store_carries_messages_on_a_cluster() {
    let set = ClusterSet::start();
    tenure_testkit::channels::run(&Prefixes::at(&set.url())).await.assert_passed();
}

/// The documented user, with the channels of `app:1:`, `app:2:` and so on.
fn acl_of_many_prefixes() -> Vec<String> {
    let words = documented_acl("app:").into_iter();
    words.map(|word| word.replace("&app:", "&app:*:")).collect()
}

/// What the README says is enough, is enough for all that a store does.
#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_the_documented_privileges_are_enough_for_messages_and_cron() {
    let server = Server::start();
    let words = acl_of_many_prefixes();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_eq!(server.run(&words), "+OK");
    let subject = Prefixes::as_documented_user(&server.url());
    tenure_testkit::ledger::run(&subject).await.assert_passed();
    tenure_testkit::channels::run(&subject).await.assert_passed();
}

#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_the_documented_privileges_are_enough_for_messages_and_cron_on_a_cluster() {
    let set = ClusterSet::start();
    let mut words = acl_of_many_prefixes();
    let more = ["+cluster|slots", "+spublish", "+ssubscribe", "+sunsubscribe", "+asking"];
    words.extend(more.map(str::to_owned));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    for server in &set.servers {
        assert_eq!(server.run(&words), "+OK");
    }
    let subject = Prefixes::as_documented_user(&set.url());
    tenure_testkit::ledger::run(&subject).await.assert_passed();
    tenure_testkit::channels::run(&subject).await.assert_passed();
}
