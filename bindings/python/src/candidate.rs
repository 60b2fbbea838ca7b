//! One process incarnation on one store, opened when it is first needed.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use tenure::{CandidateId, Error, Store, StoreUrl, Stores};

use crate::error::raise;
use crate::meter;

/// One process incarnation on one store.
#[pyclass(frozen, module = "tenure._native")]
pub(crate) struct Candidate {
    pub(crate) shared: Arc<CandidateShared>,
}

pub(crate) struct CandidateShared {
    url: StoreUrl,
    label: Option<String>,
    // A std mutex: held while the store is opened, which those who come second wait for.
    opened: Mutex<Option<Opened>>,
}

/// A store, and who acts on it.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) candidate: tenure::Candidate,
}

#[pymethods]
impl Candidate {
    /// Reads the URL and checks it; opens nothing.
    #[new]
    #[pyo3(signature = (url, label))]
    fn new(py: Python<'_>, url: Option<&str>, label: Option<String>) -> PyResult<Candidate> {
        let stores = Stores::built_in();
        let url = match url {
            Some(url) => stores.parse(url),
            None => stores.default_store(),
        };
        let url = url.map_err(|error| raise(py, &error))?;
        if let Some(label) = &label {
            CandidateId::new(label, 1).map_err(|error| raise(py, &error))?;
        }
        let shared = CandidateShared { url, label, opened: Mutex::default() };
        Ok(Candidate { shared: Arc::new(shared) })
    }

    /// Where the store is, without secrets.
    #[getter]
    fn address(&self) -> String {
        self.shared.url.address()
    }
}

impl CandidateShared {
    pub(crate) fn min_ttl(&self) -> std::time::Duration {
        self.url.min_ttl()
    }

    /// Opens the store, if nobody has yet. This may block.
    pub(crate) fn open(&self) -> Result<Opened, Error> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = &*opened {
            return Ok(opened.clone());
        }
        meter::install();
        let store = self.url.open()?;
        let builder = tenure::Candidate::builder(store.clone());
        let candidate = match &self.label {
            Some(label) => builder.label(label.clone()).build()?,
            None => builder.build()?,
        };
        let new = Opened { store, candidate };
        *opened = Some(new.clone());
        Ok(new)
    }
}
