//! Redis servers that belong together, to play with: a set under Sentinel, a Cluster.

use anyhow::{Result, bail};

use super::free_port;
use super::redis::Redis;
use crate::process::Group;

/// A set of servers that is reached by one URL. Dropping it ends them all.
pub(crate) struct RedisSet {
    servers: Vec<Redis>,
    url: String,
}

impl RedisSet {
    /// One primary, two replicas and three sentinels.
    pub(crate) fn sentinel() -> Result<Self> {
        let mut servers = vec![Redis::start()?];
        let port = servers[0].port().to_string();
        for _ in 0..2 {
            servers.push(Redis::start_with(&["--replicaof", "127.0.0.1", &port])?);
        }
        servers[0].until(&["INFO", "replication"], "connected_slaves:2")?;
        let lines = format!(
            "sentinel monitor main 127.0.0.1 {port} 2\nsentinel down-after-milliseconds main 3000\n\
             sentinel failover-timeout main 10000\n"
        );
        let first = servers.len();
        for _ in 0..3 {
            servers.push(Redis::start_sentinel(&lines)?);
        }
        for sentinel in &servers[first..] {
            sentinel.until(&["INFO", "sentinel"], "slaves=2,sentinels=3")?;
        }
        let url = format!("redis+sentinel://{}/main/0", addresses(&servers[first..]));
        Ok(Self { servers, url })
    }

    /// Three primaries, and a replica for each.
    pub(crate) fn cluster() -> Result<Self> {
        let mut servers = Vec::new();
        let mut buses = Vec::new();
        for _ in 0..6 {
            let bus = free_port()?.to_string();
            let settings = ["--cluster-enabled", "yes", "--cluster-port", &bus];
            servers.push(Redis::start_with(&settings)?);
            buses.push(bus);
        }
        for (server, range) in
            servers.iter().zip([["0", "5460"], ["5461", "10922"], ["10923", "16383"]])
        {
            done(server, &["CLUSTER", "ADDSLOTSRANGE", range[0], range[1]])?;
        }
        for (number, server) in servers.iter().enumerate() {
            done(server, &["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()])?;
        }
        for (server, bus) in servers.iter().zip(&buses).skip(1) {
            let port = server.port().to_string();
            done(&servers[0], &["CLUSTER", "MEET", "127.0.0.1", &port, bus])?;
        }
        for server in &servers {
            server.until(&["CLUSTER", "INFO"], "cluster_known_nodes:6")?;
        }
        for number in 0..3 {
            let id = servers[number].command(&["CLUSTER", "MYID"])?;
            servers[number + 3].until(&["CLUSTER", "REPLICATE", &id], "+OK")?;
        }
        for server in &servers {
            server.until(&["CLUSTER", "INFO"], "cluster_state:ok")?;
        }
        let url = format!("redis+cluster://{}", addresses(&servers[..3]));
        Ok(Self { servers, url })
    }

    /// How to reach it.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Which process is which, for those who want to end one of them.
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(Redis::port).collect()
    }

    pub(super) fn group(&mut self) -> &mut Group {
        // All end with the first: there is always one.
        self.servers[0].group()
    }
}

fn done(server: &Redis, words: &[&str]) -> Result<()> {
    match server.command(words)?.as_str() {
        "+OK" => Ok(()),
        answer => bail!("{words:?} was answered {answer}"),
    }
}

fn addresses(servers: &[Redis]) -> String {
    let each = servers.iter().map(|server| format!("127.0.0.1:{}", server.port()));
    each.collect::<Vec<_>>().join(",")
}
