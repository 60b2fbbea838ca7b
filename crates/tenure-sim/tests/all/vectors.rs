//! The vectors that the engines of other languages replay. `cargo xtask vectors` writes them anew;
//! read the difference before you believe it.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use tenure_sim::vectors::{self, engine::Fault};

#[test]
fn the_file_is_what_the_simulator_writes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/vectors/engine.json");
    let written = vectors::write();
    if std::env::var_os("TENURE_BLESS").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(kept == written, "run `cargo xtask vectors`, and read the difference");
    assert!(kept.len() < 1_000_000, "{} bytes", kept.len());
}

#[test]
fn the_stories_have_everything_in_them() {
    let stories: Vec<Value> = serde_json::from_str(&vectors::write()).unwrap();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for story in &stories {
        for step in story["steps"].as_array().unwrap() {
            seen.insert(step[1][0].as_str().unwrap().to_owned());
            for act in step[2].as_array().unwrap() {
                let word = act[0].as_str().unwrap();
                let reason = act[2].as_str().map_or(String::new(), |why| format!(" {why}"));
                seen.insert(format!("{word}{reason}"));
                if word == "vacated" || word == "answer" {
                    seen.insert(format!("{word} {}", act.as_array().unwrap().last().unwrap()));
                }
            }
        }
        if let Some(fault) = story["fault"].as_str() {
            seen.insert(fault.to_owned());
        }
    }
    let mut wanted: Vec<String> = "start stop tick granted refused unknown ask begin end acquire \
        renew release lead extend overdue wake sleep"
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    wanted.extend(
        ["resigned", "not_renewed", "renewal_failed", "deposed"]
            .map(|why| format!("step_down {why}")),
    );
    wanted.extend(
        ["vacated true", "vacated false", "answer true", "answer false"].map(str::to_owned),
    );
    wanted.extend(Fault::ALL.map(|fault| fault.name().to_owned()));
    let missing: Vec<&String> = wanted.iter().filter(|word| !seen.contains(*word)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
