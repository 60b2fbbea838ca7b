//! `--observe`: metrics and health of a candidate that is no sidecar.

use std::fs;
use std::net::SocketAddr;

use rustix::process::Signal;

use crate::common::eventually;
use crate::support::{Place, Process};
use tenure_testbed::http;

fn address(process: &mut Process) -> SocketAddr {
    let line = process.line("metrics and health at http://");
    line.rsplit("http://").next().unwrap().parse().unwrap()
}

#[test]
fn a_candidate_serves_its_metrics_and_its_health_and_nothing_else() {
    let jobs = "[[job]]\nname = \"a\"\nschedule = \"@daily\"\ncommand = \"true\"\n";
    let place = Place::new();
    fs::write(place.path("jobs.toml"), jobs).unwrap();
    let file = place.path("jobs.toml");
    for args in [
        &["run", "job:1", "--observe", "127.0.0.1:0", "--", "sleep", "99"][..],
        &["cron", "--file", &file, "--election", "job:1", "--observe", "127.0.0.1:0"],
        &["listen", "job:1", "orders", "--observe", "127.0.0.1:0"],
    ] {
        let place = Place::new();
        let mut process = place.spawn(args);
        let at = address(&mut process);
        eventually("it leads", || {
            let metrics = http::get(at, "/metrics").ok()?;
            metrics.body.contains("leader_is_leader{key_class=\"job\"} 1").then_some(())
        });
        assert_eq!(http::get(at, "/healthz").unwrap().status, 200, "{args:?}");
        assert_eq!(http::get(at, "/readyz").unwrap().status, 200, "{args:?}");
        for path in ["/leader", "/leader/job:1", "/elections", "/events", "/"] {
            assert_eq!(http::get(at, path).unwrap().status, 404, "{args:?}: {path}");
        }
        process.signal(Signal::TERM);
        process.code();
    }
}

#[test]
fn an_address_that_others_reach_needs_a_token() {
    let place = Place::new();
    let args = ["run", "job", "--observe", "0.0.0.0:0", "--", "sleep", "99"];
    let done = place.run(&args);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.err.contains("TENURE_TOKEN"), "{done:?}");
    let mut command = place.command(&args);
    let mut process = Process::new(command.env("TENURE_TOKEN", "0123456789abcdef"));
    let at = SocketAddr::from(([127, 0, 0, 1], address(&mut process).port()));
    assert_eq!(http::get(at, "/metrics").unwrap().status, 401);
    assert_eq!(http::get(at, "/healthz").unwrap().status, 200);
}
