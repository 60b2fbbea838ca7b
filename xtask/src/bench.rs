//! `cargo xtask bench`: runs the bench crate and tells it which machine and commit it measures.

use std::fs;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail};

use crate::cargo;
use crate::packages::{self, WRK};
use crate::servers::postgres::{POSTGRES, Postgres};
use crate::servers::redis::{REDIS, Redis};

/// Where the benches are listed.
const LIST: &str = "bench/src/main.rs";

/// The names of all benches. They are read from the list itself: to ask the program, it would have
/// to be built first.
pub(crate) fn names() -> Result<Vec<String>> {
    let list = fs::read_to_string(cargo::root().join(LIST));
    Ok(names_in(&list.with_context(|| format!("cannot read {LIST}"))?))
}

fn names_in(list: &str) -> Vec<String> {
    let lines = list.lines().filter_map(|line| line.trim().strip_prefix("name: \""));
    lines.filter_map(|rest| Some(rest.strip_suffix("\",")?.to_owned())).collect()
}

/// Runs the benches called `names`, or all. The bench crate writes its results itself.
pub(crate) fn run(names: &[String]) -> Result<bool> {
    let known = self::names()?;
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        bail!("there is no bench `{unknown}`; there are\n  {}", known.join("\n  "));
    }
    let machine = machine();
    let commit = commit();
    let mut args = vec!["run", "--release", "--locked", "--package", "tenure-bench", "--"];
    args.extend(["--machine", &machine, "--commit", &commit]);
    args.extend(names.iter().map(String::as_str));
    let wants = |engine: &str| names.is_empty() || names.iter().any(|name| name.contains(engine));
    // They end with this function.
    let (mut variables, mut postgres, mut redis) = (Vec::new(), None, None);
    if wants("route") {
        packages::provide_now(&WRK)?;
    }
    if wants("postgres") {
        packages::provide_now(&POSTGRES)?;
        let server = Postgres::start()?;
        variables.extend(server.variables()?);
        postgres = Some(server);
    }
    if wants("redis") {
        packages::provide_now(&REDIS)?;
        let server = Redis::start()?;
        variables.push(("TENURE_BENCH_REDIS", server.url()));
        redis = Some(server);
    }
    let done = cargo::passthrough_with(&args, &variables);
    drop((postgres, redis));
    done
}

/// Processor, cores, memory and kernel, in one line.
pub(crate) fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let system = rustix::system::uname();
    let mut parts = vec![
        field(&cpuinfo, "model name")
            .unwrap_or_else(|| system.machine().to_string_lossy().into_owned()),
        format!("{cores} core{}", if cores == 1 { "" } else { "s" }),
    ];
    parts.extend(field(&meminfo, "MemTotal").as_deref().and_then(gibibytes));
    let name = system.sysname().to_string_lossy();
    parts.push(format!("{name} {}", system.release().to_string_lossy()));
    parts.join(", ")
}

/// The first value of `name` in text of the form `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

/// `24565432 kB` as `23.4 GiB`.
fn gibibytes(kilobytes: &str) -> Option<String> {
    let number: f64 = kilobytes.strip_suffix(" kB")?.parse().ok()?;
    Some(format!("{:.1} GiB", number / 1024.0 / 1024.0))
}

/// The short hash of the commit, with `-dirty` if the tree differs from it.
///
/// What people read does not count: nothing of it is measured, and the results are written there.
pub(crate) fn commit() -> String {
    let Some(hash) = git(&["rev-parse", "--short", "HEAD"]) else { return "unknown".to_owned() };
    let status = ["status", "--porcelain", "--", ".", ":(exclude)docs", ":(exclude)*.md"];
    match git(&status) {
        Some(changes) if changes.is_empty() => hash,
        _ => format!("{hash}-dirty"),
    }
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).current_dir(cargo::root()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "model\t\t: 85\nmodel name\t: Some CPU @ 2.0GHz\nmodel name\t: Other\n";
        assert_eq!(field(text, "model name").as_deref(), Some("Some CPU @ 2.0GHz"));
        assert_eq!(field(text, "cores"), None);
    }

    #[test]
    fn the_list_of_benches_is_read_whole() {
        let list = fs::read_to_string(cargo::root().join(LIST)).unwrap();
        let names = names_in(&list);
        assert_eq!(names.len(), list.matches("    Bench {").count());
        assert!(names.contains(&"is_leader_while_leading".to_owned()), "{names:?}");
    }

    #[test]
    fn memory_is_shown_in_gibibytes() {
        assert_eq!(gibibytes("24641536 kB").as_deref(), Some("23.5 GiB"));
        assert_eq!(gibibytes("much"), None);
    }

    #[test]
    fn the_machine_is_one_line() {
        assert_eq!(machine().lines().count(), 1);
    }
}
