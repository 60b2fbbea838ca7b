//! Many seeds, on all cores, and what is said when one fails.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::check::Seen;
use crate::plan::{Class, Options};
use crate::shrink::shrink;
use crate::world::{Run, run};

/// Runs the seeds from `first.seed` on, `count` of them, otherwise as `first` says. `progress`
/// is told how many are done.
///
/// # Errors
/// The failing seed of the smallest number among those that were run.
pub fn soak(
    first: &Options,
    count: u64,
    threads: usize,
    progress: impl Fn(u64) + Sync,
) -> Result<Seen, Box<Options>> {
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let failed = AtomicU64::new(u64::MAX);
    let work = || {
        let mut seen = Seen::default();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count || failed.load(Ordering::Relaxed) != u64::MAX {
                return seen;
            }
            let run = run(&Options { seed: first.seed + index, ..first.clone() });
            seen.add(&run.seen);
            if run.violation.is_some() {
                failed.fetch_min(index, Ordering::Relaxed);
            }
            progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    let mut total = Seen::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            total.add(&thread.join().expect("a run catches its panics"));
        }
    });
    match failed.into_inner() {
        u64::MAX => Ok(total),
        index => Err(Box::new(Options { seed: first.seed + index, ..first.clone() })),
    }
}

/// Shrinks a failing run, writes its transcript below `dir`, and says it all in a few lines.
pub fn explain(options: &Options, dir: &Path) -> String {
    let whole = run(options);
    let (small, run) = shrink(options);
    let mut text = String::new();
    let commit = commit();
    let _ = writeln!(text, "seed {} fails at commit {commit}", options.seed);
    if let Some(violation) = &whole.violation {
        let _ = writeln!(text, "  {violation}");
    }
    let off: Vec<String> =
        Class::ALL.iter().filter(|c| small.is_off(**c)).map(|c| format!("{c:?}")).collect();
    let _ = writeln!(
        text,
        "  shrunk to {} % of its length, at most {} candidates; needs no {}",
        small.length_pct,
        small.nodes_max.min(5),
        off.join(", ")
    );
    if let Some(violation) = &run.violation {
        let _ = writeln!(text, "  {violation}");
    }
    match write_transcript(dir, options.seed, &text, &run) {
        Ok(path) => {
            let _ = writeln!(text, "  transcript: {}", path.display());
        }
        Err(error) => {
            let _ = writeln!(text, "  the transcript could not be written: {error}");
        }
    }
    let _ = writeln!(text, "  again: cargo run -p tenure-sim -- --seed {}", options.seed);
    text
}

/// Where transcripts go unless told otherwise.
pub fn transcripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/sim")
}

fn write_transcript(dir: &Path, seed: u64, head: &str, run: &Run) -> std::io::Result<PathBuf> {
    std::fs::create_dir_all(dir)?;
    let path = dir.join(format!("seed-{seed}.txt"));
    std::fs::write(&path, format!("{head}\n{}", run.transcript))?;
    Ok(path)
}

pub(crate) fn commit() -> String {
    let mut git = std::process::Command::new("git");
    git.args(["describe", "--always", "--dirty"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    match git.output() {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "unknown".into(),
    }
}
