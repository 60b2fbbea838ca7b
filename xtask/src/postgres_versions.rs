//! The step `postgres-versions`: the contract once more, on the other versions of PostgreSQL.
//!
//! The distribution's own version has all tests, in the step `postgres`. A usual run has the newest
//! one here; the rest is for `--long`.

use anyhow::{Result, bail};

use crate::binaries::{self, Binary};
use crate::npm;
use crate::report::Counts;
use crate::servers::postgres::Postgres;
use crate::test::{Job, StepRun, Verdict};

const PACKAGE: &str = "tenure-postgres";

/// Those that the tests were written for, the usual one first.
const VERSIONS: [&str; 4] =
    ["18.4.0-beta.17", "14.23.0-beta.17", "16.14.0-beta.17", "17.10.0-beta.17"];

/// What depends most on the server. None of these starts a server or a pooler of its own.
const CHOSEN: [&str; 4] = ["conformance::", "shape::", "repairs::", "rpc::"];

/// Most of them wait.
const THREADS: &str = "4";

/// Runs them.
pub(crate) fn step(step: &mut StepRun<'_>) -> Result<Verdict> {
    let Some(binaries) = binaries::build(step)? else { return Ok(Verdict::Failed) };
    let mut tests: Vec<(&Binary, Vec<String>)> = Vec::new();
    for binary in binaries.iter().filter(|binary| binary.package == PACKAGE) {
        let chosen = binary.ignored()?.into_iter().filter(|name| is_chosen(name)).collect();
        tests.push((binary, chosen));
    }
    let listed: usize = tests.iter().map(|(_, names)| names.len()).sum();
    let versions = if step.session.long { &VERSIONS[..] } else { &VERSIONS[..1] };
    let (mut ran, mut passed, before) = (0, true, step.log_text()?.len());
    for version in versions {
        let native = match npm::postgres(version, step)? {
            Ok(native) => native,
            Err(remedy) => {
                step.skip(format!("tests on PostgreSQL {version} ({listed})"), remedy);
                continue;
            }
        };
        let server = Postgres::start_from(&native)?;
        let jobs = tests.iter().filter(|(_, names)| !names.is_empty());
        let mut jobs: Vec<Job> = jobs.map(|(binary, names)| job(binary, names)).collect();
        for Job { command, .. } in &mut jobs {
            command.env("TENURE_TEST_POSTGRES", server.url());
        }
        passed &= step.run_all(jobs, 1)?;
        ran += listed;
    }
    step.counts = Counts::of_ignored(&step.log_text()?[before..]);
    if passed && step.counts.passed < ran as i64 {
        bail!("{ran} tests were listed and only {} ran", step.counts.passed);
    }
    let more = VERSIONS.len() - versions.len();
    let note = if more > 0 { format!("{more} more versions with --long") } else { String::new() };
    Ok(match (ran, passed) {
        (0, _) => Verdict::Skipped,
        (_, true) => Verdict::Passed(note),
        (_, false) => Verdict::Failed,
    })
}

fn job(binary: &Binary, names: &[String]) -> Job {
    let args = ["--ignored", "--exact", "--test-threads", THREADS];
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    binary.job(&[&args[..], &names].concat())
}

fn is_chosen(name: &str) -> bool {
    name.contains("needs_postgres_") && CHOSEN.iter().any(|word| name.contains(word))
}
