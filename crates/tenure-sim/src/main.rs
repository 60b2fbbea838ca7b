//! `tenure-sim`: runs seeds, shows progress, and explains the first failure.
//!
//! `cargo run -p tenure-sim -- --seeds 10000 [--from 0]`, or `--seed 7` for one run with its
//! transcript on stdout. With `library` in front, the whole library runs, not the machine alone;
//! there `--fault FAULT` has it be wrong on purpose, and `--twice` looks for seeds that are not
//! the same twice.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to people")]

use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use tenure_sim::library;
use tenure_sim::plan::Options;
use tenure_sim::soak::{explain, soak, transcripts};
use tenure_sim::store::StoreFault;

struct Args {
    /// The whole library, or else the machine alone.
    library: bool,
    seeds: u64,
    from: u64,
    seed: Option<u64>,
    /// A fault of the library on purpose.
    fault: Option<tenure::Fault>,
    /// A fault of its store.
    store_fault: Option<StoreFault>,
    /// Whether to look for seeds of the library that are not the same twice.
    twice: bool,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(args) if args.library => library(&args),
        Ok(Args { seed: Some(seed), .. }) => one(seed),
        Ok(args) => many(&args),
        Err(words) => {
            eprintln!("{words}");
            eprintln!("usage: tenure-sim [--seeds N] [--from SEED] | --seed SEED");
            eprintln!("       tenure-sim library [the same] [--fault FAULT] [--twice]");
            ExitCode::from(2)
        }
    }
}

fn parse(args: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut args = args.peekable();
    let library = args.next_if(|word| word == "library").is_some();
    let mut parsed = Args {
        library,
        seeds: 10_000,
        from: 0,
        seed: None,
        fault: None,
        store_fault: None,
        twice: false,
    };
    while let Some(flag) = args.next() {
        if flag == "--fault" {
            let wanted = args.next().unwrap_or_default();
            parsed.fault = tenure::Fault::ALL.into_iter().find(|one| format!("{one:?}") == wanted);
            let of_store = [StoreFault::NeverSettles, StoreFault::CountsAnew];
            parsed.store_fault = of_store.into_iter().find(|one| format!("{one:?}") == wanted);
            if parsed.fault.is_none() && parsed.store_fault.is_none() {
                return Err(format!("there is no fault {wanted:?}"));
            }
            continue;
        }
        if flag == "--twice" {
            parsed.twice = true;
            continue;
        }
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

/// Seeds of the whole library.
fn library(args: &Args) -> ExitCode {
    let (fault, store_fault) = (args.fault, args.store_fault);
    let first = library::Options { fault, store_fault, ..library::Options::new(args.from) };
    if let Some(seed) = args.seed {
        let run = library::run(&library::Options { seed, record: true, ..first });
        print!("{}", run.transcript);
        eprintln!("{:?}", run.seen);
        return match run.violation {
            None => ExitCode::SUCCESS,
            Some(violation) => {
                eprintln!("{violation}");
                ExitCode::FAILURE
            }
        };
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    if args.twice {
        return match library::soak::differs(&first, args.seeds, threads) {
            None => {
                println!("{} library seeds are the same twice", args.seeds);
                ExitCode::SUCCESS
            }
            Some(seed) => {
                eprintln!("library seed {seed} differs from itself");
                ExitCode::FAILURE
            }
        };
    }
    let (bar, step) = (bar(args.seeds), (args.seeds / 10).max(1));
    let result = library::soak::soak(&first, args.seeds, threads, |done| {
        bar.inc(1);
        if bar.is_hidden() && done % step == 0 {
            eprintln!("{done} of {} seeds", args.seeds);
        }
    });
    bar.finish();
    match result {
        Ok(seen) => {
            println!("{} library seeds kept every promise: {seen:?}", args.seeds);
            ExitCode::SUCCESS
        }
        Err(options) => {
            eprint!("{}", library::soak::explain(&options, &transcripts()));
            ExitCode::FAILURE
        }
    }
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
