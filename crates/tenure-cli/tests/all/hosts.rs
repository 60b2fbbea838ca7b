//! Several hosts with a network between them that really breaks: each candidate in a network
//! namespace of its own, the store in another, and packets dropped by the kernel, both ways or one.
//! The candidates are those of `tenure drill`, so that they tell all that the checker wants.
#![cfg(all(feature = "postgres", feature = "redis"))]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tenure_core::{Name, Term, Time};
use tenure_history::{Event, History, Kind};
use tenure_testbed::process::free_port;

use crate::common::{eventually, tenure};
use crate::support::Process;

const ELECTION: &str = "several-hosts";
const TTL_MS: u64 = 1_000;
const HOSTS: usize = 3;

/// What the kernel of a host drops.
const PARTITIONS: [(&str, &[&str]); 3] =
    [("both ways", &["input", "output"]), ("replies", &["input"]), ("requests", &["output"])];

/// Namespaces of this test's own: one for the store, one for each host, a cable to each.
struct Net {
    hub: String,
    hosts: Vec<String>,
}

impl Net {
    /// Where it is not permitted, `cargo xtask test` lists the test as skipped and does not run it:
    /// a test that returns here would count as passed.
    fn new() -> Net {
        let name = |part: &str| format!("tenure-{}-{part}", std::process::id());
        let hosts = (0..HOSTS).map(|host| name(&host.to_string())).collect();
        let net = Net { hub: name("hub"), hosts };
        assert!(ip(&["netns", "add", &net.hub]), "`ip netns add` is not permitted here");
        assert!(inside(&net.hub, &["ip", "link", "set", "lo", "up"]).status().unwrap().success());
        for (host, name) in net.hosts.iter().enumerate() {
            assert!(ip(&["netns", "add", name]));
            let cable = format!("to{host}");
            let ends = ["type", "veth", "peer", "name", "eth0", "netns", name];
            let link = ["link", "add", &cable, "netns", &net.hub];
            assert!(ip(&[&link[..], &ends[..]].concat()));
            for (place, device, address) in [
                (&net.hub, cable.as_str(), format!("10.77.{host}.1/30")),
                (name, "eth0", format!("10.77.{host}.2/30")),
            ] {
                for words in [
                    &["ip", "address", "add", &address, "dev", device][..],
                    &["ip", "link", "set", device, "up"],
                ] {
                    assert!(inside(place, words).status().unwrap().success(), "{words:?}");
                }
            }
        }
        net
    }

    /// Has the kernel of this host drop what passes these hooks; nothing else if there are none.
    fn drop_at(&self, host: usize, hooks: &[&str]) {
        let mut rules = "add table inet cut\ndelete table inet cut\n".to_owned();
        if !hooks.is_empty() {
            rules += "add table inet cut\n";
        }
        for hook in hooks {
            rules += &format!(
                "add chain inet cut {hook} {{ type filter hook {hook} priority 0; policy drop; }}\n"
            );
        }
        let mut nft = inside(&self.hosts[host], &["nft", "-f", "-"]);
        let mut nft = nft.stdin(Stdio::piped()).spawn().unwrap();
        nft.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
        assert!(nft.wait().unwrap().success(), "{rules}");
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in self.hosts.iter().chain([&self.hub]) {
            ip(&["netns", "delete", name]);
        }
    }
}

fn ip(words: &[&str]) -> bool {
    Command::new("ip").args(words).status().is_ok_and(|status| status.success())
}

/// A command in a namespace. `ip` becomes the command, so it is our own child.
fn inside(namespace: &str, words: &[&str]) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).args(words);
    command
}

/// A candidate on this host.
fn candidate(net: &Net, host: usize, port: u16) -> Process {
    let brief = json!({
        "election": ELECTION,
        "ttl_ms": TTL_MS,
        "place": "/nonexistent",
        "parent": std::process::id(),
    });
    let words = ["__drill-candidate", &format!("host{host}"), &brief.to_string()];
    let mut command = inside(&net.hosts[host], &[tenure().to_str().unwrap()]);
    let url = format!("redis://10.77.{host}.1:{port}/0?settle={TTL_MS}ms");
    Process::new(command.args(words).env("TENURE_STORE", url).stdin(Stdio::null()))
}

/// The events of all hosts, by the host that told them.
fn told(hosts: &mut [Process]) -> Vec<(usize, Value)> {
    let mut all = Vec::new();
    for (host, process) in hosts.iter_mut().enumerate() {
        process.take_in();
        let events = process.seen().iter().filter_map(|line| serde_json::from_str(line).ok());
        all.extend(events.map(|event: Value| (host, event)));
    }
    all
}

fn is(event: &Value, name: &str, term: u64) -> bool {
    event["event"] == name && event["term"] == term
}

/// Waits until somebody leads a term above this one, and works.
fn leader(hosts: &mut [Process], above: u64) -> (usize, u64) {
    eventually("a leader that works", || {
        let all = told(hosts);
        let works = all.iter().filter(|(_, event)| event["event"] == "working");
        let latest = works.max_by_key(|(_, event)| event["term"].as_u64())?;
        let term = latest.1["term"].as_u64()?;
        let over = all.iter().any(|(_, event)| is(event, "draining", term));
        (term > above && !over).then_some((latest.0, term))
    })
}

#[needs(netns)]
#[test]
fn needs_netns_partitions_between_hosts_never_make_two_leaders() {
    let net = Net::new();
    let (program, port) = (tenure_testbed::redis::program(), free_port());
    let mut server = inside(&net.hub, &[program.to_str().unwrap()]);
    server.args(["--port", &port.to_string(), "--bind", "0.0.0.0", "--protected-mode", "no"]);
    server.args(["--save", ""]).stdout(Stdio::null());
    let _server = Process::new(&mut server);
    let mut hosts: Vec<Process> = (0..HOSTS).map(|host| candidate(&net, host, port)).collect();
    let mut last = 0;
    for (round, (shape, hooks)) in PARTITIONS.iter().cycle().take(9).enumerate() {
        let (host, term) = leader(&mut hosts, last);
        if round % 2 == 1 {
            // Not always at the same moment of a lease.
            eventually("a renewal", || {
                let all = told(&mut hosts);
                (all.iter().filter(|(_, event)| is(event, "trusts", term)).count() > 1)
                    .then_some(())
            });
        }
        net.drop_at(host, hooks);
        let (successor, next) = leader(&mut hosts, term);
        assert_ne!(successor, host, "{shape}: a host that is cut off can't be elected");
        net.drop_at(host, &[]);
        eventually("the end of the old reign", || {
            told(&mut hosts).iter().any(|(_, e)| is(e, "stepped_down", term)).then_some(())
        });
        last = next - 1;
    }
    let all = told(&mut hosts);
    drop(hosts);
    let history = history(&all);
    if let Err(violations) = history.check() {
        panic!("{violations:#?}");
    }
    let reigns = all.iter().filter(|(_, event)| event["event"] == "elected").count();
    assert!(reigns >= 10, "each partition has its successor: {reigns}");
    rows_never_go_back(&net, port, reigns);
}

/// What the checker of the test kit judges. All hosts share one kernel, and so one clock.
fn history(all: &[(usize, Value)]) -> History {
    let election = Name::new(ELECTION).unwrap();
    let time = |value: &Value| Time::from_nanos(value.as_u64().unwrap());
    let mut history = History::new();
    // The first sign of a reign, and how long it was trusted at first.
    let mut begins: BTreeMap<(&str, u64), (Time, Time)> = BTreeMap::new();
    for (_, event) in all {
        let Some(candidate) = event["candidate"].as_str() else { continue };
        let (Some(number), at) = (event["term"].as_u64(), time(&event["boot_ns"])) else {
            continue;
        };
        let Some(term) = Term::new(number) else { continue };
        let key = (candidate, number);
        let kind = match event["event"].as_str().unwrap() {
            "trusts" if !begins.contains_key(&key) => {
                begins.insert(key, (at, time(&event["until_ns"])));
                continue;
            }
            "trusts" => Kind::Extend { until: time(&event["until_ns"]) },
            "draining" => {
                let reason = event["reason"].as_str().unwrap().to_owned();
                let resigning = ["resigned", "asked"].contains(&reason.as_str());
                Kind::StepDown { reason, until: Time::MAX, resigning }
            }
            "stepped_down" => Kind::Released { term: Some(term) },
            "write_refused" => Kind::WriteFenced { term, accepted: false },
            _ => continue,
        };
        history.record(Event::new(at, &election, candidate, kind));
    }
    for ((candidate, term), (at, until)) in begins {
        let term = Term::new(term).unwrap();
        history.record(Event::new(at, &election, candidate, Kind::Lead { term, until }));
    }
    history
}

/// What was written while all of this went on: the fence let nothing stale pass.
fn rows_never_go_back(net: &Net, port: u16, reigns: usize) {
    let client = tenure_testbed::redis::program().with_file_name("redis-cli");
    let words = [client.to_str().unwrap(), "-p", &port.to_string(), "LRANGE", "written", "0", "-1"];
    let output = inside(&net.hub, &words).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let terms: Vec<u64> =
        text.lines().map(|line| line.split(' ').nth(2).unwrap().parse().unwrap()).collect();
    assert!(terms.len() >= reigns, "whoever leads writes: {text}");
    assert!(terms.is_sorted(), "a stale write passed the fence");
}
