//! The leader is killed while everybody asks: never two that say that they lead.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::event::{Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use tenure_core::Time;

use super::instance::Instance;
use crate::common::{eventually, now};
use crate::support::Place;
use tenure_testbed::http;

/// How often each instance is asked.
const EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
const ROUNDS: usize = 6;
/// How often somebody says that it leads before it is put to the test.
const HEARD: usize = 40;
/// How many ask without a pause meanwhile.
const HAMMERS: usize = 2;

/// Who asks without a pause.
#[derive(Clone, Copy, PartialEq)]
enum Load {
    /// Threads of this test.
    Threads,
    /// A program that does nothing else, for each instance.
    Wrk,
}

/// `wrk` on one instance. Dropping it ends it.
struct Wrk(Option<Child>);

impl Wrk {
    fn start(at: SocketAddr) -> Wrk {
        let mut command = Command::new("wrk");
        command.args(["--threads", "1", "--connections", "4", "--duration", "600s"]);
        command.arg(format!("http://{at}/leader")).stdout(Stdio::piped()).stderr(Stdio::null());
        Wrk(Some(command.spawn().expect("wrk is not installed (Debian package wrk)")))
    }

    /// Ends it; how many answers it had.
    fn end(mut self) -> usize {
        let child = self.0.take().unwrap();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let told = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        let (before, _) = told.split_once(" requests in ").unwrap_or_default();
        before.rsplit(char::is_whitespace).next().unwrap().parse().unwrap_or(0)
    }
}

impl Drop for Wrk {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// One 200.
#[derive(Clone, Copy, Debug)]
struct Yes {
    asked: Time,
    answered: Time,
    term: u64,
    remaining_ms: u64,
}

/// Asks one instance every 5 ms until told to end.
fn sample(at: SocketAddr, end: &AtomicBool, count: &AtomicUsize) -> Vec<Yes> {
    let mut answers = Vec::new();
    while !end.load(Ordering::Relaxed) {
        let asked = now();
        if let Ok(answer) = http::get(at, "/leader")
            && answer.status == 200
        {
            let json = answer.json();
            count.fetch_add(1, Ordering::Relaxed);
            answers.push(Yes {
                asked,
                answered: now(),
                term: json["term"].as_u64().unwrap(),
                remaining_ms: json["remaining_ms"].as_u64().unwrap(),
            });
        }
        let _ = poll(&mut [], Some(&EVERY));
    }
    answers
}

/// Asks everybody, again and again, without a pause. Who is frozen holds it up until it is killed.
fn hammer(everybody: &Mutex<Vec<SocketAddr>>, end: &AtomicBool) -> usize {
    let mut answered = 0;
    for number in 0.. {
        if end.load(Ordering::Relaxed) {
            break;
        }
        let at = {
            let everybody = everybody.lock().unwrap();
            everybody[number % everybody.len()]
        };
        answered += usize::from(http::get(at, "/leader").is_ok());
    }
    answered
}

#[test]
fn exactly_one_instance_answers_200_while_leaders_are_killed() {
    kill_leaders_under(Load::Threads);
}

#[needs(wrk)]
#[test]
fn needs_wrk_exactly_one_instance_answers_200_while_leaders_are_killed_under_wrk() {
    kill_leaders_under(Load::Wrk);
}

fn kill_leaders_under(load: Load) {
    let place = Place::new();
    let (end, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let start = |number: usize| {
        Instance::start(&place, &format!("web-{number}"), &["-e", "job", "--ttl", "3s"])
    };
    let mut instances: Vec<Instance> = (0..3).map(start).collect();
    let everybody = Mutex::new(instances.iter().map(|instance| instance.at).collect::<Vec<_>>());
    let mut frozen = BTreeSet::new();
    let all: Vec<Yes> = thread::scope(|scope| {
        let mut samplers: Vec<_> = Vec::new();
        let count_of = if load == Load::Threads { HAMMERS } else { 0 };
        let hammers: Vec<_> =
            (0..count_of).map(|_| scope.spawn(|| hammer(&everybody, &end))).collect();
        let wrk = |instance: &Instance| (load == Load::Wrk).then(|| Wrk::start(instance.at));
        let mut wrks: Vec<Wrk> = instances.iter().filter_map(wrk).collect();
        for instance in &instances {
            let (at, end, count) = (instance.at, &end, &count);
            samplers.push(scope.spawn(move || sample(at, end, count)));
        }
        for round in 0..ROUNDS {
            let before = count.load(Ordering::Relaxed);
            eventually("it was heard of", || {
                (count.load(Ordering::Relaxed) >= before + HEARD).then_some(())
            });
            let leader = eventually("somebody leads", || {
                let leads =
                    |i: &Instance| http::get(i.at, "/leader").is_ok_and(|a| a.status == 200);
                instances.iter().position(leads)
            });
            let gone = instances.remove(leader);
            if round % 3 == 1 {
                frozen.insert(gone.get("/leader").json()["term"].as_u64().unwrap());
            }
            // Killed, frozen until its trust is over, or told to end: in turns.
            match round % 3 {
                0 => gone.process.signal(Signal::KILL),
                1 => gone.process.signal(Signal::STOP),
                _ => gone.process.signal(Signal::TERM),
            }
            let other = eventually("another one leads", || {
                let leads =
                    |i: &&Instance| http::get(i.at, "/leader").is_ok_and(|a| a.status == 200);
                instances.iter().find(leads).map(|instance| instance.at)
            });
            assert_ne!(other, gone.at);
            if round % 3 == 1 {
                gone.process.signal(Signal::CONT);
                // It is asked at once when it wakes up, and must know better.
                let answer = http::get(gone.at, "/leader").unwrap();
                assert_eq!(answer.status, 503, "{answer:?}");
                gone.process.signal(Signal::KILL);
            }
            let fresh = start(10 + round);
            {
                let mut everybody = everybody.lock().unwrap();
                everybody.retain(|at| *at != gone.at);
                everybody.push(fresh.at);
            }
            let (at, end, count) = (fresh.at, &end, &count);
            samplers.push(scope.spawn(move || sample(at, end, count)));
            wrks.extend(wrk(&fresh));
            instances.push(fresh);
        }
        end.store(true, Ordering::Relaxed);
        let answered: usize = hammers.into_iter().map(|hammer| hammer.join().unwrap()).sum();
        let answered = answered + wrks.into_iter().map(Wrk::end).sum::<usize>();
        assert!(answered > 500, "there was no load: {answered}");
        samplers.into_iter().flat_map(|sampler| sampler.join().unwrap()).collect()
    });
    judge(all, &frozen);
}

/// Once somebody has heard of a term, nobody who asks later hears 200 of an older one. Whoever was
/// frozen could not be told, so nobody may lead before the trust has ended that it had told of; who
/// is dead or has resigned does nothing with what is left of it.
fn judge(mut all: Vec<Yes>, frozen: &BTreeSet<u64>) {
    assert!(all.len() > 100, "there is something to judge: {}", all.len());
    assert!(all.iter().all(|yes| yes.remaining_ms <= 3000), "trust never exceeds the ttl");
    all.sort_by_key(|yes| yes.asked);
    let terms: BTreeSet<u64> = all.iter().map(|yes| yes.term).collect();
    assert!(terms.len() > ROUNDS / 2, "several reigns were seen: {terms:?}");
    for yes in &all {
        let newer = all.iter().filter(|other| other.term > yes.term);
        let heard_before = newer.min_by_key(|other| other.answered);
        if let Some(newer) = heard_before {
            assert!(yes.asked <= newer.answered, "{yes:?} after {newer:?}");
            let trusted_until = yes.asked + Duration::from_millis(yes.remaining_ms);
            let lasts = frozen.contains(&yes.term) && trusted_until > newer.answered;
            assert!(!lasts, "the trust of {yes:?} lasts beyond {newer:?}");
        }
    }
}
