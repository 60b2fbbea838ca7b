//! Redis servers that belong together: a set under Sentinel, a Cluster.

use std::collections::HashSet;
use std::time::Duration;

use crate::process::free_port;
use crate::redis::RedisServer;

/// One primary, two replicas and three sentinels that know each other.
pub struct SentinelSet {
    /// The primary at first, then its replicas.
    pub servers: Vec<RedisServer>,
    /// Those who watch them.
    pub sentinels: Vec<RedisServer>,
}

impl SentinelSet {
    /// Starts them, and waits until each has heard of all others.
    pub fn start() -> SentinelSet {
        // With a diskless copy a replica is called online a second before it is.
        let quick = ["--repl-diskless-sync", "no"];
        let primary = RedisServer::start_with(&quick);
        let port = primary.port.to_string();
        let mut servers = vec![primary];
        for _ in 0..2 {
            let replica = ["--replicaof", "127.0.0.1", &port];
            servers.push(RedisServer::start_with(&[&quick[..], &replica].concat()));
        }
        for replica in &servers[1..] {
            let online = format!("port={},state=online", replica.port);
            servers[0].until(&["INFO", "replication"], &online);
            replica.until(&["INFO", "replication"], "master_link_status:up");
        }
        let lines = format!(
            "sentinel monitor main 127.0.0.1 {port} 2\nsentinel down-after-milliseconds main 900\n\
             sentinel failover-timeout main 1500\nsentinel parallel-syncs main 2"
        );
        let sentinels: Vec<RedisServer> =
            (0..3).map(|_| RedisServer::start_sentinel(&lines)).collect();
        for sentinel in &sentinels {
            // What is known of a replica counts for five pings, and is asked for once a second.
            let hurry = ["SENTINEL", "DEBUG", "PING-PERIOD", "300", "INFO-PERIOD", "200"];
            let more = ["PUBLISH-PERIOD", "200", "ASK-PERIOD", "200", "ELECTION-TIMEOUT", "1000"];
            assert_eq!(sentinel.run(&[&hurry[..], &more].concat()), "+OK");
        }
        let set = SentinelSet { servers, sentinels };
        for sentinel in &set.sentinels {
            let line = "slaves=2,sentinels=3";
            sentinel.until(&["INFO", "sentinel"], line);
        }
        set
    }

    /// How long a server is not heard of before the sentinels call it dead.
    pub fn call_dead_after(&self, span: Duration) {
        let millis = span.as_millis().to_string();
        for sentinel in &self.sentinels {
            let set = ["SENTINEL", "SET", "main", "down-after-milliseconds", &millis];
            assert_eq!(sentinel.run(&set), "+OK");
        }
    }

    /// How to reach it.
    pub fn url(&self) -> String {
        let ports: Vec<String> =
            self.sentinels.iter().map(|one| format!("127.0.0.1:{}", one.port)).collect();
        format!("redis+sentinel://{}/main/0", ports.join(","))
    }

    /// The server that leases are on now, by its place in `servers`.
    pub fn primary(&self) -> usize {
        let is_primary = |server: &RedisServer| {
            let told = server.ask("INFO replication");
            told.is_some_and(|told| told.contains("role:master"))
        };
        self.servers.iter().position(is_primary).unwrap()
    }
}

/// Three primaries, and a replica for each.
pub struct ClusterSet {
    /// Primaries first.
    pub servers: Vec<RedisServer>,
}

impl ClusterSet {
    /// Starts them, and waits until each has heard of all others.
    pub fn start() -> ClusterSet {
        let servers: Vec<(RedisServer, String)> = (0..6)
            .map(|_| {
                let bus = free_port().to_string();
                let settings = [
                    "--cluster-enabled",
                    "yes",
                    "--cluster-port",
                    &bus,
                    "--cluster-node-timeout",
                    "1000",
                    "--cluster-replica-validity-factor",
                    "0",
                    "--repl-diskless-sync",
                    "no",
                ];
                (RedisServer::start_with(&settings), bus)
            })
            .collect();
        let ranges = [("0", "5460"), ("5461", "10922"), ("10923", "16383")];
        for (number, (server, _)) in servers.iter().enumerate() {
            let epoch = (number + 1).to_string();
            assert_eq!(server.run(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]), "+OK");
            if let Some((from, to)) = ranges.get(number) {
                assert_eq!(server.run(&["CLUSTER", "ADDSLOTSRANGE", from, to]), "+OK");
            }
        }
        let (first, _) = &servers[0];
        for (server, bus) in &servers[1..] {
            let port = server.port.to_string();
            assert_eq!(first.run(&["CLUSTER", "MEET", "127.0.0.1", &port, bus]), "+OK");
        }
        for (server, _) in &servers {
            server.until(&["CLUSTER", "INFO"], "cluster_known_nodes:6");
        }
        let servers: Vec<RedisServer> = servers.into_iter().map(|(server, _)| server).collect();
        let ids: Vec<String> = servers.iter().map(|one| one.run(&["CLUSTER", "MYID"])).collect();
        for (replica, id) in servers[3..].iter().zip(&ids) {
            // It has to have heard of its primary's slots first.
            replica.until(&["CLUSTER", "REPLICATE", id], "+OK");
        }
        for server in &servers {
            server.until(&["CLUSTER", "INFO"], "cluster_state:ok");
        }
        for replica in &servers[3..] {
            replica.until(&["INFO", "replication"], "master_link_status:up");
        }
        let set = ClusterSet { servers };
        // Everybody knows that the replicas are ones.
        for server in &set.servers {
            for id in &ids[3..] {
                server.until(&["CLUSTER", "NODES"], &format!("{id} 127.0.0.1"));
            }
        }
        set
    }

    /// How to reach it.
    pub fn url(&self) -> String {
        let ports: Vec<String> =
            self.servers[..3].iter().map(|one| format!("127.0.0.1:{}", one.port)).collect();
        format!("redis+cluster://{}", ports.join(","))
    }

    /// Which of the three ranges a key is in, and so which primary had it at first.
    pub fn home_of(&self, key: &str) -> usize {
        let slot = self.servers[0].run(&["CLUSTER", "KEYSLOT", key]);
        let slot: usize = slot.trim_start_matches(':').parse().unwrap();
        usize::min(slot / 5_461, 2)
    }

    /// A name for each of the three primaries.
    pub fn a_name_on_each(&self) -> Vec<String> {
        let mut names = vec![None; 3];
        for number in 0..100 {
            let name = format!("jobs-{number}");
            names[self.home_of(&name)].get_or_insert(name);
        }
        let names: Vec<String> = names.into_iter().map(Option::unwrap).collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 3);
        names
    }
}
