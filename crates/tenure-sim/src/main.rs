//! `tenure-sim`: runs seeds, shows progress, and explains the first failure.
//!
//! `cargo run -p tenure-sim -- --seeds 10000 [--from 0]`, or `--seed 7` for one run with its
//! transcript on stdout.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to people")]

use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use tenure_sim::plan::Options;
use tenure_sim::soak::{explain, soak, transcripts};

struct Args {
    seeds: u64,
    from: u64,
    seed: Option<u64>,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(Args { seed: Some(seed), .. }) => one(seed),
        Ok(args) => many(&args),
        Err(words) => {
            eprintln!("{words}");
            eprintln!("usage: tenure-sim [--seeds N] [--from SEED] | --seed SEED");
            ExitCode::from(2)
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut parsed = Args { seeds: 10_000, from: 0, seed: None };
    while let Some(flag) = args.next() {
        let value = args.next().ok_or_else(|| format!("{flag} wants a number"))?;
        let number = value.parse().map_err(|_| format!("{flag} wants a number, not {value:?}"))?;
        match flag.as_str() {
            "--seeds" => parsed.seeds = number,
            "--from" => parsed.from = number,
            "--seed" => parsed.seed = Some(number),
            _ => return Err(format!("there is no flag {flag}")),
        }
    }
    Ok(parsed)
}

fn one(seed: u64) -> ExitCode {
    let options = Options { record: true, ..Options::new(seed) };
    let run = tenure_sim::run(&options);
    print!("{}", run.transcript);
    eprintln!("{:?}", run.seen);
    if run.violation.is_none() {
        return ExitCode::SUCCESS;
    }
    eprint!("{}", explain(&options, &transcripts()));
    ExitCode::FAILURE
}

fn many(args: &Args) -> ExitCode {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let bar = bar(args.seeds);
    // Where no bar can be drawn, a line now and then.
    let step = (args.seeds / 10).max(1);
    let result = soak(&Options::new(args.from), args.seeds, threads, |done| {
        bar.inc(1);
        if bar.is_hidden() && done % step == 0 {
            eprintln!("{done} of {} seeds", args.seeds);
        }
    });
    bar.finish();
    match result {
        Ok(seen) => {
            println!("{} seeds kept every promise: {seen:?}", args.seeds);
            ExitCode::SUCCESS
        }
        Err(options) => {
            eprint!("{}", explain(&options, &transcripts()));
            ExitCode::FAILURE
        }
    }
}

/// Drawn on a terminal only.
fn bar(seeds: u64) -> ProgressBar {
    let look = "{bar:40} {human_pos} of {human_len} seeds, {per_sec}, {eta} left";
    let bar = ProgressBar::new(seeds);
    match ProgressStyle::with_template(look) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
