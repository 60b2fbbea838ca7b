//! Posts while their leaders are being killed: none is lost, none comes out of order, and each is
//! acknowledged, as the store tells.

use std::collections::{BTreeSet, HashMap};
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{eventually, now};
use crate::servers::{self, Postgres};
use crate::support::{Place, Process, finish};

const CHANNELS: [&str; 2] = ["orders", "refunds"];
const LISTENERS: usize = 3;
const KILLS: usize = 8;

/// There is something to be done for each leader, and after the last kill.
const PARTS: usize = KILLS + 2;

/// How many go into one call of `tenure post`.
const BATCH: usize = 50;

/// One store and the processes on it.
struct Shop {
    place: Place,
    url: String,
    /// A lease that a killed leader leaves behind has to run out, where nobody sees it die.
    ttl: &'static str,
    listeners: HashMap<String, Process>,
    /// What those that were killed have printed.
    printed: Vec<String>,
    started: usize,
}

/// One line of a listener.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Handled {
    boot_ns: u64,
    channel: String,
    number: u64,
    attempt: u64,
    term: u64,
}

impl Shop {
    fn new(url: String, ttl: &'static str) -> Shop {
        let (listeners, printed) = (HashMap::new(), Vec::new());
        Shop { place: Place::new(), url, ttl, listeners, printed, started: 0 }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.command(args);
        command.env("TENURE_STORE", &self.url);
        command
    }

    fn start_one(&mut self) {
        self.started += 1;
        let label = format!("listener-{}", self.started);
        let mut args = vec!["listen", "shop"];
        args.extend(CHANNELS);
        args.extend(["--ttl", self.ttl, "--id", &label, "--tries", "100"]);
        let listener = Process::new(&mut self.command(&args));
        self.listeners.insert(label, listener);
    }

    fn status(&self) -> Value {
        let done = finish(&mut self.command(&["status", "--json", "shop"]));
        serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done:?}"))
    }

    /// Kills whoever leads, and starts another listener.
    fn kill_the_leader(&mut self) {
        let label = eventually("a leader", || {
            let label = self.status()["label"].as_str()?.to_owned();
            self.listeners.contains_key(&label).then_some(label)
        });
        let mut leader = self.listeners.remove(&label).unwrap();
        leader.signal(Signal::KILL);
        self.printed.extend(leader.rest().iter().cloned());
        self.start_one();
    }

    fn handled(&mut self) -> Vec<Handled> {
        for listener in self.listeners.values_mut() {
            listener.take_in();
        }
        let alive = self.listeners.values().flat_map(|listener| listener.seen());
        let mut handled: Vec<Handled> =
            self.printed.iter().chain(alive).filter_map(|line| read(line)).collect();
        handled.sort();
        handled
    }

    /// The terms under which something was handled.
    fn terms(&mut self) -> BTreeSet<u64> {
        self.handled().iter().map(|handled| handled.term).collect()
    }

    fn waits(&self) -> u64 {
        let status = self.status();
        let backlog = status["backlog"].as_array().unwrap();
        let counts = backlog.iter().flat_map(|one| [&one["waiting"], &one["dead"]]);
        counts.map(|count| count.as_u64().unwrap()).sum()
    }
}

/// A line that was cut off by the kill is none.
fn read(line: &str) -> Option<Handled> {
    let value: Value = serde_json::from_str(line).ok()?;
    Some(Handled {
        boot_ns: value["boot_ns"].as_u64()?,
        channel: value["channel"].as_str()?.to_owned(),
        number: value["payload"]["number"].as_u64()?,
        attempt: value["attempt"].as_u64()?,
        term: value["term"].as_u64()?,
    })
}

/// Posts so many to each channel, in order, by one process after the other; a part of them each
/// time it is told to.
fn post_all(mut command: impl FnMut(&[&str]) -> Command, each: usize, go: &mpsc::Receiver<()>) {
    let part = each.div_ceil(PARTS).next_multiple_of(BATCH);
    for first in (0..each).step_by(BATCH) {
        if first % part == 0 {
            go.recv().unwrap();
        }
        for channel in CHANNELS {
            let key = format!("batch-{first}");
            let args = ["post", "shop", channel, "--lines", "--key", &key];
            let lines: String = (first..(first + BATCH).min(each))
                .map(|number| format!("{{\"number\": {number}}}\n"))
                .collect();
            // A store that is busy for a moment is asked again; the keys make that safe.
            let tries = (0..20).any(|_| {
                let mut child = command(&args).stdin(Stdio::piped()).spawn().unwrap();
                child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
                child.wait().unwrap().success()
            });
            assert!(tries, "{key} could not be posted");
        }
    }
}

/// `each` posts to each channel while the leader is killed again and again.
fn posts_survive(mut shop: Shop, each: usize) {
    for _ in 0..LISTENERS {
        shop.start_one();
    }
    let (place, url) = (Place::new(), shop.url.clone());
    let (go, told) = mpsc::channel();
    let poster = thread::spawn(move || {
        let command = |args: &[&str]| {
            let mut command = place.command(args);
            command.env("TENURE_STORE", &url);
            command
        };
        post_all(command, each, &told);
    });
    for kill in 1..=KILLS {
        go.send(()).unwrap();
        // One that was killed before it worked would show nothing.
        until(&mut shop, "the work of the next leader", |shop| shop.terms().len() >= kill);
        shop.kill_the_leader();
    }
    for _ in KILLS..PARTS {
        go.send(()).unwrap();
    }
    poster.join().unwrap();
    until(&mut shop, "the last acknowledgement", |shop| shop.waits() == 0);
    check(&shop.handled(), each);
}

/// As `eventually`, for as long as something still moves.
#[track_caller]
fn until(shop: &mut Shop, what: &str, mut is_so: impl FnMut(&mut Shop) -> bool) {
    let (mut count, mut since) = (0, now());
    while !is_so(shop) {
        let handled = shop.handled().len();
        if handled > count {
            (count, since) = (handled, now());
        }
        assert!(
            now() - since < 3 * crate::common::LIMIT,
            "{handled} were handled, but not: {what}"
        );
        // tidy: sleep because other processes work meanwhile, and only a look tells how far.
        thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn check(handled: &[Handled], each: usize) {
    for channel in CHANNELS {
        let of_channel: Vec<&Handled> = handled.iter().filter(|h| h.channel == channel).collect();
        let (mut last, mut attempt, mut term) = (None, 0, 0);
        for one in of_channel {
            let again = last == Some(one.number);
            let next = last.map_or(0, |last| last + 1) == one.number;
            assert!(again || next, "after {last:?} came {one:?}");
            assert!(!again || one.attempt > attempt, "it came again, uncounted: {one:?}");
            assert!(one.term >= term, "an older term handled {one:?}");
            (last, attempt, term) = (Some(one.number), one.attempt, one.term);
        }
        assert_eq!(last, Some(each as u64 - 1), "some of {channel} are missing");
    }
    let terms: BTreeSet<u64> = handled.iter().map(|h| h.term).collect();
    assert!(terms.len() >= KILLS, "too few leaders were at work: {terms:?}");
}

fn on_sqlite(each: usize) {
    // It outlives the shop, for a look at it.
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("tenure.db");
    posts_survive(Shop::new(format!("sqlite:{}", file.display()), "3s"), each);
    let db = rusqlite::Connection::open(file).unwrap();
    let sql = "SELECT count(*) FROM message WHERE state = 1 AND term IS NOT NULL";
    let acknowledged: i64 = db.query_row(sql, (), |row| row.get(0)).unwrap();
    let all = (each * CHANNELS.len()) as i64;
    assert_eq!(acknowledged, all, "each was acknowledged, by one term");
}

fn on_postgres(scheme: &str, schema: &str, each: usize) {
    let server = Postgres::connect();
    server.run(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE"));
    let sign = if server.url.contains('?') { '&' } else { '?' };
    let (_, rest) = server.url.split_once("://").unwrap();
    let url = format!("{scheme}://{rest}{sign}schema={schema}");
    let migrates = format!("postgres://{rest}{sign}schema={schema}");
    let migrated = finish(Place::new().command(&["migrate"]).env("TENURE_STORE", migrates));
    assert_eq!(migrated.code, 0, "{migrated:?}");
    let shop = Shop::new(url, "1500ms");
    posts_survive(shop, each);
    let sql = format!(
        "SELECT count(*) FROM {schema}.tenure_message WHERE state = 1 AND term IS NOT NULL"
    );
    let all = (each * CHANNELS.len()) as i64;
    assert_eq!(server.number(&sql), all, "each was acknowledged, by one term");
    server.run(&format!("DROP SCHEMA {schema} CASCADE"));
}

fn on_redis(each: usize) {
    let server = servers::redis();
    let url = format!("{}?settle=off", server.url());
    posts_survive(Shop::new(url, "1500ms"), each);
    // An acknowledged post leaves the mark of its key behind, and nothing else.
    let marks = server.run(&["KEYS", "*:done:*"]);
    assert_eq!(marks, format!("*{}", each * CHANNELS.len()), "each was acknowledged");
}

#[test]
fn a_thousand_posts_survive_eight_kills_on_sqlite() {
    on_sqlite(500);
}

#[needs(postgres)]
#[test]
fn needs_postgres_a_thousand_posts_survive_eight_kills() {
    on_postgres("postgres", "kills_short", 500);
}

#[needs(postgres)]
#[test]
fn needs_postgres_a_thousand_posts_survive_eight_kills_with_advisory_locks() {
    on_postgres("postgres+advisory", "kills_advisory", 500);
}

#[needs(redis)]
#[test]
fn needs_redis_a_thousand_posts_survive_eight_kills() {
    on_redis(500);
}

#[needs(long)]
#[test]
fn long_ten_thousand_posts_survive_eight_kills_on_sqlite() {
    on_sqlite(5_000);
}

#[needs(long, postgres)]
#[test]
fn long_postgres_ten_thousand_posts_survive_eight_kills() {
    on_postgres("postgres", "kills_long", 5_000);
}

#[needs(long, postgres)]
#[test]
fn long_postgres_ten_thousand_posts_survive_eight_kills_with_advisory_locks() {
    on_postgres("postgres+advisory", "kills_advisory_long", 5_000);
}

#[needs(long, redis)]
#[test]
fn long_redis_ten_thousand_posts_survive_eight_kills() {
    on_redis(5_000);
}
