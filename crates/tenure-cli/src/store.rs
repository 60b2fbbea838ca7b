//! Which store a command uses.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tenure::{Election, Error, ErrorKind, Name, Secret, Store, StoreUrl, Timing};

use crate::args::GlobalArgs;
use crate::exit::Failure;
use crate::give_back::{HeldLease, ReleasePlan};
use crate::process::ReleaseNote;
use crate::registry::registry;

/// A store that was chosen and checked, but not opened.
#[derive(Clone, Debug)]
pub(crate) struct StoreChoice {
    /// As it was given, for the command. People are shown the address.
    pub(crate) url: Secret,
    /// Nobody chose it.
    pub(crate) is_default: bool,
    store: StoreUrl,
}

impl StoreChoice {
    /// The store that was chosen; the default one only if that is not forbidden.
    pub(crate) fn from_args(args: &GlobalArgs) -> Result<StoreChoice, Failure> {
        if args.store.is_none() && args.no_default_store {
            return Err(Failure::usage(
                "no store is named, and the default one is forbidden (--no-default-store or \
                 TENURE_NO_DEFAULT_STORE); give --store URL or set TENURE_STORE",
            ));
        }
        StoreChoice::new(args.store.as_ref())
    }

    /// The store that a URL names, or the default one.
    pub(crate) fn new(url: Option<&Secret>) -> Result<StoreChoice, Failure> {
        let stores = &registry().stores;
        let store = match url {
            Some(url) => stores.parse(url),
            None => stores.default_store(),
        };
        let store = store.map_err(|e| Failure::from(e).about("--store (or TENURE_STORE)"))?;
        Ok(StoreChoice { url: store.secret().clone(), is_default: url.is_none(), store })
    }

    /// Where the store is, without secrets.
    pub(crate) fn address(&self) -> String {
        self.store.address()
    }

    /// Whether this is the URL of a store, or of something else that has a password.
    pub(crate) fn is_url(text: &str) -> bool {
        registry().stores.is_url(text) || may_hold_password(&Secret::new(text))
    }

    /// Whether it was never used, so that there is nothing to ask it.
    pub(crate) fn is_missing(&self) -> bool {
        self.store.is_missing()
    }

    /// Refuses what this store can't keep, where opening it would leave a file behind first.
    pub(crate) fn check(&self, timing: &Timing) -> Result<(), Error> {
        timing.check_store_minimum(self.store.min_ttl())
    }

    /// The same store for a process that does all its work itself: where deaths can be proven, its
    /// own is proof enough.
    pub(crate) fn childless(self) -> StoreChoice {
        StoreChoice { store: self.store.childless(), ..self }
    }

    /// Opens it. This may block for some seconds.
    pub(crate) fn open(&self) -> Result<Opened, Error> {
        Ok(Opened { store: self.store.open()? })
    }
}

/// A store that is open.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
}

impl Opened {
    /// The note for guardians, where the leases of a process are given back once it is dead with
    /// all its work, and after the linger (D1, D4). On other stores they run out.
    pub(crate) fn release_note(
        &self,
        election: &Election,
        linger: Duration,
    ) -> io::Result<Option<ReleaseNote>> {
        let Some(store) = self.store.witness().and_then(|witness| witness.url()) else {
            return Ok(None);
        };
        let lease = HeldLease {
            store: store.expose().to_owned(),
            election: election.name().to_string(),
            candidate: election.candidate().to_string(),
        };
        ReleaseNote::new(&ReleasePlan::of(lease, linger).to_text()?).map(Some)
    }

    /// All elections that the store knows of.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed.
    pub(crate) async fn elections(&self) -> Result<Vec<Name>, Error> {
        match self.store.elections() {
            Some(elections) => elections.list().await,
            None => Err(Error::new(
                ErrorKind::Unsupported,
                "this store can't tell which elections it has; name those that you mean",
            )),
        }
    }
}

/// Whether a URL seems to have a password in it.
pub(crate) fn may_hold_password(url: &Secret) -> bool {
    let Some((_, rest)) = url.expose().split_once("://") else { return false };
    let user = rest.rsplit_once('@').map_or("", |(user, _)| user);
    let password = user.split_once(':').map_or("", |(_, password)| password);
    !password.is_empty() || rest.contains("password=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "sqlite")]
    #[test]
    fn the_url_is_kept_as_it_was_given() {
        let url = Secret::new("sqlite:some/where.db");
        let choice = StoreChoice::new(Some(&url)).expect("a store");
        assert_eq!(
            (choice.url.expose(), choice.address()),
            (url.expose(), url.expose().to_owned())
        );
        assert!(!choice.is_default && choice.is_missing());
    }

    #[test]
    fn a_refusal_names_the_flag_and_the_known_urls() {
        let failure = StoreChoice::new(Some(&Secret::new("tenure.db"))).expect_err("refused");
        let says = format!("{:#}", failure.error);
        assert!(says.contains("--store") && says.contains("postgres://"), "{says}");
    }

    #[test]
    fn a_password_in_a_url_is_noticed() {
        let has = |url: &str| may_hold_password(&Secret::new(url));
        for url in ["postgres://u:p@h/d", "redis://:p w@h", "redis://h?sentinel_password=x"] {
            assert!(has(url), "{url}");
        }
        for url in ["postgres://u@h:5432/d", "postgres://u:@h/d", "sqlite:x:y@z.db", ""] {
            assert!(!has(url), "{url}");
        }
    }
}
