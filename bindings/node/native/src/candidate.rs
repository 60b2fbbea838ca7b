//! One process incarnation on one store, opened when it is first needed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use napi_derive::napi;
use tenure::{CandidateId, Error, ErrorKind, Store, StoreUrl, Stores};

use crate::error::raise;
use crate::meter;
use crate::op::Op;

/// One process incarnation on one store.
#[napi]
pub struct Candidate {
    pub(crate) shared: Arc<CandidateShared>,
}

pub(crate) struct CandidateShared {
    url: StoreUrl,
    label: Option<String>,
    // A std mutex: held while the store is opened, which those who come second wait for.
    opened: Mutex<Option<tenure::Candidate>>,
}

#[napi]
impl Candidate {
    /// Reads the URL and checks it; opens nothing.
    #[napi(constructor)]
    pub fn new(url: Option<String>, label: Option<String>) -> napi::Result<Candidate> {
        let made = || -> Result<CandidateShared, Error> {
            let stores = Stores::built_in();
            let url = match url {
                Some(url) => stores.parse(url)?,
                None => stores.default_store()?,
            };
            if let Some(label) = &label {
                CandidateId::new(label, 1)?;
            }
            Ok(CandidateShared { url, label, opened: Mutex::default() })
        };
        Ok(Candidate { shared: Arc::new(made().map_err(|error| raise(&error))?) })
    }

    /// Where the store is, without secrets.
    #[napi(getter)]
    pub fn address(&self) -> String {
        self.shared.url.address()
    }

    /// Opens the store.
    #[napi]
    pub fn open(&self) -> napi::Result<Op> {
        let shared = self.shared.clone();
        Op::unit(async move { blocking(move || shared.open().map(drop)).await })
    }
}

impl CandidateShared {
    pub(crate) fn min_ttl(&self) -> Duration {
        self.url.min_ttl()
    }

    /// Opens the store, if nobody has yet. This may block.
    pub(crate) fn open(&self) -> Result<tenure::Candidate, Error> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = &*opened {
            return Ok(opened.clone());
        }
        meter::install();
        let store: Arc<dyn Store> = self.url.open()?;
        let builder = tenure::Candidate::builder(store);
        let candidate = match &self.label {
            Some(label) => builder.label(label.clone()).build()?,
            None => builder.build()?,
        };
        *opened = Some(candidate.clone());
        Ok(candidate)
    }
}

/// Does what may block where nobody is kept waiting by it.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let crashed = |_| Error::new(ErrorKind::Crashed, "opening the store panicked; report it");
    tokio::task::spawn_blocking(work).await.map_err(crashed)?
}
