//! The library takes threads, tasks, clocks, timers and chance from its `Runtime` alone: that is
//! what lets a simulator run all of it. This reads the sources, so that it stays so.

use std::path::{Path, PathBuf};

/// What only the places below may do, and what each of them may.
const BANNED: [(&str, &[&str]); 11] = [
    // The keeper of a witness starts a real process, and does nothing that an election waits for.
    ("thread::Builder", &["runtime/threads.rs", "witness/keeper.rs"]),
    ("thread::spawn", &[]),
    ("tokio::spawn", &[]),
    ("JoinSet", &[]),
    ("Handle::try_current", &["runtime/threads.rs"]),
    ("tokio::time", &["clock.rs"]),
    ("Instant", &[]),
    // For people to read; the time of day of cron is a parameter of its own.
    ("SystemTime::now", &["memory/ledger.rs", "wall.rs"]),
    ("Rng::new()", &[]),
    ("RandomState", &[]),
    ("Uuid", &["runtime/threads.rs"]),
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The code of a file: no comments, and no tests, which come last.
fn code(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).map(str::to_owned).collect()
}

fn faults(root: &Path) -> Vec<String> {
    let (mut files, mut faults) = (Vec::new(), Vec::new());
    sources(root, &mut files);
    assert!(files.len() > 5, "the sources are in {}", root.display());
    for path in files {
        let name = path.strip_prefix(root).unwrap().display().to_string();
        let lines = code(&path);
        for (word, places) in BANNED {
            if !places.contains(&&*name) && lines.iter().any(|line| line.contains(word)) {
                faults.push(format!("{name}: {word}"));
            }
        }
        for (number, line) in lines.iter().enumerate() {
            let next = || lines[number + 1..].iter().find(|line| !line.trim().is_empty());
            if line.contains("select! {") && next().is_none_or(|next| next.trim() != "biased;") {
                faults.push(format!("{name}: a select! that draws lots: {}", line.trim()));
            }
        }
    }
    faults
}

#[test]
fn only_the_runtime_reaches_for_threads_clocks_and_chance() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for member in ["tenure", "tenure-cron"] {
        assert_eq!(faults(&crates.join(member).join("src")), Vec::<String>::new(), "{member}");
    }
    assert!(!faults(&crates.join("tenure/tests")).is_empty(), "this test can fail");
}
