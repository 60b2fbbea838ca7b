//! The guardian: what happens to the command when tenure is killed or frozen (G1).
//!
//! Tenure is played by this very binary, started again with a plan in its environment: see
//! `stand_in`. So it can be killed and frozen while the test watches from outside.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, kill_process};
use tenure_cli::process::{GuardianHandle, start};
use tenure_core::Time;

use crate::common::*;

/// The shell script to run; without it, `stand_in` is no stand-in but a test that does nothing.
const SCRIPT: &str = "STAND_IN_SCRIPT";
/// Deadlines to set one after the other, in ms from now, or `none`. All but the first are set when
/// the command runs and the guardian's timer is armed for the one before.
const DEADLINES: &str = "STAND_IN_DEADLINES";
/// What to do when all is set up: one of [`Then`].
const THEN: &str = "STAND_IN_THEN";

/// What the stand-in does when all is set up.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    /// It waits for the end of the command.
    Wait,
    /// It stops itself.
    Freeze,
    /// It kills the command once that has left the group.
    KillLeaver,
}

/// Whether the command gets a cgroup of its own where the machine has one to give.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Cgroups {
    IfPossible,
    Never,
}

/// Tries a scenario with and without cgroups, at the same time.
fn both(scenario: impl Fn(Cgroups) + Sync) {
    std::thread::scope(|scope| {
        for cgroups in [Cgroups::IfPossible, Cgroups::Never] {
            let scenario = &scenario;
            scope.spawn(move || scenario(cgroups));
        }
    });
}

/// Plays tenure: a guardian, its deadlines, a command, and then what the plan says.
#[test]
fn stand_in() {
    let Ok(script) = std::env::var(SCRIPT) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let guardian = GuardianHandle::spawn_from(tenure()).unwrap();
        let plan = std::env::var(DEADLINES).unwrap();
        let mut plan = plan.split_terminator(',').map(|word| word.parse().ok());
        let set = |span: Option<u64>| {
            let deadline = span.map(|span| now() + Duration::from_millis(span));
            guardian.set_deadline(deadline).unwrap();
            deadline
        };
        let mut last = plan.next().and_then(set);
        let argv = ["sh", "-c", &script].map(OsString::from);
        let running = start(&argv, [("A", "b")], &guardian).unwrap();
        for span in plan {
            eventually("an armed timer", || is_armed(guardian.pid()).then_some(()));
            last = set(span);
        }
        let deadline = last.unwrap_or_default().as_nanos();
        let (group, confined) = (guardian.group(), running.is_confined());
        println!("\n@up {group} {} {deadline} {confined}", running.pid());
        let then = std::env::var(THEN).unwrap();
        if then == format!("{:?}", Then::Freeze) {
            kill_process(getpid(), Signal::STOP).unwrap();
        } else if then == format!("{:?}", Then::KillLeaver) {
            let has_left = |stat: &Stat| stat.pid == running.pid() && stat.group != group;
            eventually("a main process elsewhere", || processes().into_iter().find(has_left));
            running.kill();
        }
        let code = running.gone().await;
        println!("\n@code {code}");
    });
}

/// Whether a process has a timer on CLOCK_BOOTTIME that will go off.
fn is_armed(pid: u32) -> bool {
    let infos = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    infos.filter_map(|info| fs::read_to_string(info.path()).ok()).any(|info| {
        let has = |line: &str| info.lines().any(|other| other == line);
        has("clockid: 7") && has("settime flags: 01") && !has("it_value: (0, 0)")
    })
}

/// A stand-in that was started, and what it said of itself.
struct StandIn {
    process: Child,
    output: BufReader<ChildStdout>,
    heard: Vec<String>,
    group: u32,
    deadline: Time,
    confined: bool,
}

impl StandIn {
    fn start(cgroups: Cgroups, deadlines: &str, then: Then, script: &str) -> StandIn {
        StandIn::with_stdin(cgroups, deadlines, then, script, Stdio::null())
    }

    fn with_stdin(
        cgroups: Cgroups,
        deadlines: &str,
        then: Then,
        script: &str,
        stdin: Stdio,
    ) -> StandIn {
        let mut command = match cgroups {
            Cgroups::IfPossible => Command::new(std::env::current_exe().unwrap()),
            Cgroups::Never => without_cgroups(),
        };
        command.args(["guardian::stand_in", "--exact", "--nocapture"]);
        command.env(SCRIPT, script).env(DEADLINES, deadlines).env(THEN, format!("{then:?}"));
        let mut process = command.stdin(stdin).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut stand_in = StandIn {
            process,
            output,
            heard: Vec::new(),
            group: 0,
            deadline: Time::ZERO,
            confined: false,
        };
        let words = stand_in.told("@up");
        stand_in.group = words[0].parse().unwrap();
        stand_in.deadline = Time::from_nanos(words[2].parse().unwrap());
        stand_in.confined = words[3] == "true";
        assert!(cgroups != Cgroups::Never || !stand_in.confined);
        stand_in
    }

    /// The words after the given one, once the stand-in or its command has said it. Both talk at
    /// once, so what was said in between is kept.
    fn told(&mut self, word: &str) -> Vec<String> {
        loop {
            if let Some(rest) = self.heard.iter().find_map(|line| line.strip_prefix(word)) {
                return rest.split_whitespace().map(str::to_owned).collect();
            }
            let mut line = String::new();
            let read = self.output.read_line(&mut line).unwrap();
            assert!(read > 0, "nobody said {word}, only {:?}", self.heard);
            self.heard.push(line);
        }
    }

    fn kill_9(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn is_frozen(&self) -> bool {
        let pid = self.process.id();
        processes().iter().any(|stat| stat.pid == pid && stat.state == "T")
    }

    fn freezes(&self) {
        eventually("the freeze", || self.is_frozen().then_some(()));
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts this binary where it sees no cgroup2, if it could use one otherwise.
fn without_cgroups() -> Command {
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    let works = Command::new("unshare").args(["-m", "true"]).stderr(Stdio::null()).status();
    if !works.is_ok_and(|status| status.success()) {
        // A user that may not do that may not make a cgroup either; `StandIn` checks.
        return Command::new(own);
    }
    let hide = "umount -l $(awk '$3 == \"cgroup2\" { print $2 }' /proc/mounts) || :; exec \"$@\"";
    command.args(["-m", "sh", "-c", hide, "sh"]).arg(own);
    command
}

/// A shell with a child and a grandchild: with the guardian, five processes of one group.
const FAMILY: &str = "sleep 99 & sh -c 'sleep 98 & wait' & wait";

#[test]
fn all_are_killed_when_tenure_is_killed() {
    both(|cgroups| {
        let mut stand_in = StandIn::start(cgroups, "", Then::Wait, FAMILY);
        let all = watch_group(stand_in.group, 5);
        stand_in.kill_9();
        all.iter().for_each(Watched::ends);
    });
}

#[test]
fn all_are_killed_at_the_deadline_when_tenure_is_frozen_and_not_before() {
    both(|cgroups| {
        let stand_in = StandIn::start(cgroups, "1500", Then::Freeze, FAMILY);
        let all = watch_group(stand_in.group, 5);
        stand_in.freezes();
        for process in &all {
            process.ends();
            assert!(now() >= stand_in.deadline, "{cgroups:?}: killed too early");
        }
        let late = now() - stand_in.deadline;
        assert!(late < Duration::from_secs(5), "{cgroups:?}: killed {late:?} too late");
        assert!(stand_in.is_frozen());
    });
}

#[test]
fn the_latest_deadline_holds() {
    let holds = |deadlines: &str| {
        let stand_in = StandIn::start(Cgroups::IfPossible, deadlines, Then::Freeze, FAMILY);
        let all = watch_group(stand_in.group, 5);
        for process in &all {
            process.ends();
            assert!(now() >= stand_in.deadline, "{deadlines}: killed too early");
        }
        let late = now() - stand_in.deadline;
        assert!(late < Duration::from_secs(5), "{deadlines}: killed {late:?} too late");
    };
    std::thread::scope(|scope| {
        for deadlines in ["1500,2500", "60000,1500"] {
            scope.spawn(move || holds(deadlines));
        }
    });
}

#[test]
fn a_deadline_that_was_taken_back_kills_nobody() {
    let mut stand_in = StandIn::start(Cgroups::IfPossible, "1500,none", Then::Freeze, FAMILY);
    let all = watch_group(stand_in.group, 5);
    stand_in.freezes();
    assert!(!all[0].ends_within(Duration::from_millis(2000)));
    assert!(all.iter().all(Watched::is_alive));
    stand_in.kill_9();
    all.iter().for_each(Watched::ends);
}

#[test]
fn a_frozen_tenure_that_wakes_late_finds_its_command_dead() {
    let mut stand_in = StandIn::start(Cgroups::IfPossible, "1500", Then::Freeze, FAMILY);
    let all = watch_group(stand_in.group, 5);
    all.iter().for_each(Watched::ends);
    kill_process(Pid::from_child(&stand_in.process), Signal::CONT).unwrap();
    assert_eq!(stand_in.told("@code"), ["137"]);
}

#[test]
fn a_stopped_command_is_killed_too() {
    both(|cgroups| {
        let script = "sleep 99 & kill -STOP $! $$; wait";
        let stand_in = StandIn::start(cgroups, "1500", Then::Freeze, script);
        let all = watch_group(stand_in.group, 3);
        all.iter().for_each(Watched::ends);
        assert!(now() >= stand_in.deadline);
    });
}

#[test]
fn a_main_process_that_left_the_group_is_killed_when_tenure_is() {
    both(|cgroups| {
        let script = "exec setsid sh -c 'echo @left $$; exec sleep 99'";
        let mut stand_in = StandIn::start(cgroups, "", Then::Wait, script);
        let main = Watched::new(stand_in.told("@left")[0].parse().unwrap());
        let guardian = Watched::new(stand_in.group);
        assert!(processes().iter().any(|stat| stat.pid == main.pid && stat.group == main.pid));
        stand_in.kill_9();
        main.ends();
        guardian.ends();
    });
}

#[test]
fn a_main_process_that_left_the_group_is_killed_by_tenure() {
    both(|cgroups| {
        let script = "exec setsid sleep 99";
        let mut stand_in = StandIn::start(cgroups, "", Then::KillLeaver, script);
        assert_eq!(stand_in.told("@code"), ["137"]);
    });
}

#[test]
fn a_daemon_that_left_the_group_is_killed_where_there_are_cgroups() {
    // By the guardian, and by tenure itself once the main process has ended.
    for kill_9 in [true, false] {
        let script = "setsid sh -c 'echo @daemon $$; exec sleep 99' & read x; exit 4";
        let (ours, theirs) = std::io::pipe().map(|(read, write)| (write, read)).unwrap();
        let stdin = Stdio::from(theirs);
        let mut stand_in = StandIn::with_stdin(Cgroups::IfPossible, "", Then::Wait, script, stdin);
        if !stand_in.confined {
            skipped("no cgroup can be made here (needs root and a cgroup2 mount)");
            return;
        }
        let daemon = Watched::new(stand_in.told("@daemon")[0].parse().unwrap());
        assert!(processes().iter().any(|stat| stat.pid == daemon.pid && stat.group == daemon.pid));
        if kill_9 {
            stand_in.kill_9();
        } else {
            drop(ours);
            assert_eq!(stand_in.told("@code"), ["4"]);
        }
        daemon.ends();
    }
}

#[test]
fn orphans_are_reaped_while_the_command_runs() {
    let script = "for i in 1 2 3 4; do (setsid true &); (true &); (sh -c 'kill -40 $$' &); done
                  echo @forked; read x";
    let (ours, theirs) = std::io::pipe().map(|(read, write)| (write, read)).unwrap();
    let stdin = Stdio::from(theirs);
    let mut stand_in = StandIn::with_stdin(Cgroups::IfPossible, "", Then::Wait, script, stdin);
    let (tenure, guardian) = (stand_in.process.id(), stand_in.group);
    stand_in.told("@forked");
    eventually("only the guardian and the command are left", || {
        let stats = processes();
        let children = |of: u32| stats.iter().filter(|stat| stat.parent == of).count();
        (children(tenure) == 1 && children(guardian) == 1).then_some(())
    });
    drop(ours);
    assert_eq!(stand_in.told("@code"), ["1"]);
}

#[test]
fn the_guardian_keeps_no_output_and_no_directory_open() {
    let stand_in = StandIn::start(Cgroups::IfPossible, "", Then::Wait, FAMILY);
    let guardian = format!("/proc/{}", stand_in.group);
    for fd in [1, 2] {
        let target = fs::read_link(format!("{guardian}/fd/{fd}")).unwrap();
        assert_eq!(target.to_str(), Some("/dev/null"));
    }
    assert_eq!(fs::read_link(format!("{guardian}/cwd")).unwrap().to_str(), Some("/"));
    // `pkill -9 tenure` must not take it.
    eventually("its name", || {
        let name = fs::read_to_string(format!("{guardian}/comm")).unwrap();
        (name == "guardian\n").then_some(())
    });
}

#[test]
fn the_command_reads_tenures_stdin() {
    let (mut ours, theirs) = std::io::pipe().map(|(read, write)| (write, read)).unwrap();
    let stdin = Stdio::from(theirs);
    let script = "read line; echo @read $line";
    let mut stand_in = StandIn::with_stdin(Cgroups::IfPossible, "", Then::Wait, script, stdin);
    ours.write_all(b"over the pipe\n").unwrap();
    assert_eq!(stand_in.told("@read"), ["over", "the", "pipe"]);
    assert_eq!(stand_in.told("@code"), ["0"]);
}

#[test]
fn the_command_gets_dev_null_instead_of_a_terminal() {
    use rustix::fs::{Mode, OFlags, open};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs: OwnedFd = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let script = "echo @stdin $(readlink /proc/$$/fd/0)";
    let stdin = Stdio::from(theirs);
    let mut stand_in = StandIn::with_stdin(Cgroups::IfPossible, "", Then::Wait, script, stdin);
    assert_eq!(stand_in.told("@stdin"), ["/dev/null"]);
    assert_eq!(stand_in.told("@code"), ["0"]);
}

#[test]
fn the_hidden_parts_refuse_to_be_called_by_hand() {
    for (part, words) in [("__guardian", "leads a process group"), ("__exec", "socket")] {
        let output = Command::new(tenure()).arg(part).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with("tenure: only tenure itself"), "{said}");
        assert!(said.contains(words), "{said}");
    }
    let output = Command::new(tenure()).args(["__exec", "true"]).stdin(Stdio::null()).output();
    assert_eq!(output.unwrap().status.code(), Some(125));
}
