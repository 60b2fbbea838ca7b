//! A wall clock that can be stepped for the candidates, and for nobody else, by libfaketime.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use tenure::{BootClock, Time};

use crate::exit::Failure;
use crate::wall;

/// Where the clock is set to, one after the other, in hours.
const STEPS_H: [i64; 4] = [1, -1, 24, 0];

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
    pub(crate) fn new(place: &Path) -> Result<WallClock, Failure> {
        let missing = "the fault clock needs libfaketime, and it is not installed; its Debian \
                       package is faketime";
        let output = Command::new("faketime").args(["-f", "+0h", "env"]).output();
        let output = output.map_err(|_| Failure::usage(missing))?;
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let library = shown.lines().find_map(|line| line.strip_prefix("LD_PRELOAD="));
        let library = library.ok_or_else(|| Failure::usage(missing))?.to_owned();
        let clock = WallClock { library, file: place.join("wall-clock"), stepped: 0 };
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
    pub(crate) fn step(&mut self) -> Result<Time, Failure> {
        let hours = STEPS_H[self.stepped % STEPS_H.len()];
        self.stepped += 1;
        let at = BootClock::time();
        self.set(hours)?;
        let output = Command::new("date").arg("+%s").envs(self.envs()).output()?;
        let seen = String::from_utf8_lossy(&output.stdout).trim().parse::<i64>();
        let seen = seen.context("the stepped clock can't be read back")?;
        let off_s = (seen - wall::now().as_second() - hours * 3600).abs();
        if off_s > 60 {
            let sentence = format!("libfaketime did not step the clock by {hours} h");
            return Err(anyhow::anyhow!(sentence).into());
        }
        Ok(at)
    }

    fn set(&self, hours: i64) -> Result<(), Failure> {
        // Replaced as a whole, lest somebody reads half of it.
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{hours:+}h\n"))?;
        Ok(fs::rename(new, &self.file)?)
    }
}
