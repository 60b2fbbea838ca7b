//! `cargo xtask features`: every published crate must build without warnings with any set of its
//! features, since users choose the set.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::Result;
use serde_json::Value;

use crate::cargo;
use crate::process::Group;
use crate::test::{StepRun, Verdict};

/// Up to this many features, all subsets are checked. Beyond, none, each alone, and all.
const POWERSET_MAX: usize = 4;

/// One set of features of one crate.
#[derive(Debug, PartialEq, Eq)]
struct Case {
    package: String,
    features: Vec<String>,
}

impl Case {
    /// Clippy and not `check`, because it can turn the warnings of our crates alone into errors
    /// without building every dependency anew.
    fn command(&self) -> Command {
        let mut command = cargo::gentle_command();
        command.args(["clippy", "--locked", "--no-default-features", "--package", &self.package]);
        if !self.features.is_empty() {
            command.args(["--features", &self.features.join(",")]);
        }
        command.args(["--", "-D", "warnings"]);
        command
    }
}

/// The command: shows what cargo says.
pub(crate) fn run() -> Result<bool> {
    let mut all_well = true;
    for case in cases(&cargo::metadata(&["--no-deps"])?)? {
        println!("{} [{}]", case.package, case.features.join(", "));
        all_well &= Group::spawn(&mut case.command())?.wait(|_| ())?.success();
    }
    Ok(all_well)
}

/// The step: what cargo says goes to the log.
pub(crate) fn step(step: &mut StepRun<'_>) -> Result<Verdict> {
    if !cargo::has_subcommand("clippy")? {
        step.skip(
            "step features: clippy is not installed",
            "get it with `rustup component add clippy`",
        );
        return Ok(Verdict::Skipped);
    }
    let mut cases = cases(&cargo::metadata(&["--no-deps"])?)?;
    cases.retain(|case| step.session.selects(&case.package));
    for case in &cases {
        if !step.run(case.command().env("CARGO_TERM_COLOR", "never"))? {
            return Ok(Verdict::Failed);
        }
    }
    Ok(Verdict::Passed(format!("{} sets", cases.len())))
}

/// What to check: all published crates of the workspace that have features.
fn cases(metadata: &Value) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for package in cargo::packages(metadata)? {
        let published = package["publish"].as_array().is_none_or(|to| !to.is_empty());
        let (Some(name), true) = (cargo::text(package, "name"), published) else { continue };
        let features = package["features"].as_object().into_iter().flat_map(|map| map.keys());
        let features: Vec<&str> =
            features.map(String::as_str).filter(|feature| *feature != "default").collect();
        if features.is_empty() {
            continue;
        }
        let mut seen = BTreeSet::new();
        let new = |set: &Vec<&str>| seen.insert(implied(package, set));
        cases.extend(sets(&features).into_iter().filter(new).map(|set| Case {
            package: name.to_owned(),
            features: set.into_iter().map(str::to_owned).collect(),
        }));
    }
    Ok(cases)
}

/// A set of features and all that they bring along. Two sets that come to the same are one.
fn implied(package: &Value, set: &[&str]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut next: Vec<String> = set.iter().map(|feature| (*feature).to_owned()).collect();
    while let Some(feature) = next.pop() {
        let brings = package["features"][&feature].as_array().into_iter().flatten();
        if all.insert(feature) {
            next.extend(brings.filter_map(Value::as_str).map(str::to_owned));
        }
    }
    all
}

/// The sets of features to check, smallest first.
fn sets<'a>(features: &[&'a str]) -> Vec<Vec<&'a str>> {
    if features.len() > POWERSET_MAX {
        let alone = features.iter().map(|feature| vec![*feature]);
        return [vec![]].into_iter().chain(alone).chain([features.to_vec()]).collect();
    }
    let subset = |bits: u32| {
        let chosen = features.iter().enumerate().filter(|(n, _)| bits & (1 << n) != 0);
        chosen.map(|(_, feature)| *feature).collect::<Vec<_>>()
    };
    let mut sets: Vec<Vec<&str>> = (0..1 << features.len()).map(subset).collect();
    sets.sort_by_key(Vec::len);
    sets
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn few_features_give_all_subsets() {
        assert_eq!(sets(&["a", "b"]), [vec![], vec!["a"], vec!["b"], vec!["a", "b"]]);
        assert_eq!(sets(&["a", "b", "c", "d"]).len(), 16);
    }

    #[test]
    fn sets_that_come_to_the_same_are_checked_once() {
        let features = json!({ "drill": ["dep:tenure-drill", "tls"], "tls": [] });
        let package = &json!({ "name": "store", "features": features });
        assert_eq!(implied(package, &["drill"]), implied(package, &["drill", "tls"]));
        assert_ne!(implied(package, &["drill"]), implied(package, &["tls"]));
    }

    #[test]
    fn many_features_give_none_each_and_all() {
        let sets = sets(&["a", "b", "c", "d", "e"]);
        assert_eq!(sets.len(), 7);
        assert!(sets[0].is_empty());
        assert_eq!(sets[6], ["a", "b", "c", "d", "e"]);
    }

    #[test]
    fn only_published_crates_with_features_count() {
        let metadata = json!({ "packages": [
            { "name": "private", "publish": [], "features": { "x": [] } },
            { "name": "plain", "publish": null, "features": { "default": [] } },
            { "name": "store", "publish": null, "features": { "default": ["x"], "x": [] } },
        ] });
        let cases = cases(&metadata).unwrap();
        assert_eq!(cases.len(), 2);
        assert!(cases.iter().all(|case| case.package == "store"));
        assert_eq!(cases[1].features, ["x"]);
    }
}
