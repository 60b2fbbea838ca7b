//! Drills on this store: processes on the same file, and the workload in another one.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{BoxFuture, Clock, Name, Secret, Term, Time};
use tenure_drill::{
    BY_PROCESS, DrillError, Fault, Ground, GroundKind, Refusal, Row, Site, Workload,
};

use crate::config::ToyConfig;
use crate::file::{LeaseFile, lock_within};
use crate::store::ToyStore;

/// How to have drills on this store.
pub const GROUND: GroundKind = GroundKind {
    schemes: &["toy"],
    ground: |site| Ok(Box::new(ToyGround::new(site)?)),
    workload: |site| Ok(Box::new(ToyWorkload::new(site)?)),
};

/// Where the workload writes, inside the drill's own directory.
const DATA: &str = "written";

/// Longer than any write takes.
const IS_FREE_WITHIN: Duration = Duration::from_millis(200);

/// How long the workload waits for its turn.
const TURN_WAIT: Duration = Duration::from_secs(10);

struct ToyGround {
    url: Secret,
    election: Name,
    leases: PathBuf,
    data: PathBuf,
    /// There was no such file before the drill.
    is_new: bool,
}

impl ToyGround {
    fn new(site: Site) -> Result<ToyGround, DrillError> {
        let Site { url, election, directory, .. } = site;
        let leases = ToyConfig::from_url(url.expose())?.path().to_owned();
        let is_new = matches!(leases.try_exists(), Ok(false));
        Ok(ToyGround { url, election, leases, data: directory.join(DATA), is_new })
    }

    async fn remove(&self) -> Result<(), DrillError> {
        let (election, is_new) = (self.election.clone(), self.is_new);
        let store = ToyStore::open(&self.leases)?;
        let gone = store.on_thread(move |shared| {
            let gone = shared.forget(&election)?;
            if is_new {
                shared.file.lock()?.remove_if_empty()?;
            }
            Ok(gone)
        });
        match gone.await? {
            true => Ok(()),
            false => Err(DrillError::failed("somebody leads the drill's election still")),
        }
    }
}

impl Ground for ToyGround {
    fn faults(&self) -> &'static [Fault] {
        BY_PROCESS
    }

    fn why_not(&self, fault: Fault) -> &'static str {
        match fault {
            Fault::Restart => "needs a server that can be restarted, and a file has none",
            _ => "needs a network between the candidates and the store, and a file has none",
        }
    }

    fn has_server(&self) -> bool {
        false
    }

    fn prepare(&self) -> BoxFuture<'_, Result<(), DrillError>> {
        Box::pin(async move { Ok(File::create(&self.data).map(drop)?) })
    }

    /// `prepare` leaves the store alone.
    fn is_touched(&self) -> bool {
        false
    }

    fn url(&self) -> Secret {
        self.url.clone()
    }

    fn is_free(&self) -> bool {
        let is_free = |path: &Path| lock_within(&File::open(path)?, IS_FREE_WITHIN);
        let directory = LeaseFile::directory_of(&self.leases);
        [directory, &self.data].into_iter().all(|path| is_free(path).unwrap_or(false))
    }

    fn rows(&self) -> BoxFuture<'_, Result<Vec<Row>, DrillError>> {
        Box::pin(async move {
            let text = fs::read_to_string(&self.data)?;
            let rows = text.lines().filter(|line| !line.starts_with(MARK));
            let row = |line| parse(line).ok_or_else(|| DrillError::failed("a row can't be read"));
            rows.map(row).collect()
        })
    }

    fn clean_up<'a>(
        &'a self,
        _candidates: &'a BTreeSet<String>,
    ) -> BoxFuture<'a, Result<(), DrillError>> {
        Box::pin(self.remove())
    }

    fn leftovers(&self) -> String {
        "it is vacant and harms nobody".to_owned()
    }
}

/// A line that begins with this says that a term has begun. All others are rows.
const MARK: &str = "begun";

/// Writes to a file whose last line has the highest term: that is the fence.
struct ToyWorkload {
    data: File,
    path: PathBuf,
    clock: Arc<dyn Clock>,
}

impl ToyWorkload {
    fn new(site: Site) -> Result<ToyWorkload, DrillError> {
        let path = site.directory.join(DATA);
        let data = OpenOptions::new().append(true).open(&path)?;
        Ok(ToyWorkload { data, path, clock: site.clock })
    }

    /// Adds the line that `line` makes when it is our turn, unless a later term has begun.
    /// Returns when that was, and the last counter before it.
    fn write(
        &mut self,
        term: Term,
        line: impl FnOnce(Time) -> String,
    ) -> Result<(Time, u64), Refusal> {
        if !lock_within(&self.data, TURN_WAIT).map_err(failed)? {
            return Err(Refusal::Failed("another process holds the lock".to_owned()));
        }
        let written = self.write_alone(term, line);
        self.data.unlock().map_err(failed)?;
        written
    }

    fn write_alone(
        &mut self,
        term: Term,
        line: impl FnOnce(Time) -> String,
    ) -> Result<(Time, u64), Refusal> {
        let at = self.clock.now();
        let text = fs::read_to_string(&self.path).map_err(failed)?;
        let last = text.lines().last().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let last: u64 = last.unwrap_or(0);
        if last > term.get() {
            return Err(Refusal::Stale(format!("term {term} is over, {last} has begun")));
        }
        let mut rows = text.lines().rev().filter(|line| !line.starts_with(MARK));
        let counter = rows.next().and_then(parse).map_or(0, |row| row.counter);
        // One call, so that a kill leaves a whole line or none.
        self.data.write_all(format!("{}\n", line(at)).as_bytes()).map_err(failed)?;
        Ok((at, counter))
    }
}

impl Workload for ToyWorkload {
    fn begin(&mut self, term: Term) -> Result<u64, Refusal> {
        self.write(term, |_| format!("{MARK} {term}")).map(|(_, counter)| counter)
    }

    fn append(&mut self, row: Row, term: Term) -> Result<Time, Refusal> {
        let line = |at: Time| {
            let (checked, at) = (row.checked.as_nanos(), at.as_nanos());
            format!("row {term} {} {checked} {at} {}", row.counter, row.candidate)
        };
        self.write(term, line).map(|(at, _)| at)
    }
}

fn parse(line: &str) -> Option<Row> {
    // The label of a candidate may have spaces in it, so it comes last.
    let words: Vec<&str> = line.splitn(6, ' ').collect();
    let ["row", term, counter, checked, at, candidate] = words[..] else { return None };
    let time = |word: &str| word.parse().ok().map(Time::from_nanos);
    Some(Row {
        checked: time(checked)?,
        at: time(at)?,
        term: term.parse().ok()?,
        counter: counter.parse().ok()?,
        candidate: candidate.to_owned(),
    })
}

fn failed(error: io::Error) -> Refusal {
    Refusal::Failed(error.to_string())
}
