//! The step `licences`: the rules of `deny.toml` on licences, banned crates and sources.
//!
//! `cargo deny` does it where it is installed. It takes minutes to build, so elsewhere the same
//! rules are applied here to the answer of `cargo metadata`. Neither looks for known
//! vulnerabilities.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cargo;
use crate::spdx;
use crate::test::{StepRun, Verdict};

/// The rules, read from `deny.toml`.
#[derive(Debug, PartialEq, Eq)]
struct Rules {
    licences: Vec<String>,
    banned: Vec<String>,
    registries: Vec<String>,
}

/// Applies the rules with the tool at hand.
pub(crate) fn step(step: &mut StepRun<'_>) -> Result<Verdict> {
    if cargo::has_subcommand("deny")? {
        let success = step.cargo(&["deny", "--locked", "check", "licenses", "bans", "sources"])?;
        return Ok(Verdict::of(success));
    }
    let path = cargo::root().join("deny.toml");
    let text = fs::read_to_string(&path).context("cannot read deny.toml")?;
    let rules = Rules::parse(&text)?;
    let metadata = cargo::metadata(&["--all-features"])?;
    let findings = rules.check(cargo::packages(&metadata)?);
    for finding in &findings {
        step.write(finding)?;
    }
    if findings.is_empty() {
        return Ok(Verdict::Passed("by our own check, cargo-deny is not installed".to_owned()));
    }
    Ok(Verdict::Failed)
}

impl Rules {
    fn parse(text: &str) -> Result<Self> {
        let rules = Self {
            licences: strings(text, "licenses", "allow"),
            banned: strings(text, "bans", "deny"),
            registries: strings(text, "sources", "allow-registry"),
        };
        ensure!(!rules.licences.is_empty(), "deny.toml allows no licence");
        ensure!(!rules.banned.is_empty(), "deny.toml bans no crate");
        ensure!(!rules.registries.is_empty(), "deny.toml allows no registry");
        Ok(rules)
    }

    /// One sentence for each package that breaks a rule.
    fn check(&self, packages: &[Value]) -> Vec<String> {
        let mut findings = Vec::new();
        for package in packages {
            let name = cargo::text(package, "name").unwrap_or("?");
            let version = cargo::text(package, "version").unwrap_or("?");
            let mut find = |what: String| findings.push(format!("{name} {version}: {what}"));
            match cargo::text(package, "license") {
                None => find("states no licence".to_owned()),
                Some(licence) => match spdx::is_met(licence, &self.licences) {
                    Ok(true) => {}
                    Ok(false) => find(format!("licence `{licence}` is not on the list")),
                    Err(error) => find(error.to_string()),
                },
            }
            if self.banned.iter().any(|banned| banned == name) {
                find("is banned".to_owned());
            }
            // A package without a source is part of this workspace.
            let source = cargo::text(package, "source");
            let known = |source: &str| {
                let url = source.strip_prefix("registry+").unwrap_or(source);
                self.registries.iter().any(|registry| registry == url)
            };
            if source.is_some_and(|source| !known(source)) {
                find(format!("comes from {}", source.unwrap_or_default()));
            }
        }
        findings
    }
}

/// The strings of the array `key` in `[section]` of a TOML file.
///
/// Reads what we write in `deny.toml`, not all of TOML: plain strings, and `#` only in comments.
fn strings(text: &str, section: &str, key: &str) -> Vec<String> {
    let uncommented: String = text
        .lines()
        .map(|line| line.split_once('#').map_or(line, |(code, _)| code))
        .fold(String::new(), |all, line| all + line + "\n");
    let header = format!("[{section}]\n");
    let Some((_, body)) = uncommented.split_once(&header) else { return Vec::new() };
    let body = body.split("\n[").next().unwrap_or_default();
    let assignment = format!("\n{key} = [");
    let with_start = format!("\n{body}");
    let Some((_, value)) = with_start.split_once(&assignment) else { return Vec::new() };
    let value = value.split(']').next().unwrap_or_default();
    value.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DENY: &str = r#"
# allow = ["No-1.0"]
[licenses]
allow = [
  "MIT", # "GPL-3.0"
  "Zlib",
]

[bans]
multiple-versions = "allow"
deny = ["openssl"]

[sources]
allow-registry = ["https://example.org/index"]
"#;

    fn findings(package: &Value) -> Vec<String> {
        Rules::parse(DENY).unwrap().check(std::slice::from_ref(package))
    }

    #[test]
    fn the_rules_are_read_from_the_file_of_cargo_deny() {
        let rules = Rules::parse(DENY).unwrap();
        assert_eq!(rules.licences, ["MIT", "Zlib"]);
        assert_eq!(rules.banned, ["openssl"]);
        assert_eq!(rules.registries, ["https://example.org/index"]);
        assert!(Rules::parse("[licenses]\nallow = []\n").is_err());
    }

    #[test]
    fn our_own_rules_can_be_read() {
        let text = fs::read_to_string(cargo::root().join("deny.toml")).unwrap();
        let rules = Rules::parse(&text).unwrap();
        assert!(rules.licences.contains(&"MIT".to_owned()));
        assert!(rules.banned.contains(&"native-tls".to_owned()));
    }

    #[test]
    fn a_package_that_keeps_the_rules_is_not_mentioned() {
        let source = "registry+https://example.org/index";
        let good = json!({ "name": "a", "version": "1.0.0", "license": "MIT", "source": source });
        assert!(findings(&good).is_empty());
        let ours = json!({ "name": "b", "version": "1.0.0", "license": "MIT", "source": null });
        assert!(findings(&ours).is_empty());
    }

    #[test]
    fn each_broken_rule_is_told() {
        let bad = json!({
            "name": "openssl", "version": "1.0.0", "license": "GPL-3.0",
            "source": "git+https://example.org/index",
        });
        assert_eq!(
            findings(&bad),
            [
                "openssl 1.0.0: licence `GPL-3.0` is not on the list",
                "openssl 1.0.0: is banned",
                "openssl 1.0.0: comes from git+https://example.org/index",
            ]
        );
        let silent = json!({ "name": "c", "version": "1.0.0" });
        assert_eq!(findings(&silent), ["c 1.0.0: states no licence"]);
    }
}
