//! Which elections the database knows of.

use tenure_core::{BoxFuture, Elections, Error, ErrorKind, Forgotten, Name};
use tokio_postgres::types::Type;

use crate::error;
use crate::{AdvisoryStore, PostgresStore};

impl Elections for PostgresStore {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Name>, Error>> {
        Box::pin(self.elections())
    }

    fn forget<'a>(&'a self, election: &'a Name) -> BoxFuture<'a, Result<Forgotten, Error>> {
        Box::pin(async move {
            let forgotten = forget(self, election).await;
            forgotten.map_err(|error| error.during("forget"))
        })
    }
}

/// What is known of them is in the same tables.
impl Elections for AdvisoryStore {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Name>, Error>> {
        Box::pin(self.elections())
    }

    fn forget<'a>(&'a self, election: &'a Name) -> BoxFuture<'a, Result<Forgotten, Error>> {
        Box::pin(async move {
            match Elections::forget(self.tables(), election).await {
                // Without the tables nothing is kept of an election.
                Err(error) if error.kind() == ErrorKind::Config => {
                    let message = "without the tables of `tenure migrate` there is nothing to \
                                   forget; the election is gone with its lock";
                    Err(error::new(ErrorKind::Unsupported, message).during("forget"))
                }
                forgotten => forgotten,
            }
        })
    }
}

async fn forget(store: &PostgresStore, election: &Name) -> Result<Forgotten, Error> {
    let sql = store.names().render("SELECT @schema@.tenure_forget($1)");
    let name = election.as_str();
    let rows = store.connector().query(&sql, &[(&name, Type::TEXT)]).await?;
    let outcome = rows.first().and_then(|row| row.try_get::<_, String>(0).ok());
    match outcome.as_deref() {
        Some("forgotten") => Ok(Forgotten::Done),
        Some("unknown") => Ok(Forgotten::NotKnown),
        Some("led") => Ok(Forgotten::Led),
        Some("busy") => Err(error::busy(None)),
        _ => Err(error::new(ErrorKind::Corrupt, "tenure_forget answers oddly; update tenure")),
    }
}
