//! The successor's command starts only when every process of the old group is gone.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use super::fleet::{CandidateEvent, Fleet, Role};
use crate::common::{Watched, eventually, line_of, processes, watch_group};

/// First of all it looks whether a process of the list still runs, with nothing but what is built
/// into the shell, so that it looks at once. A zombie runs nothing.
const SCRIPT: &str = r#"
    if [ -e "$NOTES/old" ]; then
        read -r old <"$NOTES/old"
        for pid in $old; do
            if { read -r _ _ state _ <"/proc/$pid/stat"; } 2>/dev/null && [ "$state" != Z ]; then
                alive="$alive $pid"
            fi
        done
    fi
    echo "alive:$alive" >"$NOTES/started.$TENURE_TERM"
    sleep 99 & wait
"#;

#[test]
fn a_killed_tenures_group_is_gone_before_the_next_command_starts() {
    let mut scene = Scene::new();
    scene.fleet.kill(scene.leader.process);
    assert_eq!(scene.seen_by_the_next_command(), "alive:", "of {}", scene.pids());
    assert!(scene.old.iter().all(|process| !process.is_alive()));
}

#[test]
fn a_frozen_tenures_group_is_gone_before_the_next_command_starts() {
    let mut scene = Scene::new();
    scene.fleet.freeze(scene.leader.process);
    assert_eq!(scene.seen_by_the_next_command(), "alive:", "of {}", scene.pids());
    assert!(scene.old.iter().all(|process| !process.is_alive()));
}

/// The control: with the guardian frozen too nobody is left to kill the group, and it is seen. So
/// the two tests above can fail.
#[test]
fn a_group_that_outlives_its_lease_is_seen_by_the_next_command() {
    let mut scene = Scene::new();
    scene.fleet.freeze(scene.leader.process);
    let guardian = Stopped::new(scene.guardian);
    assert_eq!(scene.seen_by_the_next_command(), format!("alive: {}", scene.pids()));
    // When it goes on, it does what it is there for, late.
    drop(guardian);
    scene.old.iter().for_each(Watched::ends);
}

/// Two candidates, one of which runs the command.
struct Scene {
    fleet: Fleet,
    leader: CandidateEvent,
    guardian: u32,
    /// All processes of the group that the leader runs.
    old: Vec<Watched>,
}

impl Scene {
    fn new() -> Scene {
        let directory = tempfile::tempdir().unwrap();
        let notes = directory.path().to_owned();
        let command = ["sh", "-c", SCRIPT].map(str::to_owned).to_vec();
        let envs = vec![("NOTES".to_owned(), notes.to_str().unwrap().to_owned())];
        let mut fleet = Fleet::new(directory, Role::Run { command, envs }, Vec::new());
        for _ in 0..2 {
            fleet.add();
        }
        let leader = fleet.leader();
        assert_eq!(started(&fleet, &leader), "alive:");
        let tenure = fleet.pid(leader.process);
        let guardian = eventually("the group of the command", || {
            let stats = processes();
            stats.iter().find(|stat| stat.parent == tenure).map(|stat| stat.group)
        });
        assert_ne!(guardian, tenure);
        // The guardian, the shell and its child.
        let scene = Scene { fleet, leader, guardian, old: watch_group(guardian, 3) };
        fs::write(notes.join("old"), scene.pids() + "\n").unwrap();
        scene
    }

    fn pids(&self) -> String {
        let pids: Vec<String> = self.old.iter().map(|process| process.pid.to_string()).collect();
        pids.join(" ")
    }

    /// Which of the old processes the successor's command saw when it started.
    fn seen_by_the_next_command(&mut self) -> String {
        let next = self.fleet.successor(&self.leader);
        started(&self.fleet, &next)
    }
}

fn started(fleet: &Fleet, leader: &CandidateEvent) -> String {
    line_of(&fleet.path(&format!("started.{}", leader.term)))
}

/// A process that is stopped, and goes on when this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(pid: u32) -> Stopped {
        let pid = Pid::from_raw(pid as i32).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _gone = kill_process(self.0, Signal::CONT);
    }
}
