//! The chores of this workspace. `cargo xtask` lists them.
//!
//! Everything here must run on a machine that has Rust and a C toolchain and nothing else.
//! What is missing is installed when that is allowed, and otherwise listed as skipped.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a task runner talks to the person who started it"
)]

mod bench;
mod binaries;
mod cargo;
mod changed;
mod drill;
mod features;
mod licences;
mod miri;
mod mutants;
mod node;
mod npm;
mod packages;
mod postgres_versions;
mod process;
mod pypi;
mod python;
mod report;
mod servers;
mod spdx;
mod steps;
mod system;
mod test;
mod tidy;
mod toy;
mod valkey;
mod wheel;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::process::Interrupted;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test                         run all checks and tests, as CI does
    --only STEP[,STEP]         these steps alone
    --changed                  tests only of crates that differ from main or depend on such ones
    --long                     also the soaks
  bench [NAME...]              run the benches and write bench/RESULTS.md
  drill [--for DURATION]       measure failover on every store and write docs/failover.md
  sim [--seeds N | --seed S]   run the simulator of the machine for long, or replay one seed
  sim library [--seeds N | --seed S]
                               the same with the whole library
    --fault FAULT              with this fault on purpose
    --twice                    each seed twice, to see whether it decides everything
    --from N                   begin with this seed
  vectors                      write the vectors that the engines of the drop-ins replay
  mutants [GROUP...]           see whether tests notice small changes; goes on where it stopped
    --shard K/N                one part of them, counted from 0
    --file PART                only files whose path contains this
  miri                         run the core's tests under Miri
  wheel                        build the package for Python as a wheel, check it and try it
  npm                          pack the package for Node with that of this platform, and try them
  up SERVER                    start a server to play with, until Ctrl-C: postgres, redis,
                               redis-sentinel or redis-cluster
  tidy                         check the numbers and habits that no other tool checks
  lines                        count the code of each crate, tests apart
  features                     lint each published crate with every set of its features
  fmt                          format all code
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match process::catch_signals().and_then(|()| run(&args)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            match error.downcast_ref::<Interrupted>() {
                Some(interrupted) => ExitCode::from(interrupted.exit_code()),
                None => ExitCode::FAILURE,
            }
        }
    }
}

/// What the list says of one command: its lines, and those below them that are further in.
fn help(command: &str) -> Option<String> {
    let mut is_its_own = false;
    let lines = USAGE.lines().filter(|line| {
        if let Some(entry) = line.strip_prefix("  ").filter(|entry| !entry.starts_with(' ')) {
            is_its_own = entry.split(' ').next() == Some(command);
        }
        is_its_own
    });
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    (!text.is_empty()).then(|| format!("usage: cargo xtask COMMAND\n\n{text}"))
}

/// Runs one command. `false` says that it ran to its end and found something wrong.
fn run(args: &[String]) -> Result<bool> {
    let Some((command, rest)) = args.split_first() else {
        print!("{USAGE}\nsteps of `cargo xtask test`:\n\n{}", steps::list());
        return Ok(true);
    };
    if let (true, Some(text)) =
        (rest.iter().any(|arg| arg == "--help" || arg == "-h"), help(command))
    {
        print!("{text}");
        match command.as_str() {
            "test" => print!("\nsteps:\n\n{}", steps::list()),
            "bench" => print!("\nbenches:\n\n  {}\n", bench::names()?.join("\n  ")),
            _ => {}
        }
        return Ok(true);
    }
    match (command.as_str(), rest) {
        ("test", rest) => test::run(&test::Options::parse(rest)?),
        ("bench", names) => bench::run(names),
        ("drill", args) => drill::run(args),
        ("sim", args) => sim(args),
        ("vectors", []) => vectors(),
        ("mutants", args) => mutants::run(args),
        ("miri", []) => miri::run(),
        ("up", [name]) => servers::up(name),
        ("up", _) => bail!(
            "`up` needs the name of a server: postgres, redis, redis-sentinel or redis-cluster"
        ),
        ("tidy", []) => tidy::run(),
        ("lines", []) => tidy::lines(),
        ("wheel", []) => wheel::run(),
        ("npm", []) => node::pack(),
        ("features", []) => features::run(),
        ("fmt", []) => cargo::passthrough(&["fmt", "--all"]),
        ("help" | "--help" | "-h", []) => run(&[]),
        ("tidy" | "lines" | "features" | "fmt" | "miri" | "vectors" | "wheel" | "npm", _) => {
            bail!("`{command}` takes no arguments")
        }
        _ => bail!("there is no command `{command}`; `cargo xtask` lists them"),
    }
}

fn sim(args: &[String]) -> Result<bool> {
    let mut all = vec!["run", "--release", "--locked", "--quiet", "--package", "tenure-sim", "--"];
    all.extend(args.iter().map(String::as_str));
    cargo::passthrough(&all)
}

/// The test that compares the file writes it if it is told to.
fn vectors() -> Result<bool> {
    let mut command = cargo::command();
    command.args(["test", "--locked", "--package", "tenure-sim", "--test", "all", "vectors::"]);
    Ok(command.env("TENURE_BLESS", "1").status()?.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(args: &[&str]) -> String {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        run(&args).expect_err("the arguments are wrong").to_string()
    }

    #[test]
    fn wrong_arguments_are_refused_before_anything_runs() {
        assert_eq!(error_of(&["tset"]), "there is no command `tset`; `cargo xtask` lists them");
        assert_eq!(error_of(&["fmt", "--check"]), "`fmt` takes no arguments");
        assert_eq!(error_of(&["miri", "--fast"]), "`miri` takes no arguments");
        assert!(error_of(&["mutants", "x"]).starts_with("there are no mutants `x`"));
        assert!(error_of(&["test", "--only", "nothing"]).contains("no step `nothing`"));
        assert!(error_of(&["test", "--only"]).contains("--only needs the name of a step"));
        assert!(error_of(&["test", "--short"]).contains("unknown argument `--short`"));
        assert!(error_of(&["up", "mysql"]).starts_with("there is no server `mysql`"));
        assert!(error_of(&["bench", "of_nothing"]).starts_with("there is no bench `of_nothing`"));
    }

    #[test]
    fn every_command_answers_help_at_once() {
        let entries = USAGE.lines().filter_map(|line| line.strip_prefix("  "));
        let names = entries.filter(|entry| !entry.starts_with(' '));
        let names: Vec<&str> = names.filter_map(|entry| entry.split(' ').next()).collect();
        assert!(names.contains(&"bench") && names.contains(&"up"), "{names:?}");
        for name in names {
            assert!(help(name).is_some_and(|text| text.contains(&format!("\n  {name}"))), "{name}");
            for flag in ["--help", "-h"] {
                // Nothing was built or started, or this would take long and need much.
                assert!(run(&[name.to_owned(), flag.to_owned()]).is_ok_and(|well| well), "{name}");
            }
        }
        assert!(help("mutants").is_some_and(|text| text.contains("--shard")));
        assert!(!help("mutants").is_some_and(|text| text.contains("miri")));
        assert_eq!(help("tset"), None);
        assert_eq!(help("--seeds"), None);
    }
}
