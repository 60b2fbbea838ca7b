//! Sessions of the caller's own with the server of the store.

use tenure_core::Error;
use tokio_postgres::Client;

use crate::config::PostgresConfig;
use crate::connection;

impl PostgresConfig {
    /// A session of your own with the server of the store: the same database, role and TLS. The
    /// current runtime carries it until the client is dropped.
    ///
    /// # Cancel safety
    /// Cancel safe: a session that is not ready is closed.
    ///
    /// # Errors
    /// Whatever kept it from being made, in a sentence that says what to do.
    pub async fn connect(&self) -> Result<Client, Error> {
        let (client, _task) = connection::connect(self).await?;
        Ok(client)
    }
}
