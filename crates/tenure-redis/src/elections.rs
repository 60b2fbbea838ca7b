//! Which elections the database knows of.

use tenure_core::{BoxFuture, Elections, Error, Forgotten, Name};

use crate::channels::MailKeys;
use crate::error;
use crate::script::{Call, Kind};
use crate::store::RedisStore;

impl Elections for RedisStore {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Name>, Error>> {
        Box::pin(self.elections())
    }

    fn forget<'a>(&'a self, election: &'a Name) -> BoxFuture<'a, Result<Forgotten, Error>> {
        Box::pin(async move {
            let forgotten = forget(self, election).await;
            forgotten.map_err(|error| error.in_store(error::STORE).during("forget"))
        })
    }
}

async fn forget(store: &RedisStore, election: &Name) -> Result<Forgotten, Error> {
    let (of, mail) = (store.keys().of(election)?, MailKeys::new(store, election)?);
    let mut keys = vec![of.lease.clone(), of.companion.clone(), of.kept()];
    keys.extend(mail.all());
    let words = store.words(Call::new(Kind::Forget, keys, Vec::new()), "forget").await?;
    match words.first().map(String::as_str) {
        Some("forgotten") => Ok(Forgotten::Done),
        Some("unknown") => Ok(Forgotten::NotKnown),
        Some("led") => Ok(Forgotten::Led),
        _ => Err(error::odd_answer()),
    }
}
