//! The alert rules, judged by promtool over what real processes show: a fleet is scraped while
//! things happen to it. One round of scrapes is ten seconds to the rules, and half a second here.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use rusqlite::Connection;
use rustix::process::Signal;

use super::instance::Instance;
use super::rules::deploy;
use crate::common::{LIMIT, eventually, now};
use crate::support::Place;

const ROUND: Duration = Duration::from_millis(500);
/// How many rounds are two minutes to the rules, and a little more.
const TWO_MINUTES: usize = 14;

/// Instances that are scraped, and what they showed: a value for each round, or nothing.
struct Fleet {
    place: Place,
    members: BTreeMap<&'static str, Member>,
    series: BTreeMap<String, Vec<Option<f64>>>,
    rounds: usize,
}

struct Member {
    job: &'static str,
    args: Vec<String>,
    instance: Option<Instance>,
}

impl Fleet {
    fn new() -> Fleet {
        let (members, series) = (BTreeMap::new(), BTreeMap::new());
        Fleet { place: Place::new(), members, series, rounds: 0 }
    }

    fn start(&mut self, job: &'static str, name: &'static str, args: &[&str]) {
        let instance = Some(Instance::start(&self.place, name, args));
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.members.insert(name, Member { job, args, instance });
    }

    fn kill(&mut self, name: &str, signal: Signal) {
        let mut instance = self.members.get_mut(name).unwrap().instance.take().unwrap();
        instance.process.signal(signal);
        instance.process.code();
    }

    fn start_again(&mut self, name: &'static str) {
        let member = &self.members[name];
        let (job, args) = (member.job, member.args.clone());
        self.start(job, name, &args.iter().map(String::as_str).collect::<Vec<_>>());
    }

    fn at(&self, name: &str) -> &Instance {
        self.members[name].instance.as_ref().unwrap()
    }

    /// Asks everybody once.
    fn scrape(&mut self) {
        let began = now();
        for (name, member) in &self.members {
            let Some(instance) = &member.instance else { continue };
            let text = instance.get("/metrics").body;
            let labels = format!("job=\"{}\",instance=\"{name}\"", member.job);
            for (series, value) in text.lines().filter_map(sample) {
                let series = match series.split_once('{') {
                    Some((metric, rest)) => format!("{metric}{{{labels},{rest}"),
                    None => format!("{series}{{{labels}}}"),
                };
                let values = self.series.entry(series).or_default();
                values.resize(self.rounds, None);
                values.push(Some(value));
            }
        }
        self.rounds += 1;
        eventually("the next round", || (now() - began >= ROUND).then_some(()));
    }

    fn scrape_rounds(&mut self, count: usize) {
        (0..count).for_each(|_| self.scrape());
    }

    /// Scrapes on until this holds.
    fn until(&mut self, what: &str, holds: impl Fn(&Fleet) -> bool) {
        let began = now();
        loop {
            self.scrape();
            if holds(self) {
                return;
            }
            assert!(now() - began < LIMIT, "{what}");
        }
    }

    /// The last value of a metric of the class, in the sum of all that are there.
    fn sum(&self, metric: &str) -> f64 {
        let of =
            self.series.iter().filter(|(series, _)| series.starts_with(&format!("{metric}{{")));
        let last = of.filter_map(|(_, values)| *values.get(self.rounds.checked_sub(1)?)?);
        last.sum()
    }

    /// Has promtool judge which alerts have fired until now, of these or of all.
    fn fired(&self, of: &str, expected: &[&str]) {
        let rules = deploy("prometheus/rules.yml");
        let mut test = format!(
            "rule_files: [{}]\nevaluation_interval: 10s\ntests:\n  - interval: 10s\n    \
             input_series:\n",
            rules.display()
        );
        for (series, values) in &self.series {
            let values = written(values, self.rounds);
            writeln!(test, "      - series: '{series}'\n        values: '{values}'").unwrap();
        }
        let till = self.rounds * 10;
        let fired = format!("ALERTS{{alertstate=\"firing\",alertname=~\"{of}\"}}");
        write!(
            test,
            "    promql_expr_test:\n      - expr: 'count by (alertname, job, instance, key_class) \
             (count_over_time({fired}[1d]))'\n        eval_time: {till}s\n        exp_samples:\n"
        )
        .unwrap();
        for labels in expected {
            writeln!(test, "          - {{ labels: '{labels}', value: 1 }}").unwrap();
        }
        let file = self.place.path("rules.test.yml");
        std::fs::write(&file, &test).unwrap();
        let output = Command::new("promtool").args(["test", "rules", &file]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}\n{test}");
    }
}

/// The series and the value of a line of `/metrics`; buckets are left out.
fn sample(line: &str) -> Option<(&str, f64)> {
    let (series, value) = line.rsplit_once(' ').filter(|_| !line.starts_with('#'))?;
    let metric = series.split('{').next()?;
    let plain = !["_bucket", "_sum", "_count"].iter().any(|end| metric.ends_with(end));
    plain.then(|| Some((series, value.parse().ok()?)))?
}

/// As promtool wants it. Prometheus marks a series as stale when its scrape fails.
fn written(values: &[Option<f64>], rounds: usize) -> String {
    let mut text = Vec::with_capacity(rounds);
    let mut there = false;
    for round in 0..rounds {
        let value = values.get(round).copied().flatten();
        text.push(match value {
            Some(value) => value.to_string(),
            None if there => "stale".to_owned(),
            None => "_".to_owned(),
        });
        there = value.is_some();
    }
    text.join(" ")
}

fn elections(class: &str, count: usize) -> Vec<String> {
    (0..count).flat_map(|n| ["-e".to_owned(), format!("{class}:{n}")]).collect()
}

fn with<'a>(elections: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    elections.iter().map(String::as_str).chain(more.iter().copied()).collect()
}

/// Two instances, of which one leads all elections of the class `many`.
fn pair(count: usize) -> Fleet {
    let mut fleet = Fleet::new();
    let names = elections("many", count);
    let args = with(&names, &["--ttl", "3s"]);
    fleet.start("app", "a", &args);
    fleet.until("a leads all", |fleet| fleet.sum("leader_is_leader") == count as f64);
    fleet.start("app", "b", &args);
    fleet
}

#[needs(promtool)]
#[test]
fn needs_promtool_a_healthy_fleet_alarms_nobody() {
    const MANY: usize = 20;
    let mut fleet = pair(MANY);
    // Somebody who only looks, also at an election that nobody leads any more.
    fleet.place.run(&["run", "gone", "--", "true"]);
    fleet.start("watch", "w", &["--observe", "many:1", "--observe", "gone"]);
    // The widest margin that there may be.
    fleet.start(
        "wide",
        "m",
        &["-e", "wide", "--ttl", "3s", "--margin", "950ms", "--drain", "50ms"],
    );
    fleet.scrape_rounds(5);
    // All move at once, there and back and there, as in a deployment.
    for from in ["a", "b", "a"] {
        (0..MANY).for_each(|n| {
            fleet.at(from).resign(&format!("many:{n}"));
        });
        fleet.until("all are led again", |f| f.sum("leader_is_leader") == 1.0 + MANY as f64);
        fleet.scrape_rounds(4);
    }
    fleet.kill("b", Signal::TERM);
    fleet.until("all are led by the other", |f| f.sum("leader_is_leader") == 1.0 + MANY as f64);
    fleet.start_again("b");
    fleet.scrape_rounds(TWO_MINUTES);
    fleet.fired(".*", &[]);
}

#[needs(promtool)]
#[test]
fn needs_promtool_a_loop_of_crashes_is_told() {
    let mut fleet = Fleet::new();
    fleet.start("app", "a", &["-e", "solo", "--ttl", "1s"]);
    for _ in 0..5 {
        fleet.at("a").leads();
        // It is never seen before it leads.
        fleet.scrape_rounds(2);
        fleet.kill("a", Signal::KILL);
        fleet.start_again("a");
    }
    fleet.scrape();
    let expected = ["{alertname=\"TenureRestarts\",job=\"app\",instance=\"a\"}"];
    fleet.fired(".*", &expected);
}

/// To the election all is well: the process leads on.
#[needs(promtool)]
#[test]
fn needs_promtool_a_command_that_fails_in_a_loop_is_told() {
    let mut fleet = Fleet::new();
    let gate = fleet.place.path("gate");
    let script = format!("until [ -e {gate} ]; do sleep 0.1; done; exit 3");
    let instance = Some(Instance::run(&fleet.place, "job:1", &["sh", "-c", &script]));
    fleet.members.insert("a", Member { job: "app", args: Vec::new(), instance });
    fleet.until("it leads", |fleet| fleet.sum("leader_is_leader") == 1.0);
    fleet.scrape_rounds(2);
    assert_eq!(fleet.sum("leader_command_failures_total"), 0.0);
    let shown = |series: &String| series.starts_with("leader_command_failures_total{");
    assert!(fleet.series.keys().any(shown), "it is shown before there is anything to count");
    fleet.fired(".*", &[]);
    std::fs::write(&gate, "").unwrap();
    fleet.until("it failed", |fleet| fleet.sum("leader_command_failures_total") >= 4.0);
    fleet.scrape_rounds(2);
    let labels = "job=\"app\",instance=\"a\",key_class=\"job\"";
    fleet.fired(".*", &[&format!("{{alertname=\"TenureCommandFails\",{labels}}}")]);
}

#[needs(promtool)]
#[test]
fn needs_promtool_one_election_that_flaps_is_told_among_many() {
    let mut fleet = pair(20);
    fleet.scrape_rounds(2);
    for _ in 0..8 {
        let from = ["a", "b"].into_iter().find(|n| fleet.at(n).get("/leader/many:7").status == 200);
        fleet.at(from.expect("it is led")).resign("many:7");
        fleet.until("it is led again", |fleet| fleet.sum("leader_is_leader") == 20.0);
    }
    fleet.scrape_rounds(8);
    fleet.fired(".*", &["{alertname=\"TenureFlapping\",job=\"app\",key_class=\"many\"}"]);
}

#[needs(promtool)]
#[test]
fn needs_promtool_one_election_without_a_leader_is_told_among_many() {
    let mut fleet = pair(20);
    fleet.scrape_rounds(2);
    // Nobody can write the row of that election any more.
    let file = Connection::open(fleet.place.path("tenure.db")).unwrap();
    file.execute_batch(
        "UPDATE lease SET holder = NULL WHERE election = 'many:7';
         CREATE TRIGGER stuck BEFORE UPDATE ON lease WHEN NEW.election = 'many:7'
         BEGIN SELECT RAISE(IGNORE); END;",
    )
    .unwrap();
    fleet.until("nobody leads it", |fleet| fleet.sum("leader_is_leader") == 19.0);
    fleet.scrape_rounds(TWO_MINUTES);
    let known = "{alertname=\"TenureNoLeaderKnown\",job=\"app\",key_class=\"many\",instance=";
    fleet.fired(
        "TenureNoLeader.*|TenureFlapping|TenureRestarts",
        &[
            "{alertname=\"TenureNoLeader\",job=\"app\",key_class=\"many\"}",
            &format!("{known}\"a\"}}"),
            &format!("{known}\"b\"}}"),
        ],
    );
}

#[needs(promtool)]
#[test]
fn needs_promtool_a_store_that_is_away_is_told_before_leadership_is_lost() {
    let mut fleet = pair(3);
    fleet.scrape_rounds(2);
    let file = Connection::open(fleet.place.path("tenure.db")).unwrap();
    file.busy_timeout(LIMIT).unwrap();
    file.execute_batch("BEGIN EXCLUSIVE").unwrap();
    fleet.until("renewals are overdue", |fleet| fleet.sum("leader_renewals_overdue") == 3.0);
    assert_eq!(fleet.sum("leader_is_leader"), 3.0, "it leads still");
    fleet.fired(
        ".*",
        &["{alertname=\"TenureTrustRunsLow\",job=\"app\",key_class=\"many\",instance=\"a\"}"],
    );
    fleet.until("nobody leads", |fleet| fleet.sum("leader_is_leader") == 0.0);
    fleet.scrape_rounds(TWO_MINUTES);
    let expected = ["{alertname=\"TenureNoLeader\",job=\"app\",key_class=\"many\"}"];
    fleet.fired("TenureNoLeader", &expected);
    file.execute_batch("COMMIT").unwrap();
    fleet.until("all are led", |fleet| fleet.sum("leader_is_leader") == 3.0);
}
