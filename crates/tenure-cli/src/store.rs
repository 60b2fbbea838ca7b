//! From a URL to a store.

use std::path::Path;
use std::sync::Arc;

use tenure::{Election, Error, Name, Store, Timing};
use tenure_cli::process::Bequest;
use tenure_core::Secret;
#[cfg(feature = "postgres")]
use tenure_postgres::{AdvisoryConfig, AdvisoryStore, PostgresConfig, PostgresStore};
#[cfg(feature = "redis")]
use tenure_redis::{RedisConfig, RedisStore};
#[cfg(feature = "sqlite")]
use tenure_sqlite::{SqliteConfig, SqliteStore};

use crate::exit::Failure;
#[cfg(feature = "sqlite")]
use crate::heir::LastWords;

/// What tenure knows, as people write it, and whether this build has it.
const KNOWN: [(&str, bool); 9] = [
    ("sqlite:PATH", cfg!(feature = "sqlite")),
    ("postgres://", cfg!(feature = "postgres")),
    ("postgres+advisory://", cfg!(feature = "postgres")),
    ("redis://", cfg!(feature = "redis")),
    ("rediss://", cfg!(feature = "redis")),
    ("redis+sentinel://", cfg!(feature = "redis")),
    ("rediss+sentinel://", cfg!(feature = "redis")),
    ("redis+cluster://", cfg!(feature = "redis")),
    ("rediss+cluster://", cfg!(feature = "redis")),
];

/// A store that was chosen and checked, but not opened.
#[derive(Clone, Debug)]
pub(crate) struct StoreChoice {
    /// As it was given, for the command. People are shown the address.
    pub(crate) url: Secret,
    /// Nobody chose it.
    pub(crate) is_default: bool,
    kind: KindChoice,
}

#[derive(Clone, Debug)]
enum KindChoice {
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteConfig),
    #[cfg(feature = "postgres")]
    Postgres(PostgresConfig),
    #[cfg(feature = "postgres")]
    Advisory(AdvisoryConfig),
    #[cfg(feature = "redis")]
    Redis(RedisConfig),
}

impl StoreChoice {
    /// The store that a URL names, or the default one.
    pub(crate) fn new(url: Option<&Secret>) -> Result<StoreChoice, Failure> {
        match url {
            Some(url) => StoreChoice::from_url(url),
            None => StoreChoice::default_one(),
        }
    }

    #[cfg_attr(
        not(any(feature = "sqlite", feature = "postgres", feature = "redis")),
        allow(unreachable_code, unused_variables, reason = "in a build with no store at all")
    )]
    fn from_url(given: &Secret) -> Result<StoreChoice, Failure> {
        let url = given.expose();
        let Some((scheme, _)) = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) else {
            // Not quoted: what is no URL may be the end of one, with a password in it.
            let what = if url.is_empty() { "is empty" } else { "is not the URL of a store" };
            return Err(Failure::usage(format!(
                "--store (or TENURE_STORE) {what}; known are {}",
                all_known()
            )));
        };
        let kind = match scheme {
            #[cfg(feature = "sqlite")]
            "sqlite" => KindChoice::Sqlite(SqliteConfig::from_url(url)?),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => KindChoice::Postgres(PostgresConfig::from_url(url)?),
            #[cfg(feature = "postgres")]
            "postgres+advisory" | "postgresql+advisory" => {
                KindChoice::Advisory(AdvisoryConfig::from_url(url)?)
            }
            #[cfg(feature = "redis")]
            "redis" | "rediss" | "redis+sentinel" | "rediss+sentinel" | "redis+cluster"
            | "rediss+cluster" => KindChoice::Redis(RedisConfig::from_url(url)?),
            _ => return Err(unknown(scheme)),
        };
        Ok(StoreChoice { url: given.clone(), is_default: false, kind })
    }

    #[cfg(feature = "sqlite")]
    fn default_one() -> Result<StoreChoice, Failure> {
        let path = SqliteConfig::default_path()?;
        let url = Secret::new(format!("sqlite:{}", path.display()));
        let kind = KindChoice::Sqlite(SqliteConfig::new(path));
        Ok(StoreChoice { url, is_default: true, kind })
    }

    #[cfg(not(feature = "sqlite"))]
    fn default_one() -> Result<StoreChoice, Failure> {
        Err(Failure::usage("this build has no default store; give one with --store"))
    }

    /// Where the store is, without secrets: put together from the parts of the URL that hold none.
    pub(crate) fn address(&self) -> String {
        match self.kind {
            #[cfg(feature = "sqlite")]
            KindChoice::Sqlite(ref config) => format!("sqlite:{}", config.path().display()),
            #[cfg(feature = "postgres")]
            KindChoice::Postgres(ref config) => config.address(),
            #[cfg(feature = "postgres")]
            KindChoice::Advisory(ref config) => config.address(),
            #[cfg(feature = "redis")]
            KindChoice::Redis(ref config) => config.address(),
        }
    }

    /// What stands before the first colon of its URL.
    pub(crate) fn scheme(&self) -> &str {
        self.url.expose().split(':').next().unwrap_or_default()
    }

    /// Whether this is the URL of a store, or of something else that has a password.
    pub(crate) fn is_url(text: &str) -> bool {
        let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
        let known = KNOWN.iter().any(|(url, _)| url.split(':').next() == Some(scheme));
        known || scheme.starts_with("postgresql") || may_hold_password(&Secret::new(text))
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
            #[allow(unreachable_patterns, reason = "in a build with one store")]
            _ => None,
        }
    }

    /// Refuses what this store can't keep, where opening it would leave a file behind first.
    pub(crate) fn check(&self, timing: &Timing) -> Result<(), Error> {
        match self.kind {
            #[cfg(feature = "sqlite")]
            KindChoice::Sqlite(_) => timing.check_store_minimum(SqliteStore::TTL_MIN),
            #[allow(unreachable_patterns, reason = "in a build with one store")]
            _ => Ok(()),
        }
    }

    /// The same store for a process that does all its work itself: where deaths can be proven, its
    /// own is proof enough.
    pub(crate) fn childless(mut self) -> StoreChoice {
        match &mut self.kind {
            #[cfg(feature = "sqlite")]
            KindChoice::Sqlite(config) => *config = config.clone().childless(),
            #[allow(unreachable_patterns, reason = "in a build with one store")]
            _ => {}
        }
        self
    }

    /// Opens it. This may block for some seconds.
    pub(crate) fn open(&self) -> Result<Opened, Error> {
        match self.kind {
            #[cfg(feature = "sqlite")]
            KindChoice::Sqlite(ref config) => {
                let sqlite = config.clone().open()?;
                Ok(Opened { store: Arc::new(sqlite.clone()), kind: Kind::Sqlite(sqlite) })
            }
            #[cfg(feature = "postgres")]
            KindChoice::Postgres(ref config) => {
                let postgres = config.clone().open();
                Ok(Opened { store: Arc::new(postgres.clone()), kind: Kind::Postgres(postgres) })
            }
            #[cfg(feature = "postgres")]
            KindChoice::Advisory(ref config) => {
                let advisory = config.clone().open();
                Ok(Opened { store: Arc::new(advisory.clone()), kind: Kind::Advisory(advisory) })
            }
            #[cfg(feature = "redis")]
            KindChoice::Redis(ref config) => {
                let redis = config.clone().open()?;
                Ok(Opened { store: Arc::new(redis.clone()), kind: Kind::Redis(redis) })
            }
        }
    }
}

/// A store that is open.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteStore),
    #[cfg(feature = "postgres")]
    Postgres(PostgresStore),
    #[cfg(feature = "postgres")]
    Advisory(AdvisoryStore),
    #[cfg(feature = "redis")]
    Redis(RedisStore),
}

impl Opened {
    /// The last words for guardians, where the leases of a process are given back once it is dead
    /// with all its work (D1). On other stores they run out: a server goes on with what was sent
    /// (D4). An advisory lock is free when its session ends, whatever lives on: a weaker promise.
    #[cfg_attr(not(feature = "sqlite"), allow(unused_variables, reason = "no store, no words"))]
    pub(crate) fn bequest(&self, election: &Election) -> std::io::Result<Option<Bequest>> {
        match self.kind {
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(ref sqlite) => {
                let words = sqlite.path().to_str().map(|path| {
                    LastWords {
                        store: format!("sqlite:{path}"),
                        election: election.name().to_string(),
                        candidate: election.candidate().to_string(),
                    }
                    .to_string()
                });
                words.map(|words| Bequest::new(&words)).transpose()
            }
            #[allow(unreachable_patterns, reason = "in a build with one store")]
            _ => Ok(None),
        }
    }

    /// The SQLite store, if it is one.
    #[cfg(feature = "sqlite")]
    pub(crate) fn sqlite(&self) -> Option<&SqliteStore> {
        match &self.kind {
            Kind::Sqlite(sqlite) => Some(sqlite),
            #[allow(unreachable_patterns, reason = "in a build with one store")]
            _ => None,
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
            #[cfg(feature = "postgres")]
            Kind::Postgres(ref postgres) => postgres.elections().await,
            #[cfg(feature = "postgres")]
            Kind::Advisory(ref advisory) => advisory.elections().await,
            #[cfg(feature = "redis")]
            Kind::Redis(ref redis) => redis.elections().await,
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

fn is_scheme(text: &str) -> bool {
    text.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

fn unknown(scheme: &str) -> Failure {
    let is_known = KNOWN.iter().any(|(url, _)| url.split(':').next() == Some(scheme));
    Failure::usage(match is_known {
        true => format!("this build has no support for {scheme}; it knows {}", listed(true)),
        false => format!("there is no store of the scheme {scheme:?}; known are {}", all_known()),
    })
}

fn all_known() -> String {
    match listed(false).as_str() {
        "" => listed(true),
        missing => format!("{} (and not in this build: {missing})", listed(true)),
    }
}

/// Those that this build has, or those that it has not.
fn listed(here: bool) -> String {
    let urls = KNOWN.iter().filter(|(_, is_here)| *is_here == here).map(|(url, _)| *url);
    urls.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        StoreChoice::new(Some(&Secret::new(url))).expect_err("refused").error.to_string()
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
    fn what_this_build_knows_it_opens_and_the_rest_is_refused_as_such() {
        let urls = ["postgres://h", "postgres+advisory://h", "redis://h", "rediss://h"];
        let more = ["redis+sentinel://a,b/mymaster", "redis+cluster://a,b", "rediss+cluster://a"];
        for url in urls.into_iter().chain(more) {
            let (scheme, _) = url.split_once(':').expect("a scheme");
            let is_here = KNOWN.iter().any(|(known, here)| {
                known.split_once(':').is_some_and(|(known, _)| known == scheme) && *here
            });
            match StoreChoice::new(Some(&Secret::new(url))) {
                Ok(_) => assert!(is_here, "{url}"),
                Err(failure) => {
                    let says = failure.error.to_string();
                    assert!(!is_here && says.contains("this build has no support for"), "{says}");
                }
            }
        }
    }

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
