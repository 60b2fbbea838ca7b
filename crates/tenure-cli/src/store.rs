//! From a URL to a store.

use std::path::Path;
use std::sync::Arc;

use tenure::{Error, Name, Store};
use tenure_cli::process::Keeper;
#[cfg(feature = "sqlite")]
use tenure_sqlite::{Guard, SqliteConfig, SqliteStore};

use crate::exit::Failure;
use crate::redact;

/// What this build can open, as people write it.
const HERE: &[&str] = &[
    #[cfg(feature = "sqlite")]
    "sqlite:PATH",
];

/// What tenure is going to know; not in this build.
const ELSEWHERE: [&str; 9] = [
    "postgres://",
    "postgresql://",
    "postgres+advisory://",
    "redis://",
    "rediss://",
    "redis+sentinel://",
    "rediss+sentinel://",
    "redis+cluster://",
    "rediss+cluster://",
];

/// A store that was chosen and checked, but not opened.
#[derive(Clone, Debug)]
pub(crate) struct StoreChoice {
    /// As it was given, for the command.
    pub(crate) url: String,
    /// Nobody chose it.
    pub(crate) is_default: bool,
    kind: KindChoice,
}

#[derive(Clone, Debug)]
enum KindChoice {
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteConfig),
}

impl StoreChoice {
    /// The store that a URL names, or the default one.
    pub(crate) fn new(url: Option<&str>) -> Result<StoreChoice, Failure> {
        match url {
            Some(url) => StoreChoice::from_url(url),
            None => StoreChoice::default_one(),
        }
    }

    fn from_url(url: &str) -> Result<StoreChoice, Failure> {
        redact::remember(url);
        let Some((scheme, _)) = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) else {
            return Err(Failure::usage(match url {
                "" => format!("the store is empty; known are {}", all_known()),
                _ => format!("{url:?} is no URL of a store; known are {}", all_known()),
            }));
        };
        #[cfg(feature = "sqlite")]
        if scheme == "sqlite" {
            let config = SqliteConfig::from_url(url)?;
            let kind = KindChoice::Sqlite(config);
            return Ok(StoreChoice { url: url.to_owned(), is_default: false, kind });
        }
        let known = scheme == "sqlite"
            || ELSEWHERE.iter().any(|known| known.strip_suffix("://") == Some(scheme));
        Err(Failure::usage(if known {
            format!("this build has no support for {scheme} yet; it knows {}", HERE.join(", "))
        } else {
            format!("there is no store of the scheme {scheme:?}; known are {}", all_known())
        }))
    }

    #[cfg(feature = "sqlite")]
    fn default_one() -> Result<StoreChoice, Failure> {
        let path = SqliteConfig::default_path()?;
        let url = format!("sqlite:{}", path.display());
        let kind = KindChoice::Sqlite(SqliteConfig::new(path));
        Ok(StoreChoice { url, is_default: true, kind })
    }

    #[cfg(not(feature = "sqlite"))]
    fn default_one() -> Result<StoreChoice, Failure> {
        Err(Failure::usage("this build has no default store; give one with --store"))
    }

    /// Whether nobody ever used it, so that there is nothing to ask it.
    pub(crate) fn is_missing(&self) -> bool {
        match self.path() {
            Some(path) => matches!(path.try_exists(), Ok(false)),
            None => false,
        }
    }

    fn path(&self) -> Option<&Path> {
        match self.kind {
            #[cfg(feature = "sqlite")]
            KindChoice::Sqlite(ref config) => Some(config.path()),
        }
    }

    /// Opens it. This may block for some seconds.
    pub(crate) fn open(&self) -> Result<Opened, Error> {
        match self.kind {
            #[cfg(feature = "sqlite")]
            KindChoice::Sqlite(ref config) => {
                let sqlite = config.clone().open()?;
                Ok(Opened { store: Arc::new(sqlite.clone()), kind: Kind::Sqlite(sqlite) })
            }
        }
    }
}

/// A store that is open.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    kind: Kind,
}

enum Kind {
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteStore),
}

impl Opened {
    /// Has the store know the guardian and its group, where that makes a difference: from when
    /// this returns, nobody takes over at once while one of them lives (G1).
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped, the guardian may count or not.
    #[cfg_attr(not(feature = "sqlite"), allow(unused_variables, reason = "no store, no guard"))]
    pub(crate) async fn attest(&self, keeper: &Keeper) -> Result<(), Error> {
        match self.kind {
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(ref sqlite) => {
                sqlite.attest(Guard { pid: keeper.pid(), group: Some(keeper.group()) }).await
            }
        }
    }

    /// The SQLite store, if it is one.
    #[cfg(feature = "sqlite")]
    pub(crate) fn sqlite(&self) -> Option<&SqliteStore> {
        match &self.kind {
            Kind::Sqlite(sqlite) => Some(sqlite),
        }
    }

    /// All elections that the store knows of.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed.
    pub(crate) async fn elections(&self) -> Result<Vec<Name>, Error> {
        match self.kind {
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(ref sqlite) => sqlite.elections().await,
        }
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

fn all_known() -> String {
    let not_yet = ELSEWHERE.join(", ");
    format!("{} (and not in this build: {not_yet})", HERE.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        StoreChoice::new(Some(url)).expect_err("refused").error.to_string()
    }

    #[test]
    fn an_unknown_scheme_is_refused_with_the_known_ones() {
        for url in ["mysql://h/db", "tenure.db", "", "/var/x.db", ":x"] {
            let says = refusal(url);
            assert!(says.contains("postgres://"), "{says}");
            assert!(!cfg!(feature = "sqlite") || says.contains("sqlite:PATH"), "{says}");
        }
    }

    #[test]
    fn a_scheme_of_a_later_build_is_refused_as_such() {
        for url in ["postgres://u:hunter2@h/db", "redis+cluster://a,b", "rediss://h"] {
            let says = refusal(url);
            assert!(says.contains("this build has no support for"), "{says}");
            assert!(!says.contains("hunter2"), "{says}");
        }
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn the_url_is_kept_as_it_was_given() {
        let choice = StoreChoice::new(Some("sqlite:some/where.db")).expect("a store");
        assert_eq!(choice.url, "sqlite:some/where.db");
        assert!(!choice.is_default && choice.is_missing());
    }
}
