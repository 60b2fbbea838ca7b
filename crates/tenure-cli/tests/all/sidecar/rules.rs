//! The files under `deploy/`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

pub(super) fn deploy(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file)
}

#[test]
fn the_rules_and_the_dashboard_use_metrics_that_exist() {
    let source = [
        include_str!("../../../../tenure/src/metrics.rs"),
        include_str!("../../../src/commands/serve/metrics.rs"),
    ]
    .join("\n");
    let known: BTreeSet<&str> = source
        .split('"')
        .filter(|text| text.starts_with("leader_") && !text.contains(' '))
        .collect();
    assert_eq!(known.len(), 15, "{known:?}");
    let rules = std::fs::read_to_string(deploy("prometheus/rules.yml")).unwrap();
    let dashboard = std::fs::read_to_string(deploy("grafana/tenure.json")).unwrap();
    let parsed: Value = serde_json::from_str(&dashboard).unwrap();
    assert!(parsed["panels"].as_array().unwrap().len() >= 8);
    for text in [rules, dashboard] {
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let used: BTreeSet<&str> = words.filter(|word| word.starts_with("leader_")).collect();
        assert!(used.len() >= 5, "{used:?}");
        for name in used {
            assert!(known.contains(name.trim_end_matches("_bucket")), "{name}");
        }
    }
}

#[needs(promtool)]
#[test]
fn needs_promtool_the_rules_are_right_and_fire_when_they_should() {
    for args in
        [["check", "rules", "prometheus/rules.yml"], ["test", "rules", "prometheus/rules.test.yml"]]
    {
        let output =
            Command::new("promtool").args(&args[..2]).arg(deploy(args[2])).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}
