//! Redis servers of a bench's own, which know nothing: when somebody leads there.

use std::time::Duration;

use anyhow::Result;
use tenure::BootClock;
use tenure_testbed::redis::RedisServer;

use crate::fleet::{self, Fleet, Kind, pause};
use crate::ground::{Engine, Ground};
use crate::interrupt;
use crate::numbers::Sample;
use crate::report::Section;
use crate::start::until_a_command_runs;

/// One measurement each: what has served tenure once is fresh no more.
const SERVERS: usize = 10;
const MINUTE: Duration = Duration::from_secs(60);
const RESTARTS: usize = 10;

/// `tenure run` with the default ttl, on servers that have been up for a minute.
pub(crate) fn first_leader_after_a_minute() -> Result<Section> {
    let tenure = fleet::tenure()?;
    let servers: Vec<RedisServer> = (0..SERVERS).map(|_| RedisServer::start()).collect();
    // They tell their age in whole seconds.
    let end = BootClock::time() + MINUTE + Duration::from_secs(1);
    while BootClock::time() < end {
        interrupt::check()?;
        pause(Duration::from_millis(100));
    }
    let mut took = Vec::with_capacity(SERVERS);
    for server in &servers {
        interrupt::check()?;
        took.push(until_a_command_runs(&tenure, &server.url())?);
    }
    let took = Sample::of_durations(&took)?;
    let mut section = Section::new();
    section.number("process started to command running, p50", took.median(), "ms");
    section.at_most("process started to command running, worst", took.max(), 100.0, "ms");
    Ok(section)
}

/// Three `tenure campaign` with a ttl of 3 s, whose server loses all that it knew.
pub(crate) fn leader_after_a_restart() -> Result<Section> {
    let mut server = RedisServer::start();
    // Then the first leader has not to wait for anything.
    server.until_up(5);
    let ground = Ground::at(Engine::Redis, server.url())?;
    let mut fleet = Fleet::new(Kind::Campaign, 3, ground)?;
    let mut took = Vec::with_capacity(RESTARTS);
    let mut leader = fleet.leader()?;
    for _ in 0..RESTARTS {
        interrupt::check()?;
        let killed = BootClock::time();
        server.restart();
        leader = fleet.successor(&leader)?;
        took.push(leader.at - killed);
    }
    let took = Sample::of_durations(&took)?;
    let mut section = Section::new();
    section.number("server killed to next leader, p50", took.median(), "ms");
    section.at_most("server killed to next leader, worst", took.max(), 3_500.0, "ms");
    Ok(section)
}
