//! Servers of our own for tests: private, on free ports, ended with the run.

pub(crate) mod pgbouncer;
pub(crate) mod postgres;
pub(crate) mod redis;
pub(crate) mod redis_sets;

use std::net::TcpListener;

use anyhow::{Context, Result, bail};

use crate::process::Group;

/// `cargo xtask up NAME`: starts a server to play with, until Ctrl-C.
pub(crate) fn up(name: &str) -> Result<bool> {
    match name {
        "postgres" => {
            let mut server = postgres::Postgres::start()?;
            println!("postgres is up; Ctrl-C ends it and removes its data\n\n{}", server.url());
            if let Some(url) = server.pooler_url() {
                println!("{url} (PgBouncer, transaction mode)");
            }
            wait(server.group())
        }
        "redis" => {
            let mut server = redis::Redis::start()?;
            println!("redis is up; Ctrl-C ends it and removes its data\n\n{}", server.url());
            wait(server.group())
        }
        "redis-sentinel" | "redis-cluster" => {
            let mut set = match name {
                "redis-sentinel" => redis_sets::RedisSet::sentinel()?,
                _ => redis_sets::RedisSet::cluster()?,
            };
            println!("{name} is up; Ctrl-C ends it and removes its data\n\n{}", set.url());
            println!("on the ports {:?}", set.ports());
            wait(set.group())
        }
        _ => bail!(
            "there is no server `{name}`; there are postgres, redis, redis-sentinel and \
             redis-cluster"
        ),
    }
}

fn wait(group: &mut Group) -> Result<bool> {
    Ok(group.wait(|_| ())?.success())
}

/// A port that nobody uses at this instant.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot find a free port")?;
    Ok(listener.local_addr()?.port())
}
