//! Which file: the URL `toy:PATH`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Error, Secret, Store, StoreConfig, StoreKind};

use crate::store::ToyStore;

/// The URLs of this store.
pub const TOY: StoreKind =
    StoreKind { forms: &["toy:PATH"], aliases: &[], default_url: None, parse };

fn parse(url: &Secret) -> Result<Arc<dyn StoreConfig>, Error> {
    Ok(Arc::new(ToyConfig::from_url(url.expose())?))
}

/// Where the file is.
#[derive(Clone, Debug)]
pub struct ToyConfig {
    path: PathBuf,
}

impl ToyConfig {
    /// The store that a URL of the form `toy:PATH` names. The file need not exist yet.
    ///
    /// # Errors
    /// `Config` if this is no such URL.
    ///
    /// # Examples
    /// ```
    /// use toy_store::ToyConfig;
    ///
    /// let config = ToyConfig::from_url("toy:/var/lib/app/leases.json")?;
    /// assert_eq!(config.path().to_str(), Some("/var/lib/app/leases.json"));
    /// assert!(ToyConfig::from_url("toy:").is_err());
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    pub fn from_url(url: &str) -> Result<ToyConfig, Error> {
        let path = url.strip_prefix("toy:").map(PathBuf::from);
        match path.filter(|path| path.file_name().is_some()) {
            Some(path) => Ok(ToyConfig { path }),
            None => Err(Error::config("the URL names no file; write toy:PATH")),
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl StoreConfig for ToyConfig {
    fn address(&self) -> String {
        format!("toy:{}", self.path.display())
    }

    fn min_ttl(&self) -> Duration {
        ToyStore::TTL_MIN
    }

    fn is_missing(&self) -> bool {
        matches!(self.path.try_exists(), Ok(false))
    }

    /// This store proves no deaths, so it makes no difference here.
    fn childless(&self) -> Arc<dyn StoreConfig> {
        Arc::new(self.clone())
    }

    fn open(&self) -> Result<Arc<dyn Store>, Error> {
        Ok(Arc::new(ToyStore::open(&self.path)?))
    }
}
