//! Where the servers are: one, a set that sentinels watch, or a Cluster.

use std::fmt;

/// The address of one server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Node {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl Node {
    /// As in a URL, where the usual port is left out.
    pub(crate) fn short(&self, usual: u16) -> String {
        let text = self.to_string();
        if self.port != usual {
            return text;
        }
        text.rsplit_once(':').map_or_else(|| text.clone(), |(host, _)| host.to_owned())
    }
}

/// What a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Servers {
    /// One server.
    Single(Node),
    /// The primary of this name, as these sentinels tell it.
    Sentinel { sentinels: Vec<Node>, name: String },
    /// The Cluster that these belong to.
    Cluster { seeds: Vec<Node> },
}

/// One server that grants leases, and what tenure keeps there beside them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Primary {
    pub(crate) node: Node,
    /// The key that tells which run of this server is known (R2).
    pub(crate) marker: String,
    /// Where this server tells of releases and asks.
    pub(crate) channel: String,
    /// Whether it is one of a Cluster: then the marker is in a slot of its own, and the channel
    /// is sharded.
    pub(crate) in_cluster: bool,
}
