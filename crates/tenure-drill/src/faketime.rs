//! A wall clock that can be stepped for the candidates, and for nobody else, by libfaketime.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tenure_core::{Clock, Time};

use crate::error::DrillError;
use crate::wall;

/// Where the clock is set to, one after the other, in hours.
const STEPS_H: [i64; 4] = [1, -1, 24, 0];

/// A wall clock of the candidates' own.
pub(crate) struct WallClock {
    library: String,
    file: PathBuf,
    stepped: usize,
}

impl WallClock {
    /// Looks for the library; it goes by the program that comes with it.
    ///
    /// # Errors
    /// A sentence if it is not installed.
    pub(crate) fn new(directory: &Path) -> Result<WallClock, DrillError> {
        let missing = || {
            DrillError::refused(
                "the fault clock needs libfaketime, and it is not installed; its Debian package \
                 is faketime",
            )
        };
        let output = Command::new("faketime").args(["-f", "+0h", "env"]).output();
        let output = output.map_err(|_| missing())?;
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let library = shown.lines().find_map(|line| line.strip_prefix("LD_PRELOAD="));
        let library = library.ok_or_else(missing)?.to_owned();
        let clock = WallClock { library, file: directory.join("wall-clock"), stepped: 0 };
        clock.set(0)?;
        Ok(clock)
    }

    /// The environment in which the wall clock is what we say, and nothing else is faked.
    pub(crate) fn envs(&self) -> Vec<(String, String)> {
        [
            ("LD_PRELOAD", self.library.as_str()),
            ("FAKETIME_TIMESTAMP_FILE", &self.file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("NO_FAKE_STAT", "1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
    }

    /// Steps the clock, makes sure that programs see it, and tells the instant just before.
    pub(crate) fn step(&mut self, clock: &dyn Clock) -> Result<Time, DrillError> {
        let hours = STEPS_H[self.stepped % STEPS_H.len()];
        self.stepped += 1;
        let at = clock.now();
        self.set(hours)?;
        let output = Command::new("date").arg("+%s").envs(self.envs()).output()?;
        let seen = String::from_utf8_lossy(&output.stdout).trim().parse::<i64>();
        let seen = seen.map_err(DrillError::because("the stepped clock can't be read back"))?;
        let off_s = (seen - wall::now().as_second() - hours * 3600).abs();
        if off_s > 60 {
            let sentence = format!("libfaketime did not step the clock by {hours} h");
            return Err(DrillError::failed(sentence));
        }
        Ok(at)
    }

    fn set(&self, hours: i64) -> Result<(), DrillError> {
        // Replaced as a whole, so that nobody reads half of it.
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{hours:+}h\n"))?;
        Ok(fs::rename(new, &self.file)?)
    }
}
