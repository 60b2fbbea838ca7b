//! Names of elections, and who takes part in them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::{Error, Metadata};

/// The name of an election: 1 to 255 bytes, without control characters.
///
/// Everything else is allowed and is data: unicode, quotes, colons, spaces. Cloning is cheap.
///
/// # Examples
/// ```
/// use tenure_core::Name;
///
/// let name: Name = "billing:invoices".parse()?;
/// assert_eq!(name.as_str(), "billing:invoices");
/// assert!("".parse::<Name>().is_err());
/// assert!("a\nb".parse::<Name>().is_err());
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 255;

    /// Checks and wraps a name.
    ///
    /// # Errors
    /// `Config` if the name is empty, longer than 255 bytes, or has a control character in it.
    pub fn new(name: impl AsRef<str>) -> Result<Name, Error> {
        let name = name.as_ref();
        check_text("the name of an election", name, Name::MAX_BYTES)?;
        Ok(Name(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(name: &str) -> Result<Name, Error> {
        Name::new(name)
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// One incarnation of one process: a readable label and a random part, written
/// `label#incarnation`.
///
/// The random part is what makes two processes of the same label two candidates, and a restarted
/// process a new one. Stores compare the whole text; people read the label.
///
/// # Examples
/// ```
/// use tenure_core::CandidateId;
///
/// let id = CandidateId::new("web-1:4711", 0x0192_c0ff_ee00)?;
/// assert_eq!(id.label(), "web-1:4711");
/// assert_eq!(id.as_str(), "web-1:4711#00000000000000000000" .to_owned() + "0192c0ffee00");
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CandidateId(Arc<str>);

impl CandidateId {
    /// The longest label, in bytes. With `#` and the incarnation it fits into 255.
    pub const MAX_LABEL_BYTES: usize = 200;

    /// The candidate of this label and this random number.
    ///
    /// # Errors
    /// `Config` if the label is empty, longer than 200 bytes, or has a control character in it.
    pub fn new(label: &str, incarnation: u128) -> Result<CandidateId, Error> {
        check_text("the label of a candidate", label, CandidateId::MAX_LABEL_BYTES)?;
        Ok(CandidateId(format!("{label}#{incarnation:032x}").into()))
    }

    /// The whole identity, as stores keep it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part that people chose.
    pub fn label(&self) -> &str {
        split(&self.0).0
    }

    /// The random part: 32 hexadecimal digits.
    pub fn incarnation(&self) -> &str {
        split(&self.0).1.expect("a candidate is built with an incarnation")
    }
}

impl fmt::Display for CandidateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for CandidateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// The holder of a lease, as the store tells it: a candidate of ours, or a foreign client that
/// takes part with an identity of its own making.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(Arc<str>);

impl Holder {
    /// Wraps what the store keeps as the holder's identity.
    pub fn new(identity: impl Into<Arc<str>>) -> Holder {
        Holder(identity.into())
    }

    /// The whole identity.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The readable part; of a foreign holder the whole.
    pub fn label(&self) -> &str {
        split(&self.0).0
    }

    /// Whether this is exactly that candidate, incarnation and all.
    pub fn is(&self, candidate: &CandidateId) -> bool {
        self.0 == candidate.0
    }

    /// Whether this is another incarnation under the same label as that candidate.
    pub fn shares_label(&self, candidate: &CandidateId) -> bool {
        let (label, incarnation) = split(&self.0);
        incarnation.is_some() && label == candidate.label() && !self.is(candidate)
    }
}

impl From<&CandidateId> for Holder {
    fn from(candidate: &CandidateId) -> Holder {
        Holder(candidate.0.clone())
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl Metadata {
    /// The longest metadata, in bytes.
    pub const MAX_BYTES: usize = 4096;

    /// Checks and wraps a JSON object.
    ///
    /// # Errors
    /// `Config` if the text is no JSON object, or longer than 4 KiB.
    pub fn new(json: &str) -> Result<Metadata, Error> {
        if json.len() > Metadata::MAX_BYTES {
            return Err(Error::config(format!(
                "metadata has {} bytes, at most {} are kept; store a link instead",
                json.len(),
                Metadata::MAX_BYTES
            )));
        }
        match serde_json::from_str::<serde_json::Value>(json) {
            Ok(serde_json::Value::Object(_)) => Ok(Metadata(json.into())),
            Ok(_) => Err(Error::config(
                "metadata must be a JSON object, such as {\"url\": \"http://10.0.0.1:8080\"}",
            )),
            Err(error) => Err(Error::config(format!("metadata is not JSON: {error}"))),
        }
    }

    /// The JSON text, as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn split(identity: &str) -> (&str, Option<&str>) {
    match identity.rsplit_once('#') {
        Some((label, tail))
            if tail.len() == 32 && tail.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
        {
            (label, Some(tail))
        }
        _ => (identity, None),
    }
}

fn check_text(what: &str, text: &str, max_bytes: usize) -> Result<(), Error> {
    if text.is_empty() {
        return Err(Error::config(format!("{what} is empty; give it 1 to {max_bytes} bytes")));
    }
    if text.len() > max_bytes {
        return Err(Error::config(format!(
            "{what} has {} bytes, at most {max_bytes} are allowed; shorten it",
            text.len()
        )));
    }
    match text.chars().find(|letter| letter.is_control()) {
        Some(letter) => Err(Error::config(format!(
            "{what} contains the control character {letter:?}; remove it"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_1_to_255_bytes_and_no_control_characters() {
        assert!(Name::new("x".repeat(255)).is_ok());
        let long = Name::new("x".repeat(256)).unwrap_err();
        assert!(long.to_string().contains("256 bytes, at most 255"), "{long}");
        assert!(Name::new("").is_err());
        for odd in ["a\0b", "tab\t", "del\u{7f}", "c1\u{85}"] {
            assert!(Name::new(odd).is_err(), "{odd:?}");
        }
        for fine in ["Büro:日本", "it's \"quoted\"; DROP TABLE x", "a b", "💣"] {
            assert_eq!(Name::new(fine).unwrap().as_str(), fine);
        }
    }

    #[test]
    fn two_incarnations_of_one_label_are_two_candidates() {
        let one = CandidateId::new("web#1", 1).unwrap();
        let two = CandidateId::new("web#1", 2).unwrap();
        assert_ne!(one, two);
        assert_eq!(one.label(), "web#1");
        assert!(Holder::from(&two).shares_label(&one));
        assert!(!Holder::from(&one).shares_label(&one));
        assert!(!Holder::new("web#1").shares_label(&one), "a foreign holder has no incarnation");
    }

    #[test]
    fn the_longest_candidate_fits_into_255_bytes() {
        let id = CandidateId::new(&"x".repeat(200), u128::MAX).unwrap();
        assert!(id.as_str().len() <= 255);
        assert!(CandidateId::new(&"x".repeat(201), 0).is_err());
    }

    #[test]
    fn metadata_is_a_json_object_of_at_most_4_kib() {
        assert!(Metadata::new("{}").is_ok());
        assert!(Metadata::new("[1]").is_err());
        assert!(Metadata::new("{\"a\":").is_err());
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(5000));
        assert!(Metadata::new(&long).unwrap_err().to_string().contains("at most 4096"));
    }
}
