//! I8 with real processes: a sidecar that was told to end keeps its lease for those whom a 200 told
//! that it leads, until they are done or the drain is over.

use rustix::process::Signal;
use tenure_core::Time;

use super::instance::Instance;
use crate::common::{eventually, now};
use crate::support::Place;
use tenure_testbed::http;

/// Its drain of 10 s outlasts what is waited for here, and the limit of a test outlasts it.
const LONG: [&str; 4] = ["-e", "job", "--ttl", "60s"];

fn pair(place: &Place, more: &[&str]) -> (Instance, Instance) {
    let first = Instance::start(place, "web-1", more);
    eventually("web-1 leads", || {
        (http::request(first.at, "HEAD", "/leader", "", "").ok()?.status == 200).then_some(())
    });
    let second = Instance::start(place, "web-2", more);
    eventually("web-2 follows", || {
        (second.get("/leader").json()["label"] == "web-1").then_some(())
    });
    (first, second)
}

/// When somebody else was first seen to lead.
fn succeeded(second: &Instance) -> Time {
    second.leads();
    now()
}

#[test]
fn a_stopped_sidecar_hands_over_when_its_client_is_done_and_not_before() {
    let place = Place::new();
    let (mut first, second) = pair(&place, &LONG);
    assert_eq!(first.get("/leader").status, 200);
    let began = now();
    first.process.signal(Signal::TERM);
    first.process.line("the lease is kept until they POST done");
    for _ in 0..100 {
        assert_eq!(second.get("/leader").status, 503, "the client of the other is not done");
        assert_eq!(first.get("/leader").status, 503);
    }
    assert_eq!(place.status("job")["label"], "web-1", "its lease is held");
    let answer = first.post("/elections/job/done?term=1", "");
    assert_eq!((answer.status, &answer.json()["outcome"]), (200, &"done".into()));
    let kept = succeeded(&second) - began;
    assert!(kept.as_secs() < 10, "done is quicker than the drain: {kept:?}");
    assert_eq!(first.process.code(), 0);
}

#[test]
fn a_stopped_sidecar_hands_over_when_the_drain_is_over() {
    let place = Place::new();
    let (mut first, second) = pair(&place, &["-e", "job", "--ttl", "3s"]);
    assert_eq!(first.get("/leader").status, 200);
    let began = now();
    first.process.signal(Signal::TERM);
    let kept = succeeded(&second) - began;
    assert!(kept.as_millis() >= 500, "{kept:?}");
    assert_eq!(first.process.code(), 0);
}

#[test]
fn a_second_signal_does_not_wait_and_the_lease_runs_out_by_itself() {
    let place = Place::new();
    let (mut first, second) = pair(&place, &LONG);
    assert_eq!(first.get("/leader").status, 200);
    first.process.signal(Signal::TERM);
    first.process.line("the lease is kept");
    first.process.signal(Signal::TERM);
    assert_eq!(first.process.code(), 0);
    for _ in 0..20 {
        assert_eq!(second.get("/leader").status, 503, "nobody said that the work has ended");
    }
}

#[test]
fn a_sidecar_that_was_only_looked_at_or_need_not_wait_hands_over_at_once() {
    for (more, asked) in [(&LONG[..], false), (&[&LONG[..], &["--at-once"]].concat(), true)] {
        let place = Place::new();
        let (mut first, second) = pair(&place, more);
        for path in ["/", "/elections", "/elections/job", "/metrics", "/healthz"] {
            assert_eq!(first.get(path).status, 200, "{path}");
        }
        if asked {
            assert_eq!(first.get("/leader").status, 200);
        }
        let began = now();
        first.process.signal(Signal::TERM);
        let kept = succeeded(&second) - began;
        assert!(kept.as_secs() < 10, "the drain was not waited for: {kept:?}");
        assert_eq!(first.process.code(), 0);
    }
}
