//! From a URL to a store: the one place that knows schemes.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Error, Secret, Store, StoreConfig, StoreKind, scheme_of};

/// One line for each kind of store: the feature that brings it, how its URLs begin, more schemes of
/// its own, and where the rest is known. A kind whose feature is off is still known by name, so
/// that people are told what their build lacks.
macro_rules! kinds {
    ($($feature:literal $forms:literal $(or $more:literal)? => $kind:path;)*) => {
        /// What this build opens.
        const BUILT_IN: &[StoreKind] = &[$(#[cfg(feature = $feature)] $kind,)*];

        /// What tenure could open, and whether this build does.
        const KNOWN: &[(&str, bool)] = &[$(($forms, cfg!(feature = $feature)),)*];

        /// More schemes of what tenure could open.
        const MORE: &[&str] = &[$($($more,)?)*];
    };
}

kinds! {
    "sqlite" "sqlite:PATH" => tenure_sqlite::SQLITE;
    "postgres" "postgres://" or "postgresql" => tenure_postgres::POSTGRES;
    "postgres" "postgres+advisory://" or "postgresql+advisory" => tenure_postgres::ADVISORY;
    "redis" "redis://, rediss://, redis+sentinel://, redis+cluster://"
        or "rediss+sentinel, rediss+cluster" => tenure_redis::REDIS;
}

/// Opens the store that a URL names.
///
/// Which URLs are known depends on the features of this crate. Opening may block for some seconds
/// where the store is a file. A server is not asked yet: one that is away is an unknown outcome of
/// the first call, like any other.
///
/// # Errors
/// `Config` if the URL can't be read, with the known ones; else whatever is in the way. No secret
/// is in the message.
///
/// # Examples
/// ```
/// # let file = std::env::temp_dir().join(format!("tenure-doc-{}.db", std::process::id()));
/// # let path = file.display();
/// # #[cfg(feature = "sqlite")]
/// let store = tenure::open(&format!("sqlite:{path}"))?;
/// # let _ = std::fs::remove_file(&file);
/// assert!(tenure::open("mysql://db/shop").is_err());
/// # Ok::<(), tenure::Error>(())
/// ```
pub fn open(url: &str) -> Result<Arc<dyn Store>, Error> {
    url.parse::<StoreUrl>()?.open()
}

/// The kinds of stores that URLs may name: those of this build, and those that you add.
///
/// # Examples
/// ```
/// use tenure::Stores;
///
/// let stores = Stores::built_in();
/// let error = stores.parse("mysql://app:hunter2@db/shop").unwrap_err();
/// assert!(!error.to_string().contains("hunter2"));
/// ```
#[derive(Clone, Debug)]
pub struct Stores {
    kinds: Vec<StoreKind>,
}

impl Stores {
    /// Those that the features of this crate bring.
    pub fn built_in() -> Stores {
        Stores { kinds: BUILT_IN.to_vec() }
    }

    /// The same, and one kind more. Its schemes come before others of the same name.
    #[must_use]
    pub fn with(mut self, kind: StoreKind) -> Stores {
        self.kinds.insert(0, kind);
        self
    }

    /// Reads and checks a URL. Nothing is opened or asked yet.
    ///
    /// # Errors
    /// `Config`, in a sentence that holds no secret.
    pub fn parse(&self, url: impl Into<Secret>) -> Result<StoreUrl, Error> {
        let url = url.into();
        let scheme = scheme_of(url.expose()).to_owned();
        if !url.expose().contains(':') || !is_scheme(&scheme) {
            // Not quoted: what is no URL may be the end of one, with a password in it.
            let what = if url.expose().is_empty() { "it is empty" } else { "it names no store" };
            return Err(Error::config(format!("{what}; known URLs are {}", self.known())));
        }
        let Some(kind) = self.kinds.iter().find(|kind| kind.has_scheme(&scheme)) else {
            return Err(self.unknown(&scheme));
        };
        let config = (kind.parse)(&url)?;
        Ok(StoreUrl { url, config })
    }

    /// The store that is used where nobody names one, if this build has such a store.
    ///
    /// # Errors
    /// `Config` if there is none, or if its place can't be found out.
    pub fn default_store(&self) -> Result<StoreUrl, Error> {
        let Some(url) = self.kinds.iter().find_map(|kind| kind.default_url) else {
            return Err(Error::config("this build has no default store; name one"));
        };
        // Once more with its place in full: what stands for it may mean another one elsewhere.
        self.parse(self.parse(url)?.address())
    }

    /// Whether this is the URL of a store that tenure knows, in this build or not.
    pub fn is_url(&self, text: &str) -> bool {
        let scheme = scheme_of(text);
        text.contains(':')
            && (self.kinds.iter().any(|kind| kind.has_scheme(scheme)) || is_known(scheme))
    }

    /// How people write the URLs that can be opened, and those that can't in this build.
    pub fn known(&self) -> String {
        let here = self.kinds.iter().flat_map(|kind| kind.forms).copied();
        let here = here.collect::<Vec<_>>().join(", ");
        let missing = KNOWN.iter().filter(|(_, here)| !here).map(|(forms, _)| *forms);
        match missing.collect::<Vec<_>>().join(", ").as_str() {
            "" => here,
            missing => format!("{here} (and not in this build: {missing})"),
        }
    }

    fn unknown(&self, scheme: &str) -> Error {
        let known = self.known();
        Error::config(match is_known(scheme) {
            true => format!("this build has no support for {scheme}; it knows {known}"),
            false => format!("there is no store of the scheme {scheme:?}; known are {known}"),
        })
    }
}

impl Default for Stores {
    fn default() -> Stores {
        Stores::built_in()
    }
}

/// The URL of a store, read and checked, and not opened yet.
///
/// `Display` and `Debug` show where the store is, put together from parts that hold no secret.
///
/// # Examples
/// ```
/// # #[cfg(feature = "postgres")] {
/// use tenure::StoreUrl;
///
/// let url: StoreUrl = "postgres://app:hunter2@db/shop".parse()?;
/// assert_eq!(url.to_string(), "postgres://app@db/shop");
/// assert!(!format!("{url:?}").contains("hunter2"));
/// # }
/// # Ok::<(), tenure::Error>(())
/// ```
#[derive(Clone)]
pub struct StoreUrl {
    url: Secret,
    config: Arc<dyn StoreConfig>,
}

impl StoreUrl {
    /// The URL as it was given: for a child process or another program, not for messages.
    pub fn secret(&self) -> &Secret {
        &self.url
    }

    /// What stands before its first colon.
    pub fn scheme(&self) -> &str {
        scheme_of(self.url.expose())
    }

    /// Where the store is, without secrets.
    pub fn address(&self) -> String {
        self.config.address()
    }

    /// The shortest ttl that the store can keep.
    pub fn min_ttl(&self) -> Duration {
        self.config.min_ttl()
    }

    /// Whether there is no such store yet, and opening it would create it.
    pub fn is_missing(&self) -> bool {
        self.config.is_missing()
    }

    /// The same store, for a process that does all its work itself, without child processes, and in
    /// whose name nobody else works. Where deaths can be proven, its own is then proof enough, and
    /// it is succeeded at once.
    #[must_use]
    pub fn childless(self) -> StoreUrl {
        StoreUrl { config: self.config.childless(), ..self }
    }

    /// Opens the store. This may block for some seconds where it is a file; a server is not asked
    /// yet.
    ///
    /// # Errors
    /// Whatever is in the way, in a sentence that holds no secret.
    pub fn open(&self) -> Result<Arc<dyn Store>, Error> {
        self.config.open()
    }
}

impl FromStr for StoreUrl {
    type Err = Error;

    fn from_str(url: &str) -> Result<StoreUrl, Error> {
        Stores::built_in().parse(url)
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address())
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoreUrl").field(&self.address()).finish()
    }
}

/// Whether tenure knows this scheme, in this build or not.
fn is_known(scheme: &str) -> bool {
    let schemes = KNOWN.iter().map(|(forms, _)| forms).chain(MORE);
    schemes.flat_map(|list| list.split(", ")).any(|known| scheme_of(known) == scheme)
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        Stores::built_in().parse(url).expect_err("refused").to_string()
    }

    #[test]
    fn an_unknown_scheme_is_refused_with_the_known_ones() {
        for url in ["mysql://h/db", "tenure.db", "", "/var/x.db", ":x"] {
            let says = refusal(url);
            assert!(says.contains("postgres://") && says.contains("sqlite:PATH"), "{says}");
        }
    }

    #[test]
    fn what_this_build_knows_it_reads_and_the_rest_is_refused_as_such() {
        for (url, is_here) in [
            ("sqlite:x.db", cfg!(feature = "sqlite")),
            ("postgres://h", cfg!(feature = "postgres")),
            ("postgresql+advisory://h", cfg!(feature = "postgres")),
            ("rediss://h", cfg!(feature = "redis")),
            ("redis+sentinel://a,b/mymaster", cfg!(feature = "redis")),
            ("rediss+cluster://a", cfg!(feature = "redis")),
        ] {
            match Stores::built_in().parse(url) {
                Ok(parsed) => {
                    assert!(is_here, "{url}");
                    assert_eq!(parsed.scheme(), scheme_of(url));
                }
                Err(error) => {
                    let says = error.to_string();
                    assert!(!is_here && says.contains("this build has no support for"), "{says}");
                }
            }
        }
    }

    #[test]
    fn secrets_are_in_no_output() {
        for url in [
            "hunter2@h/d",
            "mysql://a:hunter2@h/d",
            "postgres://a:hunter2@h:port/d",
            "postgres://a:hunter2@h/d",
            "redis://:hunter2@h/0",
            "redis://:hunter2@h/x",
        ] {
            let shown = match Stores::built_in().parse(url) {
                Ok(url) => format!("{url} {url:?}"),
                Err(error) => format!("{error} {error:?}"),
            };
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }

    #[test]
    fn a_kind_of_ones_own_is_read_like_the_others() {
        #[derive(Debug)]
        struct Toy;

        impl StoreConfig for Toy {
            fn address(&self) -> String {
                "toy:here".to_owned()
            }

            fn min_ttl(&self) -> Duration {
                Duration::from_secs(1)
            }

            fn is_missing(&self) -> bool {
                false
            }

            fn childless(&self) -> Arc<dyn StoreConfig> {
                Arc::new(Toy)
            }

            fn open(&self) -> Result<Arc<dyn Store>, Error> {
                Ok(Arc::new(crate::MemoryStore::new()))
            }
        }

        let kind = StoreKind {
            forms: &["toy:NAME"],
            aliases: &["plaything"],
            default_url: None,
            parse: |_| Ok(Arc::new(Toy)),
        };
        let stores = Stores::built_in().with(kind);
        for url in ["toy:x", "plaything:x"] {
            let parsed = stores.parse(url).expect("known");
            assert_eq!((parsed.secret().expose(), parsed.to_string().as_str()), (url, "toy:here"));
            assert_eq!(parsed.open().expect("a store").info().kind, "memory");
        }
        assert!(stores.known().contains("toy:NAME") && stores.is_url("toy:x"));
        assert!(!stores.is_url("toy") && !Stores::built_in().is_url("toy:x"));
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn the_default_store_is_named_in_full() {
        let url = Stores::built_in().default_store().expect("a store");
        let address = url.address();
        assert!(address.starts_with("sqlite:/") && address.ends_with("/tenure.db"), "{address}");
        assert_eq!(url.secret().expose(), address);
    }
}
