//! From a URL to a store: what a crate with a store offers to those who open URLs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{Error, Secret, Store};

/// One kind of store: which URLs are its own, and how they are read.
///
/// A crate with a store has one of these as a constant. A program that opens URLs has a list of
/// them; in the crate `tenure` that is `Stores`.
#[derive(Clone, Copy)]
pub struct StoreKind {
    /// How people write its URLs, as in help texts: `sqlite:PATH`. The part before the first colon
    /// is the scheme.
    pub forms: &'static [&'static str],
    /// More schemes that mean the same.
    pub aliases: &'static [&'static str],
    /// The URL of the store that is used where nobody names one, if this kind has such a store.
    pub default_url: Option<&'static str>,
    /// Reads a URL. Nothing is opened or asked yet.
    ///
    /// # Errors
    /// `Config`, in a sentence that holds no secret.
    pub parse: fn(&Secret) -> Result<Arc<dyn StoreConfig>, Error>,
}

impl StoreKind {
    /// Whether this is the scheme of its URLs.
    pub fn has_scheme(&self, scheme: &str) -> bool {
        let known = self.forms.iter().map(|form| scheme_of(form));
        known.chain(self.aliases.iter().copied()).any(|known| known == scheme)
    }
}

impl fmt::Debug for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreKind").field("forms", &self.forms).finish_non_exhaustive()
    }
}

/// A store that a URL names: the URL was read and checked, and nothing was opened.
pub trait StoreConfig: fmt::Debug + Send + Sync {
    /// Where the store is. It is put together from parts of the URL that hold no secret.
    fn address(&self) -> String;

    /// The shortest ttl that the store can keep.
    fn min_ttl(&self) -> Duration;

    /// Whether there is no such store yet, and opening it would create it: a file.
    fn is_missing(&self) -> bool;

    /// The same store, for a process that does all its work itself. Where deaths can be proven, its
    /// own is then proof enough (D1).
    fn childless(&self) -> Arc<dyn StoreConfig>;

    /// Opens it. This may block for some seconds, and need not ask a server yet.
    ///
    /// # Errors
    /// Whatever is in the way, in a sentence that holds no secret.
    fn open(&self) -> Result<Arc<dyn Store>, Error>;
}

/// What stands before the first colon of a URL.
pub fn scheme_of(url: &str) -> &str {
    url.split(':').next().unwrap_or_default()
}

/// A part of a URL with its `%XX` undone; `None` if a `%` has no two digits after it, or if what
/// comes of it is not UTF-8.
///
/// # Examples
/// ```
/// use tenure_core::url_decoded;
///
/// assert_eq!(url_decoded("p%40ss").as_deref(), Some("p@ss"));
/// assert_eq!(url_decoded("100%"), None);
/// ```
pub fn url_decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let digits =
            part.get(..2).filter(|two| two.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_written_as_in_a_url_is_refused() {
        for (text, decoded) in [
            ("", Some("")),
            ("plain+text", Some("plain+text")),
            ("%25%32%35", Some("%25")),
            ("caf%C3%A9%", None),
            ("caf%C3%a9", Some("caf\u{e9}")),
            ("%C3", None),
            ("%+1", None),
            ("%4", None),
            ("%\u{e9}1", None),
        ] {
            assert_eq!(url_decoded(text).as_deref(), decoded, "{text}");
        }
    }
}
