//! The suite of `tenure-testkit` on a real server: bare and under faults.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{BoxFuture, Error, Store, Time};
use tenure_redis::Settle;
use tenure_testkit::conformance::{self, Subject};

use common::Server;

/// Each number is a prefix of its own on one server.
struct Prefixes {
    server: Server,
}

impl Subject for Prefixes {
    fn open(&self, data: u32) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async move {
            let config = self.server.config().with_prefix(format!("{data}:"));
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
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn needs_redis_the_store_keeps_its_contract() {
    conformance::run(&Prefixes { server: Server::start() }).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn needs_redis_the_store_keeps_the_invariants_under_faults() {
    let subject = Prefixes { server: Server::start() };
    for seed in 0..5 {
        conformance::run_under_faults(&subject, seed).await.assert_passed();
    }
}
