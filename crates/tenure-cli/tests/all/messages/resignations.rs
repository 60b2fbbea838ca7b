//! Commands of `tenure listen` while leaders are asked to resign, again and again: none is killed,
//! and every post is handled.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use rustix::process::Signal;

use crate::common::eventually;
use crate::support::{Place, Process};

/// Each steps back for a while once it was asked, and somebody is to lead meanwhile.
const LISTENERS: usize = 4;

/// So many resignations while posts wait, each with a command of a few milliseconds.
fn none_is_killed(resignations: usize) {
    let place = Place::new();
    let log = place.path("log");
    fs::write(&log, "").unwrap();
    // Begun and ended are one line each: a command that is killed leaves the first alone.
    let line = format!(
        "echo begun $TENURE_MESSAGE >> {log}; sleep 0.02; echo ended $TENURE_MESSAGE >> {log}"
    );
    let mut listeners: Vec<Process> = (0..LISTENERS)
        .map(|number| {
            let label = format!("listener-{number}");
            let args = ["listen", "shop", "orders", "--ttl", "3s", "--id", &label, "--"];
            place.spawn(&[&args[..], &["sh", "-c", &line]].concat())
        })
        .collect();
    let noted = |word: &str| -> Vec<u64> {
        let text = fs::read_to_string(&log).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix(word));
        lines.map(|number| number.trim().parse().unwrap()).collect()
    };
    let mut posts = 0;
    for resigned in 0..resignations {
        // Something waits whenever somebody is asked.
        if posts - noted("ended").iter().collect::<BTreeSet<_>>().len() < 20 {
            let mut child = place
                .command(&["post", "shop", "orders", "--lines"])
                .stdin(Stdio::piped())
                .spawn()
                .unwrap();
            child.stdin.take().unwrap().write_all("1\n".repeat(100).as_bytes()).unwrap();
            assert!(child.wait().unwrap().success());
            posts += 100;
        }
        let begun = noted("begun").len();
        eventually("work under the next leader", || (noted("begun").len() > begun).then_some(()));
        let asked = place.run(&["resign", "shop"]);
        assert_eq!(asked.code, 0, "resignation {resigned}: {asked:?}");
    }
    eventually("every post", || {
        let ended: BTreeSet<u64> = noted("ended").into_iter().collect();
        (ended.len() == posts).then_some(())
    });
    for listener in &mut listeners {
        listener.signal(Signal::TERM);
        assert_eq!(listener.code(), 0);
    }
    let (mut begun, mut ended) = (noted("begun"), noted("ended"));
    assert_eq!(ended.len(), posts, "a post was handled twice, and nobody was killed");
    begun.sort_unstable();
    ended.sort_unstable();
    assert_eq!(begun, ended, "a healthy command was killed");
}

#[test]
fn twenty_resignations_while_posts_wait_kill_no_command() {
    none_is_killed(20);
}

#[test]
#[ignore = "takes minutes"]
fn long_two_hundred_resignations_while_posts_wait_kill_no_command() {
    none_is_killed(200);
}
