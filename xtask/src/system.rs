//! The steps `system`, `postgres`, `redis` and `sidecar`: ignored tests that need more than Rust,
//! by the prefix of their names.
//!
//! A plain `cargo test` must pass anywhere, so a test that needs root, a package, a server or a
//! long time says so with `#[needs(...)]`. That ignores it, and its name must start with one of the
//! prefixes in [`NEEDS`]. An ignored test without such a prefix would never run, so these steps
//! fail on it.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::binaries::{self, Binary};
use crate::npm;
use crate::packages::{self, BROWSER, FAKETIME, IP, NFT, PROMTOOL, Tool, WRK};
use crate::pypi::{Program, SCHEMATHESIS};
use crate::report::Counts;
use crate::servers::pgbouncer::PGBOUNCER;
use crate::servers::postgres::{POSTGRES, Postgres};
use crate::servers::redis::{self, REDIS};
use crate::test::{Job, StepRun, Verdict};

/// What the tests with a certain prefix need.
struct Need {
    prefix: &'static str,
    root: bool,
    /// Hosts made of network namespaces, which many containers do not permit.
    netns: bool,
    tools: &'static [Tool],
    /// Run with `--long` only.
    long: bool,
    /// The step that runs them.
    step: Part,
    /// A program from PyPI.
    pypi: Option<&'static Program>,
    /// A PostgREST, from npm.
    postgrest: bool,
}

/// The steps here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    System,
    Postgres,
    Redis,
    Sidecar,
}

const NEEDS: &[Need] = &[
    need("needs_root_", &[], Part::System).for_root(),
    need("needs_faketime_", &[FAKETIME], Part::System),
    need("needs_postgres_", &[POSTGRES, PGBOUNCER, FAKETIME], Part::Postgres),
    need("needs_postgrest_", &[POSTGRES], Part::Postgres).with_postgrest(),
    need("needs_stores_", &[POSTGRES, REDIS], Part::Postgres),
    need("needs_redis_", &[REDIS], Part::Redis),
    need("needs_netns_", &[REDIS, IP, NFT], Part::Redis).for_root().in_netns(),
    need("needs_browser_", &[BROWSER], Part::Sidecar),
    need("needs_promtool_", &[PROMTOOL], Part::Sidecar),
    need("needs_wrk_", &[WRK], Part::Sidecar),
    need("needs_schemathesis_", &[], Part::Sidecar).with_pypi(&SCHEMATHESIS),
    need("long_schemathesis_", &[], Part::Sidecar).with_pypi(&SCHEMATHESIS).at_length(),
    need("long_postgres_", &[POSTGRES, PGBOUNCER], Part::Postgres).at_length(),
    need("long_redis_", &[REDIS], Part::Redis).at_length(),
    need("long_", &[], Part::System).at_length(),
];

const fn need(prefix: &'static str, tools: &'static [Tool], step: Part) -> Need {
    let (root, netns, long, pypi, postgrest) = (false, false, false, None, false);
    Need { prefix, root, netns, tools, long, step, pypi, postgrest }
}

impl Need {
    const fn for_root(self) -> Need {
        Need { root: true, ..self }
    }

    const fn in_netns(self) -> Need {
        Need { netns: true, ..self }
    }

    const fn with_pypi(self, program: &'static Program) -> Need {
        Need { pypi: Some(program), ..self }
    }

    const fn with_postgrest(self) -> Need {
        Need { postgrest: true, ..self }
    }

    const fn at_length(self) -> Need {
        Need { long: true, ..self }
    }
}

/// Tests that need root, a package or a long time.
pub(crate) fn step(step: &mut StepRun<'_>) -> Result<Verdict> {
    run(step, Part::System)
}

/// Tests that need a PostgreSQL server.
pub(crate) fn postgres_step(step: &mut StepRun<'_>) -> Result<Verdict> {
    run(step, Part::Postgres)
}

/// Tests that start Redis servers.
pub(crate) fn redis_step(step: &mut StepRun<'_>) -> Result<Verdict> {
    run(step, Part::Redis)
}

/// Tests of the sidecar that need a browser, promtool or schemathesis.
pub(crate) fn sidecar_step(step: &mut StepRun<'_>) -> Result<Verdict> {
    run(step, Part::Sidecar)
}

/// Finds the ignored tests, provides what they need, and runs those that can run.
fn run(step: &mut StepRun<'_>, part: Part) -> Result<Verdict> {
    let Some(binaries) = binaries::build(step)? else { return Ok(Verdict::Failed) };
    let mut tests: Vec<Ignored<'_>> = Vec::new();
    for binary in binaries {
        tests.extend(binary.ignored()?.into_iter().map(|name| Ignored { binary, name }));
    }
    let mut chosen: Vec<Ignored<'_>> = Vec::new();
    let (mut waiting, mut skipped) = (0, false);
    for (need, tests) in group(tests)?.into_iter().filter(|(need, _)| need.step == part) {
        if need.long && !step.session.long {
            waiting += tests.len();
        } else if provide(step, need, tests.len())? {
            chosen.extend(tests);
        } else {
            skipped = true;
        }
    }
    let note = if waiting > 0 { format!("{waiting} more with --long") } else { String::new() };
    if chosen.is_empty() {
        let nothing_ran = skipped && waiting == 0;
        return Ok(if nothing_ran { Verdict::Skipped } else { Verdict::Passed(note) });
    }
    // Ended when this step is over, whatever comes of it.
    let server;
    let variables = match part {
        Part::System => vec![],
        Part::Postgres => {
            server = Postgres::start()?;
            let mut variables = server.variables()?;
            let program = npm::postgrest_path()?.display().to_string();
            variables.push(("TENURE_TEST_POSTGREST", program));
            variables
        }
        Part::Redis => redis::variables()?,
        Part::Sidecar => {
            vec![("TENURE_TEST_SCHEMATHESIS", SCHEMATHESIS.path()?.display().to_string())]
        }
    };
    let mut jobs = jobs(binaries, &chosen);
    for Job { command, .. } in &mut jobs {
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        // A browser for each test at once is more than two cores carry in time.
        if part == Part::Sidecar {
            command.args(["--test-threads", "2"]);
        }
    }
    let before = step.log_text()?.len();
    let success = step.run_all(jobs, 1)?;
    step.counts = Counts::of_ignored(&step.log_text()?[before..]);
    let (listed, ran) = (chosen.len(), step.counts.passed);
    if success && ran < listed as i64 {
        bail!("{listed} tests were listed and only {ran} ran");
    }
    Ok(if success { Verdict::Passed(note) } else { Verdict::Failed })
}

/// A run of each binary that has chosen tests.
fn jobs(binaries: &[Binary], chosen: &[Ignored<'_>]) -> Vec<Job> {
    let mut jobs = Vec::new();
    for binary in binaries {
        let own = chosen.iter().filter(|test| test.binary == binary);
        let names: Vec<&str> = own.map(|test| test.name.as_str()).collect();
        if !names.is_empty() {
            jobs.push(binary.job(&[&["--ignored", "--exact"], &names[..]].concat()));
        }
    }
    jobs
}

/// Makes sure that `need` is met. If it cannot be, notes how many tests are skipped and why.
fn provide(step: &mut StepRun<'_>, need: &Need, tests: usize) -> Result<bool> {
    let what = format!("tests named {}* ({tests})", need.prefix);
    if need.root && !packages::is_root() {
        step.skip(what, "run `cargo xtask test` as root");
        return Ok(false);
    }
    for tool in need.tools {
        if let Some(remedy) = packages::provide(tool, step)? {
            step.skip(what, remedy);
            return Ok(false);
        }
    }
    if need.netns && !permits_netns() {
        step.skip(what, "run it where `ip netns add` is permitted, as a privileged container");
        return Ok(false);
    }
    if let Some(program) = need.pypi
        && let Some(remedy) = program.provide(step)?
    {
        step.skip(what, remedy);
        return Ok(false);
    }
    if need.postgrest
        && let Err(remedy) = npm::postgrest(step)?
    {
        step.skip(what, remedy);
        return Ok(false);
    }
    Ok(true)
}

/// Whether a network namespace can be made here; tried, because nothing else tells.
fn permits_netns() -> bool {
    let name = format!("tenure-xtask-{}", std::process::id());
    let ip = |verb: &str| {
        let status = Command::new("ip").args(["netns", verb, &name]).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    ip("add") && ip("delete")
}

/// An ignored test.
struct Ignored<'a> {
    binary: &'a Binary,
    name: String,
}

/// Sorts tests by what they need.
fn group(tests: Vec<Ignored<'_>>) -> Result<Vec<(&'static Need, Vec<Ignored<'_>>)>> {
    let mut groups: Vec<(&Need, Vec<_>)> = NEEDS.iter().map(|need| (need, vec![])).collect();
    for test in tests {
        let name = &test.name;
        let own_name = name.rsplit("::").next().unwrap_or(name);
        let Some((_, members)) =
            groups.iter_mut().find(|(need, _)| own_name.starts_with(need.prefix))
        else {
            let known: Vec<&str> = NEEDS.iter().map(|need| need.prefix).collect();
            bail!(
                "the ignored test {name} would never run: start its name with one of {}",
                known.join(", ")
            );
        };
        members.push(test);
    }
    groups.retain(|(_, members)| !members.is_empty());
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ignored tests of these names.
    fn tests<'a>(binary: &'a Binary, names: &[&str]) -> Vec<Ignored<'a>> {
        names.iter().map(|name| Ignored { binary, name: (*name).to_owned() }).collect()
    }

    #[test]
    fn tests_are_sorted_by_the_prefix_of_their_own_name() {
        let names = [
            "clock::tests::needs_root_a_time_namespace_is_refused",
            "e2e::needs_faketime_a_step_changes_nothing",
            "conformance::needs_postgres_the_store_keeps_its_contract",
            "conformance::needs_redis_the_store_keeps_its_contract",
            "needs_postgrest_a_client_leads",
            "needs_stores_an_election_moves",
            "needs_browser_a_change_is_seen",
            "needs_promtool_the_rules_are_right",
            "needs_wrk_one_answers",
            "needs_schemathesis_no_answer_is_odd",
            "long_schemathesis_no_answer_is_odd",
            "needs_netns_hosts_are_partitioned",
            "long_postgres_rounds",
            "faults::long_redis_rounds",
            "long_soak",
        ];
        let binary = Binary::named("all");
        let groups = group(tests(&binary, &names)).unwrap();
        let prefixes: Vec<&str> = groups.iter().map(|(need, _)| need.prefix).collect();
        let known: Vec<&str> = NEEDS.iter().map(|need| need.prefix).collect();
        assert_eq!(prefixes, known);
        let of = |prefix| &groups.iter().find(|(need, _)| need.prefix == prefix).unwrap().1[0].name;
        assert_eq!(of("long_postgres_"), "long_postgres_rounds");
        assert_eq!(of("long_redis_"), "faults::long_redis_rounds");
        assert_eq!(of("long_"), "long_soak");
    }

    #[test]
    fn an_ignored_test_that_would_never_run_is_an_error() {
        let binary = Binary::named("all");
        let error = group(tests(&binary, &["tests::flaky_on_mondays"])).err().unwrap().to_string();
        assert!(error.contains("tests::flaky_on_mondays would never run"), "{error}");
    }

    #[test]
    fn each_binary_runs_its_own_tests_by_their_whole_names() {
        let binaries = ["one", "two", "three"].map(Binary::named);
        let mut chosen = tests(&binaries[0], &["a::needs_root_x", "needs_root_y"]);
        chosen.extend(tests(&binaries[2], &["a::needs_root_x"]));
        let jobs = jobs(&binaries, &chosen);
        let args: Vec<Vec<_>> = jobs.iter().map(|job| job.command.get_args().collect()).collect();
        assert_eq!(
            args,
            [
                vec!["--ignored", "--exact", "a::needs_root_x", "needs_root_y"],
                vec!["--ignored", "--exact", "a::needs_root_x"],
            ]
        );
    }
}
