//! A directory of the drill's own, gone with it.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::error::DrillError;

pub(crate) struct ScratchDir(PathBuf);

impl ScratchDir {
    /// A new directory that nobody else can read.
    pub(crate) fn new() -> Result<ScratchDir, DrillError> {
        let name = format!("tenure-drill-{:016x}", fastrand::Rng::new().u64(..));
        let path = std::env::temp_dir().join(name);
        // It fails if there is one: nobody can have prepared it for us.
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(DrillError::because(format!("{} can't be created", path.display())))?;
        Ok(ScratchDir(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        let _left_over = fs::remove_dir_all(&self.0);
    }
}
