//! Which keys an election has.
//!
//! The lease is the plain key, as other clients use it. What tenure notes beside it has to be in
//! the same Cluster slot (R4), so the companion carries the lease's own hash tag, or makes the
//! whole lease its tag. The two ways end differently, or `a` and `{a}` would share a companion.
//! Every key begins with the prefix, so that an ACL has to name nothing else.

use tenure_core::{CandidateId, Error, Name};

use crate::hash_slot::{hashed, slot_of, tag};
use crate::primary::{Node, Primary};

/// The end of a companion of a key without a hash tag of its own.
const COMPANION: &str = ":tenure";

/// The end of a companion of a key with a hash tag of its own.
const TAGGED_COMPANION: &str = ":tenure:own";

/// The keys of all elections under one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
    /// The number of the database that they are in.
    database: i64,
    /// Whether the keys of an election have to be in one slot.
    in_cluster: bool,
}

/// The keys of one election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ElectionKeys {
    pub(crate) lease: String,
    pub(crate) companion: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Keys {
        Keys { prefix: prefix.to_owned(), database: 0, in_cluster: false }
    }

    /// The same keys in this database. It is part of the name of each channel, because pub/sub
    /// knows no databases (R7).
    pub(crate) fn in_database(mut self, database: i64) -> Keys {
        self.database = database;
        self
    }

    /// The keys under a prefix on a Cluster.
    ///
    /// # Errors
    /// `Config` for a prefix that opens or closes a hash tag and does not have one.
    pub(crate) fn in_cluster(prefix: &str) -> Result<Keys, Error> {
        if prefix.contains(['{', '}']) && tag(prefix).is_none() {
            return Err(Error::config(format!(
                "the prefix {prefix:?} has braces that make no hash tag, which a Cluster would \
                 take apart; leave them out, or write them as in {{shop}}:"
            )));
        }
        Ok(Keys { in_cluster: true, ..Keys::new(prefix) })
    }

    /// Where a server's run is noted, for all elections of this prefix.
    pub(crate) fn marker(&self) -> String {
        format!("{}tenure:server", self.prefix)
    }

    /// Where releases and asks are told.
    fn channel(&self) -> String {
        format!("{}tenure:hints:{}", self.prefix, self.database)
    }

    /// Where messages of an election are told: on a Cluster in the slot of its lease, wherever that
    /// goes.
    pub(crate) fn mail_channel(&self, election: &Name) -> String {
        let lease = format!("{}{election}", self.prefix);
        let own = match tag(&self.prefix) {
            None if self.in_cluster => format!("{{{}}}:", hashed(&lease)),
            _ => String::new(),
        };
        format!("{}:mail:{own}{election}", self.channel())
    }

    /// What tenure keeps on a server for itself.
    pub(crate) fn primary(&self, node: Node) -> Primary {
        Primary { node, marker: self.marker(), channel: self.channel(), in_cluster: false }
    }

    /// What tenure keeps on a primary of a Cluster, in a slot that it holds: the one of this tag,
    /// or of the prefix if that has a tag. Nothing if no lease of this prefix can be there.
    pub(crate) fn primary_in_cluster(
        &self,
        node: Node,
        local: &str,
        holds: impl Fn(u16) -> bool,
    ) -> Option<Primary> {
        let end = match tag(&self.prefix) {
            Some(tag) if holds(slot_of(tag)) => String::new(),
            Some(_) => return None,
            None => format!(":{{{local}}}"),
        };
        let marker = format!("{}{end}", self.marker());
        let channel = format!("{}{end}", self.channel());
        Some(Primary { node, marker, channel, in_cluster: true })
    }

    /// A primary of a Cluster that has no slot yet, and so has no marker and no channel.
    pub(crate) fn primary_without_slots(node: Node) -> Primary {
        Primary { node, marker: String::new(), channel: String::new(), in_cluster: true }
    }

    /// The keys of an election.
    ///
    /// # Errors
    /// `Config` if the lease would be stored where tenure keeps its own notes.
    pub(crate) fn of(&self, election: &Name) -> Result<ElectionKeys, Error> {
        let lease = format!("{}{election}", self.prefix);
        let reserved = lease == self.marker()
            || lease.starts_with(&format!("{}:{{", self.marker()))
            || lease.contains(&format!("}}{COMPANION}"))
            || lease.contains(TAGGED_COMPANION);
        if reserved {
            return Err(Error::config(format!(
                "the election {election:?} has the name of a key that tenure needs for itself; \
                 choose another"
            )));
        }
        let companion = match tag(&lease) {
            Some(_) => format!("{lease}{TAGGED_COMPANION}"),
            None => format!("{}{{{lease}}}{COMPANION}", self.prefix),
        };
        if self.in_cluster && hashed(&companion) != hashed(&lease) {
            return Err(Error::config(format!(
                "the election {election:?} has braces that make no hash tag, which a Cluster \
                 would take apart; leave them out, or write them as in {{shop}}:jobs"
            )));
        }
        Ok(ElectionKeys { lease, companion })
    }

    /// A pattern that every companion matches, and few other keys.
    pub(crate) fn companions(&self) -> &'static str {
        "*:tenure*"
    }

    /// The election whose companion this key is, if it is one.
    pub(crate) fn election_of(&self, key: &str) -> Option<Name> {
        let own = key.strip_prefix(&self.prefix)?;
        let plain =
            own.strip_prefix('{').and_then(|key| key.strip_suffix(COMPANION)?.strip_suffix('}'));
        let lease = key.strip_suffix(TAGGED_COMPANION).or(plain)?;
        let name = Name::new(lease.strip_prefix(&self.prefix)?).ok()?;
        self.of(&name).is_ok_and(|keys| keys.companion == key).then_some(name)
    }
}

impl ElectionKeys {
    /// Where the last term stays when the election is forgotten.
    pub(crate) fn kept(&self) -> String {
        format!("{}:kept", self.companion)
    }

    /// Where the last release of a candidate is remembered (C2).
    pub(crate) fn released(&self, candidate: &CandidateId) -> String {
        self.released_by(candidate.as_str())
    }

    /// The same for the name of a candidate.
    pub(crate) fn released_by(&self, candidate: &str) -> String {
        format!("{}:released:{candidate}", self.companion)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn keys(prefix: &str, name: &str) -> ElectionKeys {
        Keys::new(prefix).of(&Name::new(name).unwrap()).unwrap()
    }

    #[test]
    fn the_companion_is_in_the_slot_of_the_lease() {
        for name in ["jobs", "shop:{eu}:jobs", "{a}", "a{b", "{a}{b}", "日本"] {
            let keys = keys("x:", name);
            assert_eq!(keys.lease, format!("x:{name}"));
            assert!(keys.companion.starts_with("x:"), "the ACL ~x:* has to be enough");
            assert_eq!(hashed(&keys.lease), hashed(&keys.companion), "{name}");
            let candidate = CandidateId::new("{odd}", 1).unwrap();
            assert_eq!(hashed(&keys.lease), hashed(&keys.released(&candidate)), "{name}");
        }
    }

    /// R4: `{a}b}` would be hashed by `a` alone.
    #[test]
    fn a_cluster_refuses_names_whose_notes_would_be_elsewhere() {
        let all = Keys::in_cluster("").unwrap();
        let of = |name: &str| all.of(&Name::new(name).unwrap());
        for name in ["a}b", "a{}b", "{}", "}", "a}{b", "{}{a}"] {
            let error = of(name).unwrap_err();
            assert!(error.message().contains("hash tag"), "{error}");
            Keys::new("").of(&Name::new(name).unwrap()).unwrap();
        }
        for name in ["jobs", "{a}", "a{b", "{a}}", "x{a}y}"] {
            of(name).unwrap();
        }
        for prefix in ["a}", "{}", "x{"] {
            assert!(Keys::in_cluster(prefix).is_err(), "{prefix}");
        }
    }

    #[test]
    fn each_primary_has_a_marker_in_a_slot_of_its_own() {
        let node = || Node { host: "h".to_owned(), port: 1 };
        let plain = Keys::in_cluster("app:").unwrap();
        let primary = plain.primary_in_cluster(node(), "abc", |_| false).unwrap();
        assert_eq!(primary.marker, "app:tenure:server:{abc}");
        assert_eq!(slot_of(&primary.marker), slot_of("abc"));
        assert_eq!(slot_of(&primary.channel), slot_of("abc"));
        // All leases of such a prefix are in its slot, and so is the marker.
        let tagged = Keys::in_cluster("{app}:").unwrap();
        let primary =
            tagged.primary_in_cluster(node(), "abc", |slot| slot == slot_of("app")).unwrap();
        assert_eq!(primary.marker, "{app}:tenure:server");
        assert_eq!(tagged.primary_in_cluster(node(), "abc", |_| false), None);
    }

    /// A subscription stays where its election is, whatever other slots its server gets.
    #[test]
    fn messages_are_told_in_the_slot_of_their_election() {
        for (prefix, name) in
            [("", "jobs"), ("app:", "jobs"), ("app:", "a{b"), ("{app}:", "jobs"), ("x:", "{y}:z")]
        {
            let name = Name::new(name).unwrap();
            let keys = Keys::in_cluster(prefix).unwrap();
            let channel = keys.mail_channel(&name);
            assert!(channel.starts_with(&format!("{prefix}tenure:hints:0:mail:")), "{channel}");
            assert_eq!(slot_of(&channel), slot_of(&keys.of(&name).unwrap().lease), "{channel}");
        }
        let name = Name::new("{y}:z").unwrap();
        assert_eq!(Keys::new("x:").mail_channel(&name), "x:tenure:hints:0:mail:{y}:z");
    }

    /// R7: pub/sub ignores `SELECT`.
    #[test]
    fn each_database_has_channels_of_its_own() {
        let node = || Node { host: "h".to_owned(), port: 1 };
        let name = Name::new("jobs").unwrap();
        let (first, second) = (Keys::new("x:"), Keys::new("x:").in_database(1));
        assert_eq!(first.primary(node()).channel, "x:tenure:hints:0");
        assert_eq!(second.primary(node()).channel, "x:tenure:hints:1");
        assert_eq!(second.mail_channel(&name), "x:tenure:hints:1:mail:jobs");
        assert_eq!(first.of(&name).unwrap(), second.of(&name).unwrap(), "keys are apart anyway");
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
            assert_eq!(all.election_of(&keys.kept()), None, "it was forgotten");
            assert_eq!(hashed(&keys.companion), hashed(&keys.kept()), "{name}");
        }
        assert_eq!(keys("p:", "a").companion, "p:{p:a}:tenure");
        for key in ["{p:a}:tenure", "{q:a}:tenure", "p:{q:a}:tenure", "q:{p:a}:tenure"] {
            assert_eq!(Keys::new("p:").election_of(key), None, "{key}");
        }
    }

    #[test]
    fn an_election_can_not_be_named_after_tenure_s_own_keys() {
        let refused = |name: &str| Keys::new("p:").of(&Name::new(name).unwrap()).is_err();
        assert!(refused("tenure:server"));
        assert!(refused("tenure:server:{abc}"));
        assert!(refused("{a}:tenure"));
        assert!(refused("{a}b:tenure:own:released:x"));
        assert!(!refused("tenure"));
        assert!(!refused("my:tenure:server"));
    }
}
