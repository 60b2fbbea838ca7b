//! Measures what tenure promises in numbers, and writes `bench/RESULTS.md`.
//!
//! Each bench answers the question in its name. Its numbers stand beside the bar that the project
//! set itself; a bar that is missed is marked, and that is all: tests assert, benches measure.

mod fleet;
mod handle;
mod handover;
mod interrupt;
mod many;
mod numbers;
mod raw;
mod report;
mod start;

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Parser;

use report::{Origin, Section};

/// One bench.
struct Bench {
    name: &'static str,
    about: &'static str,
    run: fn() -> Result<Section>,
}

/// In the order in which they run. The one that measures its own memory comes first.
const BENCHES: &[Bench] = &[
    Bench {
        name: "renew_10000_elections_on_sqlite",
        about: "One process leads 10,000 elections with a ttl of 30 s.",
        run: many::renew_10000_elections,
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
        about: "Three processes, ttl 3 s, 50 rounds: the leader gets SIGTERM and resigns.",
        run: handover::clean,
    },
    Bench {
        name: "kill_9_of_the_leader_on_sqlite",
        about: "Three processes, ttl 3 s, 50 rounds: the leader is killed.",
        run: handover::kill_9,
    },
    Bench {
        name: "frozen_leader_on_sqlite",
        about: "Three processes, ttl 3 s, 50 rounds: the leader is stopped, and goes on later.",
        run: handover::frozen,
    },
    Bench {
        name: "tenure_run_starts_a_command",
        about: "`tenure run` on SQLite, from its start to the command's first instruction.",
        run: start::starts_a_command,
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
    if start::says_now()? {
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
