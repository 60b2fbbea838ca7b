//! Text that is never shown.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// A password, or a URL that may hold one. `Display` and `Debug` write `***`, so that a secret
/// gets into a message only where somebody calls [`expose`](Secret::expose).
///
/// Finished text is never searched for secrets: a password that is an ordinary word would be cut
/// out of everything, and one with a quote in it would be missed. Messages are put together from
/// parts that hold none instead, such as the address of a store.
///
/// # Examples
/// ```
/// use tenure_core::Secret;
///
/// let url = Secret::new("postgres://app:hunter2@db/shop");
/// assert_eq!(format!("{url} {url:?}"), "*** Secret(***)");
/// assert!(url.expose().ends_with("/shop"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps this text to itself from now on.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text itself: for drivers, and for the environment of a command. Not for messages.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Secret {
        Secret(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Secret {
        Secret::new(text)
    }
}

impl From<&Secret> for Secret {
    fn from(secret: &Secret) -> Secret {
        secret.clone()
    }
}

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Secret, Infallible> {
        Ok(Secret::new(text))
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}
