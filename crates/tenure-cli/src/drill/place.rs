//! A directory of the drill's own, gone with it.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::exit::Failure;

pub(crate) struct Place(PathBuf);

impl Place {
    /// A new directory that nobody else can read.
    pub(crate) fn new() -> Result<Place, Failure> {
        let name = format!("tenure-drill-{:016x}", fastrand::Rng::new().u64(..));
        let path = std::env::temp_dir().join(name);
        // It fails if there is one: nobody can have prepared it for us.
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("{} can't be created", path.display()))?;
        Ok(Place(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _left_over = fs::remove_dir_all(&self.0);
    }
}
