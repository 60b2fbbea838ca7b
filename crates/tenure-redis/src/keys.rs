//! Which keys an election has.
//!
//! The lease is the plain key, as other clients use it. What tenure notes beside it has to be in
//! the same Cluster slot (R4), so the companion carries the lease's own hash tag, or makes the
//! whole lease its tag. The two ways end differently, or `a` and `{a}` would share a companion.

use tenure_core::{CandidateId, Error, Name};

/// The end of a companion of a key without a hash tag of its own.
const COMPANION: &str = ":tenure";

/// The end of a companion of a key with a hash tag of its own.
const TAGGED_COMPANION: &str = ":tenure:own";

/// The keys of all elections under one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

/// The keys of one election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ElectionKeys {
    pub(crate) lease: String,
    pub(crate) companion: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Keys {
        Keys { prefix: prefix.to_owned() }
    }

    /// Where a server's run is noted, for all elections of this prefix.
    pub(crate) fn marker(&self) -> String {
        format!("{}tenure:server", self.prefix)
    }

    /// Where releases and asks are told.
    pub(crate) fn channel(&self) -> String {
        format!("{}tenure:hints", self.prefix)
    }

    /// The keys of an election.
    ///
    /// # Errors
    /// `Config` if the lease would be stored where tenure keeps its own notes.
    pub(crate) fn of(&self, election: &Name) -> Result<ElectionKeys, Error> {
        let lease = format!("{}{election}", self.prefix);
        let reserved = lease == self.marker()
            || lease.contains(&format!("}}{COMPANION}"))
            || lease.contains(TAGGED_COMPANION);
        if reserved {
            return Err(Error::config(format!(
                "the election {election:?} has the name of a key that tenure needs for itself; \
                 choose another"
            )));
        }
        let companion = if has_tag(&lease) {
            format!("{lease}{TAGGED_COMPANION}")
        } else {
            format!("{{{lease}}}{COMPANION}")
        };
        Ok(ElectionKeys { lease, companion })
    }

    /// A pattern that every companion matches, and few other keys.
    pub(crate) fn companions(&self) -> &'static str {
        "*:tenure*"
    }

    /// The election whose companion this key is, if it is one.
    pub(crate) fn election_of(&self, key: &str) -> Option<Name> {
        let plain =
            key.strip_prefix('{').and_then(|key| key.strip_suffix(COMPANION)?.strip_suffix('}'));
        let lease = key.strip_suffix(TAGGED_COMPANION).or(plain)?;
        let name = Name::new(lease.strip_prefix(&self.prefix)?).ok()?;
        self.of(&name).is_ok_and(|keys| keys.companion == key).then_some(name)
    }
}

impl ElectionKeys {
    /// Where the last release of a candidate is remembered (C2).
    pub(crate) fn released(&self, candidate: &CandidateId) -> String {
        format!("{}:released:{candidate}", self.companion)
    }
}

/// Whether Cluster hashes only a part of this key: what stands between the first `{` and the next
/// `}`, unless that is nothing.
fn has_tag(key: &str) -> bool {
    let inner = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    inner.is_some_and(|(tag, _)| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn keys(prefix: &str, name: &str) -> ElectionKeys {
        Keys::new(prefix).of(&Name::new(name).unwrap()).unwrap()
    }

    /// What Cluster hashes of a key.
    fn hashed(key: &str) -> &str {
        match key.split_once('{').and_then(|(_, rest)| rest.split_once('}')) {
            Some((tag, _)) if !tag.is_empty() => tag,
            _ => key,
        }
    }

    #[test]
    fn the_companion_is_in_the_slot_of_the_lease() {
        for name in ["jobs", "shop:{eu}:jobs", "{a}", "a{b", "{a}{b}", "日本"] {
            let keys = keys("x:", name);
            assert_eq!(keys.lease, format!("x:{name}"));
            assert_eq!(hashed(&keys.lease), hashed(&keys.companion), "{name}");
            let candidate = CandidateId::new("{odd}", 1).unwrap();
            assert_eq!(hashed(&keys.lease), hashed(&keys.released(&candidate)), "{name}");
        }
    }

    #[test]
    fn no_two_elections_share_a_key() {
        let names = ["a", "{a}", "{{a}}", "{a", "a}", "a}b", "a{}b", "{}", "{}a", "{a}b", "a{b}"];
        let all: Vec<ElectionKeys> = names.iter().map(|name| keys("", name)).collect();
        let distinct: HashSet<&String> =
            all.iter().flat_map(|keys| [&keys.lease, &keys.companion]).collect();
        assert_eq!(distinct.len(), 2 * names.len());
    }

    #[test]
    fn a_companion_leads_back_to_its_election() {
        for name in ["a", "{a}", "a}b", "{}", "shop:{eu}:jobs", "日本"] {
            let all = Keys::new("p:");
            let keys = keys("p:", name);
            assert_eq!(all.election_of(&keys.companion), Some(Name::new(name).unwrap()));
            assert_eq!(all.election_of(&keys.lease), None);
            let released = keys.released(&CandidateId::new("x", 1).unwrap());
            assert_eq!(all.election_of(&released), None);
        }
        assert_eq!(Keys::new("p:").election_of("{q:a}:tenure"), None);
    }

    #[test]
    fn an_election_can_not_be_named_after_tenure_s_own_keys() {
        let refused = |name: &str| Keys::new("p:").of(&Name::new(name).unwrap()).is_err();
        assert!(refused("tenure:server"));
        assert!(refused("{a}:tenure"));
        assert!(refused("{a}b:tenure:own:released:x"));
        assert!(!refused("tenure"));
        assert!(!refused("my:tenure:server"));
    }
}
