//! What is counted, in the text of Prometheus.

use std::sync::LazyLock;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use napi_derive::napi;

/// The buckets of the command: from a quick local store to one that hardly answers.
const RENEWAL_S: [f64; 11] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];
/// From a clean hand-over to a lease that had to run out.
const GAP_S: [f64; 11] = [0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 90.0, 600.0];

static RECORDER: LazyLock<Option<PrometheusHandle>> = LazyLock::new(|| {
    let renewal = Matcher::Full("leader_renewal_duration_seconds".to_owned());
    let gap = Matcher::Full("leader_gap_seconds".to_owned());
    let builder = PrometheusBuilder::new().set_buckets_for_metric(renewal, &RENEWAL_S).ok()?;
    let handle = builder.set_buckets_for_metric(gap, &GAP_S).ok()?.install_recorder().ok()?;
    tenure::describe_metrics();
    Some(handle)
});

/// Counts from now on.
pub(crate) fn install() {
    LazyLock::force(&RECORDER);
}

/// All that was counted in this process.
#[napi]
pub fn metrics_text() -> String {
    let Some(handle) = &*RECORDER else { return String::new() };
    tenure::refresh_metrics();
    handle.run_upkeep();
    handle.render()
}
