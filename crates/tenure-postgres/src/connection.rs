//! Opening one connection, to the first server of the URL that will do.

use tenure_core::{Error, ErrorKind};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::{Client, Connection, Socket};

use crate::clock::now;
use crate::config::PostgresConfig;
use crate::error;
use crate::tls::Stream;

/// A connection that somebody has yet to carry.
pub(crate) type Open = (Client, Connection<Socket, Stream<Socket>>);

/// Opens a connection and lets the current runtime carry it.
pub(crate) async fn connect(config: &PostgresConfig) -> Result<(Client, AbortHandle), Error> {
    let (client, connection) = open(config).await?;
    let task = runtime()?.spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to Postgres has ended");
        }
    });
    Ok((client, task.abort_handle()))
}

/// Opens a connection to the first server that will do. Each has its share of the time, and the
/// next call, also after this one was dropped, begins behind the last that was tried.
pub(crate) async fn open(config: &PostgresConfig) -> Result<Open, Error> {
    runtime()?;
    let (hosts, limit) = (&config.hosts, config.connect_timeout);
    let deadline = now() + limit;
    let mut refusals = Vec::new();
    for left in (1..=hosts.count()).rev() {
        let index = hosts.take_turn();
        let server = hosts.server(index)?;
        let share = deadline.saturating_duration_since(now()) / left as u32;
        let error = match timeout(share, server.connect(config.tls.clone())).await {
            Ok(Ok(opened)) => {
                hosts.stay(index);
                return Ok(opened);
            }
            Ok(Err(error)) => error::from_connecting(config, index, error),
            Err(_) if hosts.count() == 1 => error::timed_out(config, "connecting to", limit),
            Err(_) => error::no_answer(config, index, share),
        };
        refusals.push(error);
    }
    Err(error::nobody(refusals))
}

/// The runtime that carries what is opened here.
pub(crate) fn runtime() -> Result<Handle, Error> {
    Handle::try_current().map_err(|_| {
        error::new(ErrorKind::Config, "the postgres store needs a tokio runtime; call it from one")
    })
}
