//! Measures what tenure promises in numbers, and writes `bench/RESULTS.md`.
//!
//! Each bench answers the question in its name. Its numbers stand beside the bar that the project
//! set itself; a bar that is missed is marked, and that is all: tests assert, benches measure.

mod candidate;
mod cron;
mod crowd;
mod fleet;
mod fresh;
mod ground;
mod handle;
mod handover;
mod interrupt;
mod many;
mod messages;
mod meter;
mod numbers;
mod raw;
mod report;
mod sidecar;
mod start;

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Parser;

use fleet::Kind::{Campaign, Work};
use ground::Engine::{Advisory, Postgres, Redis, Sqlite};
use report::{Origin, Section};

/// One bench.
struct Bench {
    name: &'static str,
    about: &'static str,
    run: fn() -> Result<Section>,
}

/// A round on a network store takes about a ttl when nobody resigns.
const FEW: usize = 20;
const ROUNDS: usize = 50;
/// Where the bar for p99 is close, one slow write of the disk must not be all that it tells.
const MANY: usize = 200;

/// A ttl of 3 s and what a successor may be late by, in milliseconds.
const TTL_AND_100: f64 = 3_100.0;

/// In the order in which they run. The one that measures its own memory comes first.
const BENCHES: &[Bench] = &[
    Bench {
        name: "renew_10000_elections_on_sqlite",
        about: "One process leads 10,000 elections with a ttl of 30 s.",
        run: || many::renew_10000_elections(Sqlite, 10.0),
    },
    Bench {
        name: "renew_10000_elections_on_postgres",
        about: "One process leads 10,000 elections with a ttl of 30 s.",
        run: || many::renew_10000_elections(Postgres, 20.0),
    },
    Bench {
        name: "renew_10000_elections_on_postgres_advisory",
        about: "One process leads 10,000 elections with a ttl of 30 s.",
        run: || many::renew_10000_elections(Advisory, 20.0),
    },
    Bench {
        name: "renew_10000_elections_on_redis",
        about: "One process leads 10,000 elections with a ttl of 30 s.",
        run: || many::renew_10000_elections(Redis, 20.0),
    },
    Bench {
        name: "is_leader_while_leading",
        about: "One call of a handle's questions, while this instance leads.",
        run: handle::while_leading,
    },
    Bench {
        name: "is_leader_while_following",
        about: "One call of a handle's question, while another instance leads.",
        run: handle::while_following,
    },
    Bench {
        name: "clean_hand_over_on_sqlite",
        about: "Three programs with work under a `Tenure`, ttl 3 s, 50 rounds: SIGTERM, resign.",
        run: || handover::clean(Work, Sqlite, ROUNDS, (5.0, 20.0)),
    },
    Bench {
        name: "clean_hand_over_on_postgres",
        about: "Three programs with work under a `Tenure`, ttl 3 s, 200 rounds: SIGTERM, resign.",
        run: || handover::clean(Work, Postgres, MANY, (3.0, 10.0)),
    },
    Bench {
        name: "clean_hand_over_on_postgres_advisory",
        about: "Three programs with work under a `Tenure`, ttl 3 s, 200 rounds: SIGTERM, resign.",
        run: || handover::clean(Work, Advisory, MANY, (3.0, 10.0)),
    },
    Bench {
        name: "clean_hand_over_on_redis",
        about: "Three programs with work under a `Tenure`, ttl 3 s, 50 rounds: SIGTERM, resign.",
        run: || handover::clean(Work, Redis, ROUNDS, (2.0, 8.0)),
    },
    Bench {
        name: "clean_hand_over_of_campaign_on_sqlite",
        about: "Three `tenure campaign`, ttl 3 s, 50 rounds: the leader gets SIGTERM and resigns.",
        run: || handover::clean(Campaign, Sqlite, ROUNDS, (5.0, 20.0)),
    },
    Bench {
        name: "clean_hand_over_of_campaign_on_postgres",
        about: "Three `tenure campaign`, ttl 3 s, 200 rounds: the leader gets SIGTERM and resigns.",
        run: || handover::clean(Campaign, Postgres, MANY, (3.0, 10.0)),
    },
    Bench {
        name: "clean_hand_over_of_campaign_on_postgres_advisory",
        about: "Three `tenure campaign`, ttl 3 s, 200 rounds: the leader gets SIGTERM and resigns.",
        run: || handover::clean(Campaign, Advisory, MANY, (3.0, 10.0)),
    },
    Bench {
        name: "clean_hand_over_of_campaign_on_redis",
        about: "Three `tenure campaign`, ttl 3 s, 50 rounds: the leader gets SIGTERM and resigns.",
        run: || handover::clean(Campaign, Redis, ROUNDS, (2.0, 8.0)),
    },
    Bench {
        name: "kill_9_of_the_leader_on_sqlite",
        about: "Three `tenure run`, ttl 3 s, 50 rounds: the leader is killed.",
        run: || handover::kill_9(Sqlite, ROUNDS, 100.0),
    },
    Bench {
        name: "kill_9_of_the_leader_on_postgres",
        about: "Three `tenure run`, ttl 3 s, 20 rounds: the leader is killed.",
        run: || handover::kill_9(Postgres, FEW, TTL_AND_100),
    },
    Bench {
        name: "kill_9_of_the_leader_on_postgres_advisory",
        about: "Three `tenure run`, ttl 3 s, 50 rounds: the leader is killed.",
        run: || handover::kill_9(Advisory, ROUNDS, 50.0),
    },
    Bench {
        name: "kill_9_of_the_leader_on_redis",
        about: "Three `tenure run`, ttl 3 s, 20 rounds: the leader is killed.",
        run: || handover::kill_9(Redis, FEW, TTL_AND_100),
    },
    Bench {
        name: "die_of_the_elector_on_sqlite",
        about: "Three `tenure run`, 50 rounds each: the electing process is killed, alone.",
        run: || handover::die(Sqlite, ROUNDS),
    },
    Bench {
        name: "die_of_the_elector_on_postgres",
        about: "Three `tenure run`, 50 rounds each: the electing process is killed, alone.",
        run: || handover::die(Postgres, ROUNDS),
    },
    Bench {
        name: "die_of_the_elector_on_redis",
        about: "Three `tenure run`, 50 rounds each: the electing process is killed, alone.",
        run: || handover::die(Redis, ROUNDS),
    },
    Bench {
        name: "frozen_leader_on_sqlite",
        about: "Three processes, ttl 3 s, 50 rounds: the leader is stopped, and goes on later.",
        run: || handover::frozen(Sqlite, ROUNDS),
    },
    Bench {
        name: "frozen_leader_on_postgres",
        about: "Three processes, ttl 3 s, 20 rounds: the leader is stopped, and goes on later.",
        run: || handover::frozen(Postgres, FEW),
    },
    Bench {
        name: "frozen_leader_on_postgres_advisory",
        about: "Three processes, ttl 3 s, 20 rounds: the leader is stopped, and goes on later.",
        run: || handover::frozen(Advisory, FEW),
    },
    Bench {
        name: "frozen_leader_on_redis",
        about: "Three processes, ttl 3 s, 20 rounds: the leader is stopped, and goes on later.",
        run: || handover::frozen(Redis, FEW),
    },
    Bench {
        name: "hundred_candidates_on_postgres",
        about: "A hundred candidates of one election, each with connections of its own.",
        run: crowd::on_postgres,
    },
    Bench {
        name: "hundred_candidates_on_postgres_advisory",
        about: "A hundred candidates of one election, each with connections of its own.",
        run: crowd::on_advisory,
    },
    Bench {
        name: "hundred_candidates_on_redis",
        about: "A hundred candidates of one election, each with connections of its own.",
        run: crowd::on_redis,
    },
    Bench {
        name: "notices_on_postgres",
        about: "A leader is told: from sending to its handler, in one process.",
        run: || messages::notices(Postgres, (Some(0.4), 3.0), 13_000.0),
    },
    Bench {
        name: "notices_on_redis",
        about: "A leader is told: from sending to its handler, in one process.",
        run: || messages::notices(Redis, (Some(0.4), 3.0), 13_000.0),
    },
    Bench {
        name: "notices_on_sqlite",
        about: "A leader is told: from sending to its handler, in one process.",
        run: || messages::notices(Sqlite, (None, 10.0), 1_000.0),
    },
    Bench {
        name: "posts_on_postgres",
        about: "Posts are kept by four senders, and handled by one leader.",
        run: || messages::posts(Postgres, Some(5_000.0)),
    },
    Bench {
        name: "posts_on_redis",
        about: "Posts are kept by four senders, and handled by one leader.",
        run: || messages::posts(Redis, None),
    },
    Bench {
        name: "posts_on_sqlite",
        about: "Posts are kept by four senders, and handled by one leader.",
        run: || messages::posts(Sqlite, None),
    },
    Bench {
        name: "tenure_run_starts_a_command",
        about: "`tenure run` on SQLite, from its start to the command's first instruction.",
        run: start::starts_a_command,
    },
    Bench {
        name: "first_leader_of_a_new_election_on_redis",
        about: "`tenure campaign` under a new name on a server that already serves tenure.",
        run: || start::first_leader(Redis, 50.0),
    },
    Bench {
        name: "first_leader_on_a_fresh_redis",
        about: "`tenure run`, ttl 30 s, on ten servers that are up for a minute and never saw it.",
        run: fresh::first_leader_after_a_minute,
    },
    Bench {
        name: "redis_restarts_without_data",
        about: "Three `tenure campaign`, ttl 3 s, 10 rounds: the server is killed and starts anew.",
        run: fresh::leader_after_a_restart,
    },
    Bench {
        name: "leader_route_beside_a_bare_route",
        about: "`tenure serve` leads and is asked for /leader as fast as one core can.",
        run: sidecar::requests,
    },
    Bench {
        name: "thousand_listeners_of_the_sidecar",
        about: "`tenure serve` with 1,000 streams of events.",
        run: sidecar::listeners,
    },
    Bench {
        name: "run_1000_cron_jobs_on_sqlite",
        about: "One process with 1,000 jobs, each due every minute, spread over its seconds.",
        run: || cron::run_1000_jobs(Sqlite, false),
    },
    Bench {
        name: "run_1000_cron_jobs_at_once_on_sqlite",
        about: "One process with 1,000 jobs, all due in the first second of every minute.",
        run: || cron::run_1000_jobs(Sqlite, true),
    },
    Bench {
        name: "run_1000_cron_jobs_on_postgres",
        about: "One process with 1,000 jobs, each due every minute, spread over its seconds.",
        run: || cron::run_1000_jobs(Postgres, false),
    },
    Bench {
        name: "run_1000_cron_jobs_at_once_on_postgres",
        about: "One process with 1,000 jobs, all due in the first second of every minute.",
        run: || cron::run_1000_jobs(Postgres, true),
    },
];

/// Runs benches and writes their numbers into bench/RESULTS.md.
#[derive(Debug, Parser)]
#[command(name = "tenure-bench")]
struct Args {
    /// The benches to run; all if none is named
    names: Vec<String>,

    /// What it runs on, for the results
    #[arg(long, default_value = "unknown")]
    machine: String,

    /// What is measured, for the results
    #[arg(long, default_value = "unknown")]
    commit: String,
}

fn main() -> Result<()> {
    if start::says_now()? || sidecar::is_bare()? || candidate::takes_part()? {
        return Ok(());
    }
    let args = Args::parse();
    let chosen = chosen(&args.names)?;
    interrupt::listen()?;
    for bench in chosen {
        report::say(&format!("{}: {}", bench.name, bench.about));
        let origin = Origin::now(&args.machine, &args.commit);
        let section = (bench.run)().with_context(|| format!("{} failed", bench.name))?;
        report::say(&section.table());
        let order: Vec<&str> = BENCHES.iter().map(|bench| bench.name).collect();
        report::write(&results_file(), &order, bench.name, &section.text(bench.about, &origin))?;
    }
    Ok(())
}

fn chosen(names: &[String]) -> Result<Vec<&'static Bench>> {
    let known = |name: &String| BENCHES.iter().any(|bench| bench.name == *name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let list: Vec<&str> = BENCHES.iter().map(|bench| bench.name).collect();
        bail!("there is no bench {unknown:?}; there are\n  {}", list.join("\n  "));
    }
    let wanted = |bench: &&Bench| names.is_empty() || names.iter().any(|name| name == bench.name);
    Ok(BENCHES.iter().filter(wanted).collect())
}

fn results_file() -> PathBuf {
    let here = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.join("RESULTS.md")
}
