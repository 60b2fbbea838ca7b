//! Which server and database, and what is asked of them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Error, Secret, Store, StoreConfig, StoreKind};

use super::store::{AdvisoryStore, TTL_MIN};
use crate::config::PostgresConfig;
use crate::store::PostgresStore;

/// The schemes of the URL.
const SCHEMES: [&str; 2] = ["postgres+advisory", "postgresql+advisory"];

/// How long one statement waits for the session of a holder.
const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// The sessions of how many holders are waited for, unless given, and at most.
const WATCHED_HOLDERS: usize = 1;
const WATCHED_HOLDERS_MAX: usize = 64;

/// Where the advisory store is and how it is reached.
///
/// # Examples
/// ```
/// use tenure_postgres::AdvisoryConfig;
///
/// let config = AdvisoryConfig::from_url("postgres+advisory://app:secret@db/shop")?;
/// assert_eq!(config.address(), "postgres+advisory://app@db/shop");
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone)]
pub struct AdvisoryConfig {
    pub(super) base: Arc<PostgresConfig>,
    pub(super) term_offset: u64,
    pub(super) frozen_may_stay: bool,
    pub(super) wait_limit: Duration,
    pub(super) watched_holders: usize,
}

impl AdvisoryConfig {
    /// The store that a URL names: `postgres+advisory://USER:PASSWORD@HOST/DATABASE?OPTIONS`, with
    /// all that [`PostgresConfig::from_url`] takes and three more options:
    ///
    /// - `term_offset=N`: added to every term, to keep them above those of a former store. It must
    ///   be the same for all candidates, and may only be raised, while nobody campaigns.
    /// - `frozen_leaders=stay`: also take a server older than PostgreSQL 14, which can't end a
    ///   silent session. What is lost: a frozen leader, or one whose host vanished from the
    ///   network, then keeps the lock until TCP or somebody gives its session up.
    /// - `watched_holders=N`: the sessions of how many leaders a process that follows waits for, so
    ///   that it learns of their end at once. Each takes a connection; further leaders are polled.
    ///   1 unless given, at most 64.
    ///
    /// # Errors
    /// `Config` if this is no such URL; its secrets are not in the message.
    pub fn from_url(url: &str) -> Result<AdvisoryConfig, Error> {
        let Some((_, tail)) = url.split_once("://").filter(|(scheme, _)| SCHEMES.contains(scheme))
        else {
            return Err(Error::config(
                "the URL is not of the form postgres+advisory://USER:PASSWORD@HOST/DATABASE",
            ));
        };
        let after_password = tail.find('@').filter(|at| !tail[..*at].contains('/')).unwrap_or(0);
        let (place, query) = match tail[after_password..].find('?') {
            Some(at) => (&tail[..after_password + at], &tail[after_password + at + 1..]),
            None => (tail, ""),
        };
        let (mut term_offset, mut frozen_may_stay) = (0, false);
        let mut watched_holders = WATCHED_HOLDERS;
        let mut theirs = Vec::new();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("term_offset", value)) => term_offset = offset(value)?,
                Some(("watched_holders", value)) => watched_holders = watched(value)?,
                Some(("frozen_leaders", "stay")) => frozen_may_stay = true,
                Some(("frozen_leaders", _)) => {
                    return Err(Error::config(
                        "frozen_leaders has one value, stay, for servers older than PostgreSQL \
                         14; leave it out otherwise",
                    ));
                }
                _ => theirs.push(option),
            }
        }
        let question = if theirs.is_empty() { "" } else { "?" };
        let base =
            PostgresConfig::from_url(&format!("postgres://{place}{question}{}", theirs.join("&")))?;
        let (base, wait_limit) = (Arc::new(base), WAIT_LIMIT);
        Ok(AdvisoryConfig { base, term_offset, frozen_may_stay, wait_limit, watched_holders })
    }

    /// How long a connection may take. 3 s unless set.
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Duration) -> AdvisoryConfig {
        self.base = Arc::new((*self.base).clone().with_connect_timeout(timeout));
        self
    }

    /// How long a call may take; then its outcome is unknown. 3 s unless set.
    #[must_use]
    pub fn with_call_timeout(mut self, timeout: Duration) -> AdvisoryConfig {
        self.base = Arc::new((*self.base).clone().with_call_timeout(timeout));
        self
    }

    /// How long one statement of a follower waits for the session of a holder, before it is sent
    /// again. For so long it keeps VACUUM from removing what was deleted since, and CREATE INDEX
    /// CONCURRENTLY waiting. 30 s unless set.
    #[must_use]
    pub fn with_wait_limit(mut self, limit: Duration) -> AdvisoryConfig {
        self.wait_limit = limit;
        self
    }

    /// Where the store is, without secrets.
    pub fn address(&self) -> String {
        let address = self.base.address();
        let place = address.strip_prefix("postgres").unwrap_or(&address);
        let mut address = format!("{}{place}", SCHEMES[0]);
        if self.term_offset > 0 {
            let sign = if address.contains('?') { '&' } else { '?' };
            address = format!("{address}{sign}term_offset={}", self.term_offset);
        }
        address
    }

    /// A session of your own with the server of the store: the same database, role and TLS. The
    /// current runtime carries it until the client is dropped.
    ///
    /// # Cancel safety
    /// Cancel safe: a session that is not ready is closed.
    ///
    /// # Errors
    /// Whatever kept it from being made, in a sentence that says what to do.
    pub async fn connect(&self) -> Result<tokio_postgres::Client, Error> {
        self.base.connect().await
    }

    /// The tables of the same database, in which its fence, durable messages and ledger live once
    /// `tenure migrate` has made them.
    pub fn tables(&self) -> PostgresStore {
        (*self.base).clone().open()
    }

    /// A handle onto the store. Nothing is connected yet: the first call does that, and a server
    /// that is away is an unknown outcome like any other.
    pub fn open(self) -> AdvisoryStore {
        AdvisoryStore::open_with(self)
    }
}

/// Far enough below the end of the range that transactions can't get there.
fn offset(value: &str) -> Result<u64, Error> {
    match value.parse::<u64>() {
        Ok(number) if number <= 1 << 52 => Ok(number),
        _ => Err(Error::config(
            "term_offset is not a number from 0 to 2^52; give the last term of the store that you \
             come from",
        )),
    }
}

fn watched(value: &str) -> Result<usize, Error> {
    match value.parse::<usize>() {
        Ok(number) if number <= WATCHED_HOLDERS_MAX => Ok(number),
        _ => Err(Error::config(format!(
            "watched_holders is not a number from 0 to {WATCHED_HOLDERS_MAX}; each takes a \
             connection"
        ))),
    }
}

/// The URLs of this store.
pub const ADVISORY: StoreKind = StoreKind {
    forms: &["postgres+advisory://"],
    aliases: &["postgresql+advisory"],
    default_url: None,
    parse,
};

fn parse(url: &Secret) -> Result<Arc<dyn StoreConfig>, Error> {
    Ok(Arc::new(AdvisoryConfig::from_url(url.expose())?))
}

impl StoreConfig for AdvisoryConfig {
    fn address(&self) -> String {
        self.address()
    }

    fn min_ttl(&self) -> Duration {
        TTL_MIN
    }

    /// What a server has is known when it was asked.
    fn is_missing(&self) -> bool {
        false
    }

    /// No proof of death is used here (D4).
    fn childless(&self) -> Arc<dyn StoreConfig> {
        Arc::new(self.clone())
    }

    fn open(&self) -> Result<Arc<dyn Store>, Error> {
        Ok(Arc::new(self.clone().open()))
    }
}

impl fmt::Debug for AdvisoryConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdvisoryConfig")
            .field("address", &self.address())
            .field("frozen_may_stay", &self.frozen_may_stay)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_our_own_are_taken_out_of_the_url() {
        let url = "postgres+advisory://a:b@h:5433/d?schema=s&term_offset=9&frozen_leaders=stay\
                   &watched_holders=8";
        let config = AdvisoryConfig::from_url(url).unwrap();
        assert_eq!((config.term_offset, config.frozen_may_stay), (9, true));
        assert_eq!(config.watched_holders, 8);
        let plain = AdvisoryConfig::from_url("postgres+advisory://h/d").unwrap();
        assert_eq!(plain.watched_holders, 1);
        assert_eq!(config.address(), "postgres+advisory://a@h:5433/d?schema=s&term_offset=9");
    }

    #[test]
    fn secrets_are_in_no_output() {
        let url = "postgres+advisory://a:pw?hunter2@h/d?schema=s";
        let config = AdvisoryConfig::from_url(url).unwrap();
        assert!(!format!("{config:?} {}", config.address()).contains("hunter2"));
        for url in [
            "postgres://a:hunter2@h/d",
            "postgres+advisory://a:hunter2@h:port/d",
            "postgres+advisory://a:hunter2@h/d?term_offset=-1",
            "postgres+advisory://a:hunter2@h/d?term_offset=9007199254740993",
            "postgres+advisory://a:hunter2@h/d?frozen_leaders=go",
            "postgres+advisory://a:hunter2@h/d?watched_holders=65",
        ] {
            let error = AdvisoryConfig::from_url(url).expect_err(url);
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        }
    }
}
