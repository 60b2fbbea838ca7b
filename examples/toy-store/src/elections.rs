//! Which elections the file knows of.

use tenure_core::{BoxFuture, Elections, Error, Name};

use crate::error::corrupt;
use crate::store::{Shared, ToyStore};

impl Elections for ToyStore {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Name>, Error>> {
        Box::pin(self.on_thread(names))
    }
}

fn names(shared: &Shared) -> Result<Vec<Name>, Error> {
    let leases = shared.file.lock()?.read()?;
    let name = |name| Name::new(name).map_err(|error| corrupt(shared.file.path(), error));
    leases.names().map(name).collect()
}
