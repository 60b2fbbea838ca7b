//! How a finding is shown.

use serde_json::{Value, json};
use tenure_core::{Finding, Level};

pub(super) fn lines(finding: &Finding) -> Vec<String> {
    let mark = match finding.level {
        Level::Safety => "SAFETY",
        _ => "advice",
    };
    vec![
        format!("  {mark}: {}", finding.what),
        format!("    why: {}", finding.why),
        format!("    do:  {}", finding.todo),
    ]
}

pub(super) fn json(finding: &Finding) -> Value {
    let level = match finding.level {
        Level::Safety => "safety",
        _ => "advice",
    };
    json!({ "level": level, "what": finding.what, "why": finding.why, "do": finding.todo })
}
