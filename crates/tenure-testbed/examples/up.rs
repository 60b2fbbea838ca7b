//! `cargo xtask up redis-sentinel`, `redis-cluster`: starts the set of servers that tests use, to
//! play with, until it is ended.
#![allow(clippy::print_stdout, reason = "it tells where they are")]

use tenure_testbed::redis::RedisServer;
use tenure_testbed::redis_sets::{ClusterSet, SentinelSet};

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("redis-sentinel") => {
            let set = SentinelSet::start();
            stay(&set.url(), set.servers.iter().chain(&set.sentinels));
        }
        Some("redis-cluster") => {
            let set = ClusterSet::start();
            stay(&set.url(), set.servers.iter());
        }
        _ => panic!("there are redis-sentinel and redis-cluster"),
    }
}

/// Says how to reach them, and which process is which for those who want to end one of them.
fn stay<'a>(url: &str, servers: impl Iterator<Item = &'a RedisServer>) {
    let ports: Vec<u16> = servers.map(|server| server.port).collect();
    println!(
        "they are up; Ctrl-C ends them and removes their data\n\n{url}\non the ports {ports:?}"
    );
    loop {
        std::thread::park();
    }
}
