//! What a bench measures on: a store, and a raw call to the same store as the yardstick.

use std::env;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use tempfile::TempDir;
use tenure::{BootClock, Election, Store};

use crate::fleet;

/// The engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Sqlite,
    Postgres,
    Advisory,
    Redis,
}

impl Engine {
    /// How much a leader's successor may be late beyond the ttl, by the project's own bars.
    pub(crate) fn late_ms(self) -> f64 {
        match self {
            Engine::Sqlite | Engine::Redis => 100.0,
            Engine::Postgres | Engine::Advisory => 250.0,
        }
    }
}

/// One store to measure on, with a name that no other bench uses.
pub(crate) struct Ground {
    pub(crate) engine: Engine,
    pub(crate) election: String,
    pub(crate) url: String,
    directory: TempDir,
}

impl Ground {
    /// The file of its own, or the server that `cargo xtask bench` has started.
    pub(crate) fn new(engine: Engine) -> Result<Ground> {
        let directory = fleet::scratch()?;
        let url = match engine {
            Engine::Sqlite => format!("sqlite:{}", directory.path().join("tenure.db").display()),
            Engine::Postgres => server("TENURE_TEST_POSTGRES")?,
            Engine::Advisory => {
                let url = server("TENURE_TEST_POSTGRES")?;
                url.replacen("postgres://", "postgres+advisory://", 1)
            }
            Engine::Redis => server("TENURE_BENCH_REDIS")?,
        };
        if engine == Engine::Postgres {
            let store = tenure::open(&url)?;
            let migrate = store.migrate().context("this store has no migrations")?;
            block_on(async { Ok(migrate.run().await?) })?;
        }
        if engine == Engine::Redis {
            block_on(settled(&url))?;
        }
        Ok(Ground { engine, election: new_name(), url, directory })
    }

    /// A server of the bench's own, as it is.
    pub(crate) fn at(engine: Engine, url: String) -> Result<Ground> {
        Ok(Ground { engine, election: new_name(), url, directory: fleet::scratch()? })
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A handle of its own, with connections of its own.
    pub(crate) fn open(&self) -> Result<Arc<dyn Store>> {
        Ok(tenure::open(&self.url)?)
    }

    /// The URL of the same server, as its own client library reads it.
    pub(crate) fn plain_url(&self) -> String {
        self.url.replacen("postgres+advisory://", "postgres://", 1)
    }
}

/// A name that no other bench uses.
fn new_name() -> String {
    format!("bench-{}", BootClock::time().as_nanos())
}

/// A server that was just started settles before its first grant; that is not what is measured.
async fn settled(url: &str) -> Result<()> {
    let election = Election::open("bench-settled", url).ttl(fleet::TTL).build()?;
    let tenure = election.campaign().await?;
    tenure.resign().await?;
    Ok(election.stop().await?)
}

fn server(variable: &str) -> Result<String> {
    env::var(variable).with_context(|| {
        format!("{variable} is not set; `cargo xtask bench` starts the server and sets it")
    })
}

/// Waits for a future on a runtime of its own.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
