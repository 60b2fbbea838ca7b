//! A wall clock that is off, for a program that is started with it.

use std::path::Path;
use std::process::Command;

/// The variables with which a program's wall clock is what the file says, as in `+31` for so many
/// seconds ahead. Nothing else is faked.
pub fn fake_wall_clock(file: &Path) -> Vec<(String, String)> {
    let output = Command::new("faketime").args(["-f", "+0", "env"]).output();
    let output = output.expect("faketime is not installed (Debian package faketime)");
    let shown = String::from_utf8(output.stdout).unwrap();
    let library = shown.lines().find_map(|line| line.strip_prefix("LD_PRELOAD=")).unwrap();
    [
        ("LD_PRELOAD", library),
        ("FAKETIME_TIMESTAMP_FILE", file.to_str().unwrap()),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ("NO_FAKE_STAT", "1"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec()
}
