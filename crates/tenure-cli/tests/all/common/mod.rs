//! What the tests with real processes share: processes, their deaths, and the clock.
#![allow(dead_code, reason = "each of the two test binaries uses a part of it")]

use std::io::Write as _;
use std::path::{Path, PathBuf};

#[allow(unused_imports, reason = "each of the two test binaries uses a part of it")]
pub(crate) use tenure_testbed::process::{Stat, Watched, line_of, processes, watch_group};
#[allow(unused_imports, reason = "each of the two test binaries uses a part of it")]
pub(crate) use tenure_testbed::{PATIENCE as LIMIT, eventually, now};

/// The binary that plays the guardian and the trampoline.
pub(crate) fn tenure() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_tenure"))
}

/// Says what is not tested on this machine. Not by `eprintln!`, which a passing test swallows.
pub(crate) fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// A directory for the notes that a command leaves, gone with the test.
pub(crate) struct Notes(tempfile::TempDir);

impl Notes {
    pub(crate) fn new() -> Notes {
        Notes(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}
