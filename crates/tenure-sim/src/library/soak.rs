//! Many seeds, on all cores, and what is said when one fails.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::judge::{Seen, Violation};
use super::plan::Options;
use super::world::run;

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
) -> Result<Seen, Options> {
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let failed = AtomicU64::new(u64::MAX);
    let work = || {
        let mut seen = Seen::default();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count || failed.load(Ordering::Relaxed) != u64::MAX {
                return seen;
            }
            let run = run(&Options { seed: first.seed + index, ..*first });
            seen.add(&run.seen);
            if let Some(violation) = run.violation {
                failed.fetch_min(index, Ordering::Relaxed);
                complain(first.seed + index, &violation);
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
        index => Err(Options { seed: first.seed + index, ..*first }),
    }
}

/// At once and as it was: should the seed not show it again, that is a bug of the simulation.
#[expect(clippy::print_stderr, reason = "for people who watch a run")]
fn complain(seed: u64, violation: &Violation) {
    eprintln!("library seed {seed}: {violation}");
}

/// The first seed among these that is not the same twice, if there is one.
pub fn differs(first: &Options, count: u64, threads: usize) -> Option<u64> {
    let (next, found) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            let options = Options { seed: first.seed + index, ..*first };
            let (one, other) = (run(&options), run(&options));
            if (one.trace, one.seen, &one.violation) != (other.trace, other.seen, &other.violation)
            {
                found.fetch_min(index, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    Some(found.into_inner()).filter(|index| *index < count).map(|index| first.seed + index)
}

/// Runs a failing seed again, writes its transcript below `dir`, and says it all in a few lines.
pub fn explain(options: &Options, dir: &Path) -> String {
    let run = run(&Options { record: true, ..*options });
    let mut text = String::new();
    let commit = crate::soak::commit();
    let _ = writeln!(text, "library seed {} fails at commit {commit}", options.seed);
    if let Some(violation) = &run.violation {
        let _ = writeln!(text, "  {violation}");
    }
    let path = dir.join(format!("library-seed-{}.txt", options.seed));
    let written = std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::write(&path, format!("{text}\n{}", run.transcript)));
    match written {
        Ok(()) => {
            let _ = writeln!(text, "  transcript: {}", path.display());
        }
        Err(error) => {
            let _ = writeln!(text, "  the transcript could not be written: {error}");
        }
    }
    let _ = writeln!(text, "  again: cargo xtask sim library --seed {}", options.seed);
    text
}
