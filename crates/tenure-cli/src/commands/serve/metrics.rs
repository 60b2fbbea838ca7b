//! The recorder that `/metrics` renders.

use anyhow::Context as _;
use metrics::{Counter, Unit, counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tenure::Name;

use crate::exit::Failure;
use crate::wall;

/// From a quick local store to one that hardly answers.
const RENEWAL_S: [f64; 11] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];
/// From a clean hand-over to a lease that had to run out.
const GAP_S: [f64; 11] = [0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 90.0, 600.0];

/// As every exporter names it. It tells a process from the one before, which no counter does.
const STARTED: &str = "process_start_time_seconds";

/// What `tenure run` counts of its command.
const COMMAND_FAILURES: &str = "leader_command_failures_total";

/// Installs the recorder of this process.
pub(crate) fn install() -> Result<PrometheusHandle, Failure> {
    let renewal = Matcher::Full("leader_renewal_duration_seconds".to_owned());
    let gap = Matcher::Full("leader_gap_seconds".to_owned());
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(renewal, &RENEWAL_S)
        .and_then(|builder| builder.set_buckets_for_metric(gap, &GAP_S))
        .context("the buckets are in order")?
        .install_recorder()
        .context("there is a recorder of metrics already")?;
    tenure::describe_metrics();
    describe_gauge!(STARTED, Unit::Seconds, "When this process began, in Unix time.");
    gauge!(STARTED).set(wall::now().as_millisecond() as f64 / 1e3);
    describe_counter!(
        COMMAND_FAILURES,
        "How often the command failed by itself, which was not told to end, while this instance \
         led."
    );
    Ok(handle)
}

/// Counts failures of the command under an election, from zero on: Prometheus sees no rise in a
/// counter that begins with 1.
pub(crate) fn command_failures(election: &Name) -> Counter {
    let failures = counter!(COMMAND_FAILURES, "key_class" => class(election).to_owned());
    failures.increment(0);
    failures
}

/// As the library labels what it counts of an election: the leading colon segment of its name.
fn class(election: &Name) -> &str {
    election.as_str().split(':').next().filter(|class| !class.is_empty()).unwrap_or("other")
}
