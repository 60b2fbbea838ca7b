//! The step `valkey`: tests of the Redis store once more, on Valkey.
//!
//! All of them take three minutes, so a usual run has those that depend most on the server: the
//! contract, what it may have forgotten, privileges, messages, the Cluster. The rest is for
//! `--long`.

use anyhow::{Result, bail};

use crate::binaries;
use crate::pypi::VALKEY;
use crate::report::Counts;
use crate::servers::redis;
use crate::test::{Job, StepRun, Verdict};

const PACKAGE: &str = "tenure-redis";

/// What the names of these tests begin with.
const PREFIX: &str = "needs_redis_";

/// A usual run has the tests with one of these words in their names.
const USUAL: [&str; 5] = ["conformance::", "settle::", "messages::", "privileges", "cluster::"];

/// The build on PyPI speaks no TLS.
const WITHOUT: &str = "tls";

/// Most of them wait.
const THREADS: &str = "4";

/// Runs them.
pub(crate) fn step(step: &mut StepRun<'_>) -> Result<Verdict> {
    let Some(binaries) = binaries::build(step)? else { return Ok(Verdict::Failed) };
    let long = step.session.long;
    let (mut jobs, mut listed, mut waiting) = (Vec::new(), 0, 0);
    for binary in binaries.iter().filter(|binary| binary.package == PACKAGE) {
        let all: Vec<String> = binary.ignored()?.into_iter().filter(|name| can_run(name)).collect();
        let chosen: Vec<&str> =
            all.iter().map(String::as_str).filter(|name| long || is_usual(name)).collect();
        waiting += all.len() - chosen.len();
        listed += chosen.len();
        if !chosen.is_empty() {
            let args = ["--ignored", "--exact", "--test-threads", THREADS];
            jobs.push(binary.job(&[&args[..], &chosen].concat()));
        }
    }
    if jobs.is_empty() {
        return Ok(Verdict::Passed(String::new()));
    }
    if let Some(remedy) = VALKEY.provide(step)? {
        step.skip(format!("tests on Valkey ({listed})"), remedy);
        return Ok(Verdict::Skipped);
    }
    let variables = redis::variables_for(&VALKEY.path()?)?;
    for Job { command, .. } in &mut jobs {
        command.envs(variables.iter().map(|(name, value)| (name, value)));
    }
    let before = step.log_text()?.len();
    let success = step.run_all(jobs, 1)?;
    step.counts = Counts::of_ignored(&step.log_text()?[before..]);
    if success && step.counts.passed < listed as i64 {
        bail!("{listed} tests were listed and only {} ran", step.counts.passed);
    }
    let note = if waiting > 0 { format!("{waiting} more with --long") } else { String::new() };
    Ok(if success { Verdict::Passed(note) } else { Verdict::Failed })
}

/// Whether the server that we have is enough for a test.
fn can_run(name: &str) -> bool {
    let own_name = name.rsplit("::").next().unwrap_or(name);
    own_name.starts_with(PREFIX) && !name.contains(WITHOUT)
}

fn is_usual(name: &str) -> bool {
    USUAL.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_that_depend_on_the_server_run_each_time() {
        for (name, runs, usual) in [
            ("conformance::needs_redis_the_store_keeps_its_contract", true, true),
            ("conformance::needs_redis_the_store_keeps_its_contract_with_tls", false, true),
            ("input::needs_redis_the_documented_privileges_are_enough", true, true),
            ("outage::needs_redis_a_server_is_away", true, false),
            ("needs_netns_hosts_are_partitioned", false, false),
            ("faults::long_redis_rounds", false, false),
        ] {
            assert_eq!((can_run(name), is_usual(name)), (runs, usual), "{name}");
        }
    }
}
