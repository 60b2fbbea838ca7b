//! Whether the drain fits into the time that a container gets between TERM and KILL.

use std::time::Duration;

use tenure_core::{CheckupReport as Report, Finding, Level, show_duration};

/// What `docker stop` waits for, unless told otherwise.
const CONTAINER: Duration = Duration::from_secs(10);
/// What Kubernetes waits for, unless told otherwise, for everything in a pod together.
const POD: Duration = Duration::from_secs(30);
/// What the end takes beside the drain: giving the lease back, and ending.
const BESIDE: Duration = Duration::from_secs(2);

pub(super) fn judge(drain: Duration, report: &mut Report) {
    report.fact(
        "drain",
        format!(
            "{}: how long a 200 of /leader may be relied on, and a lease kept for those who do",
            show_duration(drain)
        ),
    );
    let needed = drain + BESIDE;
    if needed <= CONTAINER {
        return;
    }
    let (who, grace) = match needed > POD {
        true => ("docker stop and Kubernetes kill", "10s and 30s"),
        false => ("docker stop kills", "10s"),
    };
    report.find(
        Finding::new(
            Level::Advice,
            format!("a leader may need {} to end, and {who} after {grace}", show_duration(needed)),
        )
        .because(
            "a `serve` or `campaign` that is killed before its drain is over can't give its lease \
             back; the next leader waits for the ttl instead",
        )
        .so(format!(
            "allow {} (docker stop -t, stop_grace_period, terminationGracePeriodSeconds, \
             TimeoutStopSec) and more if the app ends first, or use a shorter --drain",
            show_duration(needed)
        )),
    );
}
