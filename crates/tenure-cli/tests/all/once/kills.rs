//! Five instances, many keys, kill -9 at random instants: each key has exactly one recorded
//! success, never two runs at once, and a run that died was tried again.
//!
//! An instance is this very test binary, started again.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use tenure::core::{Clock as _, OnceState, Store};
use tenure::{BootClock, Election, Name, OnceOptions, OnceOutcome, OnceRun};

use crate::servers::{self, Postgres};
use crate::support::Place;

const INSTANCES: usize = 5;
const KEYS: usize = 200;

/// A death costs a ttl, unless it can be proven.
const TTL: Duration = Duration::from_secs(1);

/// How many runs are killed in their midst, at least.
const DEATHS: usize = 12;

/// How long all of it may take: many times what it takes on an idle machine.
const LIMIT: Duration = Duration::from_secs(600);

const URL: &str = "TENURE_ONCE_URL";
const DIR: &str = "TENURE_ONCE_DIR";

/// What an instance does, if this process is one.
#[test]
fn an_instance_of_the_tests_here() {
    let (Ok(url), Ok(dir)) = (std::env::var(URL), std::env::var(DIR)) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(instance(&url, Path::new(&dir)));
}

async fn instance(url: &str, dir: &Path) {
    let election = Election::builder("once", open(url)).ttl(TTL).build().unwrap();
    let options = OnceOptions::new().tries(10_000);
    for key in 0..KEYS {
        let work = |run: OnceRun| work(dir, run);
        let outcome = election.once_with(&format!("k{key}"), options, work).await.unwrap();
        assert!(matches!(outcome, OnceOutcome::Ran(()) | OnceOutcome::Already), "{outcome:?}");
    }
}

/// Takes a lock that ends with the process, so that two at once are seen, and notes what it does.
async fn work(dir: &Path, run: OnceRun) -> Result<(), std::io::Error> {
    let lock = File::create(dir.join("lock"))?;
    let alone = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
    let about = format!("{} {} {}", run.key(), run.attempt(), std::process::id());
    if !alone {
        note(dir, &format!("overlap {about}"))?;
    }
    note(dir, &format!("begin {about}"))?;
    let span = Duration::from_micros(fastrand::Rng::new().u64(0..10_000));
    BootClock.sleep_until(BootClock::time() + span).await;
    note(dir, &format!("end {about}"))
}

/// One line in one write: nobody sees a part of it.
fn note(dir: &Path, line: &str) -> Result<(), std::io::Error> {
    let mut journal = OpenOptions::new().create(true).append(true).open(dir.join("journal"))?;
    journal.write_all(format!("{line}\n").as_bytes())
}

fn open(url: &str) -> Arc<dyn Store> {
    if let Some(path) = url.strip_prefix("sqlite:") {
        Arc::new(tenure_sqlite::SqliteStore::open(path).unwrap())
    } else if url.starts_with("redis") {
        Arc::new(tenure_redis::RedisConfig::from_url(url).unwrap().open().unwrap())
    } else {
        Arc::new(tenure_postgres::PostgresConfig::from_url(url).unwrap().open())
    }
}

/// The instances; those that are left are killed when it is dropped.
struct Fleet<'a> {
    url: &'a str,
    dir: &'a Path,
    children: Vec<Child>,
}

impl Fleet<'_> {
    fn start(url: &str, dir: &Path) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "once::kills::an_instance_of_the_tests_here", "--nocapture"]);
        command.env(URL, url).env(DIR, dir).stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().unwrap()
    }

    /// Kills one, and starts another in its place.
    fn kill(&mut self, which: usize) {
        let child = &mut self.children[which];
        child.kill().unwrap();
        child.wait().unwrap();
        self.children[which] = Fleet::start(self.url, self.dir);
    }

    /// Whether all have done all of it; an instance that failed fails the test.
    fn is_done(&mut self) -> bool {
        let mut done = true;
        for child in &mut self.children {
            match child.try_wait().unwrap() {
                Some(status) => assert!(status.success(), "an instance ended with {status}"),
                None => done = false,
            }
        }
        done
    }
}

impl Drop for Fleet<'_> {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A line of the journal: what, key, attempt, process.
type Entry = (String, String, u32, u32);

fn journal(dir: &Path) -> Vec<Entry> {
    let text = std::fs::read_to_string(dir.join("journal")).unwrap_or_default();
    let line = |line: &str| {
        let [what, key, attempt, pid] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("a line of the journal is {line:?}");
        };
        (what.to_owned(), key.to_owned(), attempt.parse().unwrap(), pid.parse().unwrap())
    };
    text.lines().map(line).collect()
}

/// Runs all keys through while instances are killed, and judges what is left.
fn keys_under_kills(url: &str, dir: &Path) {
    let began = BootClock::time();
    let seed = fastrand::Rng::new().u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let children = (0..INSTANCES).map(|_| Fleet::start(url, dir)).collect();
    let mut fleet = Fleet { url, dir, children };
    let (mut deaths, mut kills) = (0, 0);
    while !fleet.is_done() {
        assert!(BootClock::time() - began < LIMIT, "it is not done: seed {seed}");
        if deaths >= DEATHS {
            std::thread::yield_now();
            wait(Duration::from_millis(20));
            continue;
        }
        wait(Duration::from_millis(rng.u64(0..150)));
        // Somebody at random, or whoever is at work by the journal's last line.
        let last = journal(dir).pop().filter(|(what, ..)| what == "begin");
        let at_work =
            last.and_then(|(.., pid)| fleet.children.iter().position(|child| child.id() == pid));
        let which = match at_work {
            Some(which) => which,
            None if rng.u8(0..4) == 0 => rng.usize(0..INSTANCES),
            None => continue,
        };
        fleet.kill(which);
        kills += 1;
        // It may have ended its work just before that.
        let died = journal(dir).pop().is_some_and(|(what, ..)| what == "begin");
        deaths += usize::from(at_work.is_some() && died);
    }
    let took = BootClock::time() - began;
    let lines = journal(dir);
    let again = judge(&lines, url);
    println!(
        "{KEYS} keys, {INSTANCES} instances, {kills} kills, {deaths} in the midst of a run, \
         {again} runs that died were tried again, {} runs, {:.1} s",
        lines.iter().filter(|(what, ..)| what == "begin").count(),
        took.as_secs_f64()
    );
    assert!(deaths > 0 && again >= deaths, "seed {seed}");
}

/// Holds the journal and the ledger against what is promised; how many runs died and were tried
/// again.
fn judge(lines: &[Entry], url: &str) -> usize {
    assert!(lines.iter().all(|(what, ..)| what != "overlap"), "two runs at once: {lines:?}");
    // Between a begin and its end there is nothing of anybody else's, save after a death.
    let mut died = 0;
    let mut last: HashMap<&str, (u32, bool)> = HashMap::new();
    for (what, key, attempt, _) in lines {
        let before = last.get(key.as_str()).copied();
        match (what.as_str(), before) {
            ("begin", Some((earlier, _))) => {
                assert!(*attempt > earlier, "{key}: {attempt} after {earlier}");
                died += 1;
                last.insert(key, (*attempt, false));
            }
            ("begin", None) => drop(last.insert(key, (*attempt, false))),
            (_, before) => {
                assert_eq!(before, Some((*attempt, false)), "{key} ended and did not begin");
                last.insert(key, (*attempt, true));
            }
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = open(url);
    let name = Name::new("once").unwrap();
    let ledger = store.ledger().unwrap();
    let records = runtime.block_on(ledger.once_history(&name, KEYS * 2)).unwrap();
    assert_eq!(records.len(), KEYS, "one record for each key");
    for record in &records {
        assert!(record.is_done() && record.state != OnceState::Running, "{record:?}");
        // The last run is the one whose success is recorded: nobody ran it after that.
        assert_eq!(last.get(record.key.as_str()), Some(&(record.attempt, true)), "{record:?}");
    }
    died
}

fn wait(span: Duration) {
    let (_never, gate) = std::sync::mpsc::channel::<()>();
    let _timed_out = gate.recv_timeout(span);
}

#[test]
fn each_key_has_one_success_and_one_run_at_a_time_on_sqlite() {
    let place = Place::new();
    keys_under_kills(&place.url(), place.dir.path());
}

#[needs(postgres)]
#[test]
fn needs_postgres_each_key_has_one_success_and_one_run_at_a_time() {
    let postgres = Postgres::connect();
    let schema = format!("once_{}", std::process::id());
    postgres.run(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}"));
    let mark = if postgres.url.contains('?') { '&' } else { '?' };
    let url = format!("{}{mark}schema={schema}", postgres.url);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = tenure_postgres::PostgresConfig::from_url(&url).unwrap().open();
    runtime.block_on(store.migrate()).unwrap();
    keys_under_kills(&url, Place::new().dir.path());
    postgres.run(&format!("DROP SCHEMA {schema} CASCADE"));
}

#[needs(redis)]
#[test]
fn needs_redis_each_key_has_one_success_and_one_run_at_a_time() {
    let redis = servers::redis();
    let url = format!("{}?settle=off", redis.url());
    keys_under_kills(&url, Place::new().dir.path());
}
