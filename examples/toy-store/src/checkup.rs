//! What a doctor looks at: who may open the file.

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;
use std::{fs, io};

use tenure_core::{BoxFuture, Checkup, CheckupReport, Error, Finding, Level};

use crate::error::unusable;
use crate::store::{Shared, ToyStore};

impl Checkup for ToyStore {
    fn examine(&self, _ttl: Duration) -> BoxFuture<'_, CheckupReport> {
        Box::pin(async move {
            self.on_thread(examine).await.unwrap_or_else(|error| {
                let mut report = CheckupReport::new();
                report.find(Finding::unusable("the store", error));
                report
            })
        })
    }
}

fn examine(shared: &Shared) -> Result<CheckupReport, Error> {
    let mut report = CheckupReport::new();
    let path = shared.file.path();
    let file = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            report.fact("file", "not written yet");
            return Ok(report);
        }
        file => file.map_err(unusable(path))?,
    };
    report.fact("file", format!("{} bytes, mode {:04o}", file.len(), file.mode() & 0o7777));
    if file.mode() & 0o077 != 0 {
        report.find(
            Finding::new(Level::Safety, format!("others may open {}", path.display()))
                .because("a program that writes to the file can make anybody lead, or nobody")
                .so("chmod it to 0600"),
        );
    }
    Ok(report)
}
