//! `tenure run`, with real processes.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, getpgid, kill_process, kill_process_group};

use crate::common::{self, Watched, eventually, now, watch_group};
use crate::support::{self, Place, Process};

/// What a candidate of these tests takes part with.
const TIMES: [&str; 2] = ["--ttl", "3s"];

fn run(place: &Place, id: &str, flags: &[&str], script: &str) -> Process {
    let mut args = vec!["run", "job", "--id", id];
    args.extend(TIMES);
    args.extend(flags);
    args.extend(["--", "sh", "-c", script]);
    place.spawn(&args)
}

fn group_of(pid: u32) -> u32 {
    getpgid(Pid::from_raw(pid as i32)).unwrap().as_raw_pid() as u32
}

/// Runs a command that lists those of the group before it that are alive when it starts.
fn successor(place: &Place, old: &[Watched]) -> Process {
    let pids: Vec<String> = old.iter().map(|process| process.pid.to_string()).collect();
    let script = format!(
        "for p in {}; do grep -Ehs '^State:.[^ZX]' /proc/$p/status && echo alive $p; done; \
         echo @next; sleep 99 & wait",
        pids.join(" ")
    );
    run(place, "b", &[], &script)
}

/// Starts a leader with a grandchild; returns it with all processes of its group.
fn leader_with_grandchild(place: &Place) -> (Process, Vec<Watched>) {
    let mut leader = run(place, "a", &[], "sleep 99 & echo @main $$; wait");
    let main = leader.number("@main");
    // The shell, the grandchild and the guardian.
    let group = watch_group(group_of(main), 3);
    (leader, group)
}

#[test]
fn after_kill_9_the_next_command_starts_when_the_whole_old_group_is_gone() {
    let place = Place::new();
    let (mut leader, group) = leader_with_grandchild(&place);
    let mut next = successor(&place, &group);
    next.line("following: a leads as term 1");
    leader.signal(Signal::KILL);
    next.line("@next");
    assert!(group.iter().all(|process| !process.is_alive()));
    assert!(next.seen().iter().all(|line| !line.starts_with("alive")), "{:#?}", next.seen());
    next.line("leading as term 2");
    assert_eq!(leader.code(), 137);
}

#[test]
fn nobody_takes_over_at_once_while_the_group_lives() {
    let place = Place::new();
    let (leader, group) = leader_with_grandchild(&place);
    let mut next = run(&place, "b", &["--json"], "sleep 99");
    next.event("leader_changed");
    let guardian = Pid::from_raw(group_of(group[0].pid) as i32).unwrap();
    // Nobody is left who could end the group: tenure is frozen when its guardian dies.
    leader.signal(Signal::STOP);
    let lease = place.status("job");
    kill_process(guardian, Signal::KILL).unwrap();
    leader.signal(Signal::KILL);
    let elected = next.event("elected");
    kill_process_group(guardian, Signal::KILL).unwrap();
    let ends =
        lease["boot_ns"].as_u64().unwrap() + lease["remaining_ms"].as_u64().unwrap() * 1_000_000;
    // The status was read a moment before it was stamped.
    let least = ends - 200_000_000;
    assert!(elected["boot_ns"].as_u64().unwrap() >= least, "{lease} but {elected}");
}

#[test]
fn a_frozen_tenure_is_succeeded_when_its_group_is_gone_and_never_leads_that_term_again() {
    let place = Place::new();
    let (mut leader, group) = leader_with_grandchild(&place);
    let mut next = successor(&place, &group);
    next.line("following: a leads as term 1");
    leader.signal(Signal::STOP);
    next.line("@next");
    assert!(group.iter().all(|process| !process.is_alive()));
    assert!(next.seen().iter().all(|line| !line.starts_with("alive")), "{:#?}", next.seen());
    leader.signal(Signal::CONT);
    leader.line("term 1 is over");
    leader.line("following: b leads as term 2");
    leader.signal(Signal::TERM);
    assert_eq!(leader.code(), 143);
    let terms = leader.seen().iter().filter(|line| line.contains("leading as term 1;")).count();
    assert_eq!(terms, 1, "{:#?}", leader.seen());
}

#[test]
fn the_command_knows_what_it_runs_for() {
    let place = Place::new();
    let script = "echo $TENURE_ELECTION/$TENURE_CANDIDATE/$TENURE_TERM/$TENURE_STORE";
    let mut process = run(&place, "web-1", &[], script);
    let line = process.line("job/web-1#");
    assert!(line.ends_with(&format!("/1/{}", place.url())), "{line}");
    process.line("leading as term 1; started `sh`");
    assert_eq!(process.code(), 0);
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    let place = Place::new();
    for (flags, script, code) in [
        (&["--once"][..], "exit 7", 7),
        (&["--on-exit", "stop"], "exit 8", 8),
        (&["--once"], "kill -9 $$", 137),
        (&["--once"], "kill -TERM $$", 143),
        (&[], "exit 0", 0),
        (&["--once"], "kill -9 0", 137),
    ] {
        let mut process = run(&place, "a", flags, script);
        assert_eq!(process.code(), code, "{script}: {:#?}", process.seen());
    }
    assert_eq!(place.status("job")["leader"], serde_json::Value::Null);
}

#[test]
fn a_command_that_cannot_be_executed_gives_leadership_back() {
    let place = Place::new();
    let plain = place.path("plain");
    fs::write(&plain, "echo never").unwrap();
    for (program, code, says) in [
        ("/no/such/command", 127, "command not found: /no/such/command"),
        (plain.as_str(), 126, "can't execute"),
        ("/", 126, "can't execute /"),
    ] {
        let done = place.run(&["run", "job", "--ttl", "60s", "--", program]);
        assert_eq!(done.code, code, "{done:?}");
        assert!(done.err.contains(says), "{done:?}");
        // Vacant, and not because it ran out.
        assert_eq!(place.run(&["status", "job"]).code, 1);
    }
}

#[test]
fn a_failing_command_is_started_again_under_the_same_term() {
    let place = Place::new();
    let count = place.path("count");
    let script = format!("echo x >> {count}; [ $(wc -l < {count}) = 2 ] || exit 3");
    let mut process = run(&place, "a", &[], &script);
    process.line("`sh` ended with exit code 3; starting it again in 1s");
    process.line("leading as term 1; started `sh` again");
    assert_eq!(process.code(), 0, "after exit code 0 it stops: {:#?}", process.seen());
}

#[test]
fn restart_starts_again_after_success_too() {
    let place = Place::new();
    let mut process = run(&place, "a", &["--on-exit", "restart"], "echo @run $$");
    let first = process.number("@run");
    process.line("`sh` is done; starting it again in 1s");
    assert_ne!(process.number("@run"), first);
    process.line("starting it again in 2s");
    process.signal(Signal::TERM);
    assert_eq!(process.code(), 143, "nothing ran: {:#?}", process.seen());
}

#[test]
fn resign_steps_back_and_campaigns_again() {
    let place = Place::new();
    let mut process = run(&place, "a", &["--on-exit", "resign"], "echo @run $TENURE_TERM");
    assert_eq!(process.number("@run"), 1);
    process.line("stepping back");
    assert_eq!(process.number("@run"), 2);
}

#[test]
fn once_says_75_if_leadership_was_lost_before_the_end() {
    let place = Place::new();
    let mut process = run(&place, "a", &["--once"], "echo @run; sleep 99");
    process.line("@run");
    let done = place.run(&["resign", "job"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(process.code(), 75, "{:#?}", process.seen());
}

/// Whether whoever started the tests has them ignore a signal.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (signal.as_raw() - 1)) != 0
}

#[test]
fn a_signal_is_passed_on_and_the_code_comes_back() {
    let place = Place::new();
    for (signal, script, code) in [
        (Signal::TERM, "trap 'exit 5' TERM; echo @up; while :; do sleep 0.02; done", 5),
        (Signal::INT, "trap 'exit 6' INT; echo @up; while :; do sleep 0.02; done", 6),
        (Signal::TERM, "echo @up; exec sleep 99", 143),
        (Signal::QUIT, "echo @up; exec sleep 99", 131),
    ] {
        // What a background job of a script ignores, its children do as well.
        if is_ignored(signal) {
            continue;
        }
        let mut process = run(&place, "a", &[], script);
        process.line("@up");
        process.signal(signal);
        assert_eq!(process.code(), code, "{script}: {:#?}", process.seen());
        assert_eq!(place.run(&["status", "job"]).code, 1, "the lease was given back");
    }
}

#[test]
fn other_signals_are_for_the_main_process_alone() {
    let place = Place::new();
    let script = "trap 'echo @got usr1' USR1; trap 'echo @got hup' HUP; \
                  trap 'echo @got usr2' USR2; echo @up; while :; do sleep 0.02; done";
    let mut process = run(&place, "a", &[], script);
    process.line("@up");
    for (signal, says) in
        [(Signal::USR1, "@got usr1"), (Signal::HUP, "@got hup"), (Signal::USR2, "@got usr2")]
    {
        process.signal(signal);
        process.line(says);
    }
}

#[test]
fn the_second_ctrl_c_kills_at_once() {
    let place = Place::new();
    // A drain of ten seconds: who waits for that has missed the second one.
    let args = ["run", "job", "--ttl", "60s", "--", "sh", "-c"];
    let script = "trap 'echo @deaf' INT; echo @up; while :; do sleep 0.02; done";
    let mut process = place.spawn(&[&args[..], &[script]].concat());
    process.line("@up");
    process.signal(Signal::INT);
    process.line("@deaf");
    let began = now();
    process.signal(Signal::INT);
    assert_eq!(process.code(), 137);
    assert!((now() - began).as_secs() < 8);
}

#[test]
fn a_deaf_command_is_killed_when_its_drain_is_over() {
    let place = Place::new();
    let script = "trap '' TERM; echo @up; while :; do sleep 0.02; done";
    let mut process = run(&place, "a", &[], script);
    process.line("@up");
    process.signal(Signal::TERM);
    assert_eq!(process.code(), 137, "{:#?}", process.seen());
    assert_eq!(place.run(&["status", "job"]).code, 1, "and the lease was given back");
}

#[test]
fn a_follower_withdraws() {
    let place = Place::new();
    let mut leader = run(&place, "a", &[], "echo @up; exec sleep 99");
    leader.line("@up");
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut follower = run(&place, "b", &[], "echo never");
        follower.line("following: a leads as term 1");
        follower.signal(signal);
        assert_eq!(follower.code(), code);
    }
}

#[test]
fn what_the_command_leaves_behind_is_gone_when_tenure_is() {
    let place = Place::new();
    let script = "(trap '' TERM; exec sleep 99) & echo @left; exit 0";
    let mut process = run(&place, "a", &[], script);
    process.line("@left");
    assert_eq!(process.code(), 0, "the pipe is closed only when nothing of the group is left");
}

#[test]
fn a_store_that_is_stuck_stops_the_command_only_when_trust_is_over() {
    let place = Place::new();
    let script = "trap 'echo @told; exit 4' TERM; echo @up; while :; do sleep 0.02; done";
    let mut process = run(&place, "a", &[], script);
    process.line("@up");
    let stuck = rusqlite::Connection::open(place.path("tenure.db")).unwrap();
    stuck.execute_batch("BEGIN IMMEDIATE").unwrap();
    process.line("a renewal failed, term 1 goes on");
    stuck.execute_batch("ROLLBACK").unwrap();
    process.line("the store is back");
    stuck.execute_batch("BEGIN IMMEDIATE").unwrap();
    process.line("stepping down from term 1 (the lease could not be renewed in time)");
    process.line("@told");
    let before = process.seen().iter().filter(|line| line.contains("stepping down")).count();
    assert_eq!(before, 1, "{:#?}", process.seen());
    stuck.execute_batch("ROLLBACK").unwrap();
    process.line("leading as term 2; started `sh` again");
}

#[test]
fn two_instances_of_one_label_are_reported() {
    let place = Place::new();
    let mut leader = run(&place, "same", &[], "echo @up; exec sleep 99");
    leader.line("@up");
    let mut other = run(&place, "same", &["--json"], "echo never");
    let event = other.event("duplicate_label");
    assert!(event["other"].as_str().unwrap().starts_with("same#"), "{event}");
    assert_ne!(event["other"], event["candidate"]);
}

#[test]
fn a_guardian_that_was_killed_takes_the_command_with_it() {
    let place = Place::new();
    let mut process = run(&place, "a", &[], "echo @main $$; exec sleep 99");
    let main = process.number("@main");
    let guardian = group_of(main);
    kill_process(Pid::from_raw(guardian as i32).unwrap(), Signal::KILL).unwrap();
    process.line("the guardian was killed");
    process.line("was ended by signal 9; starting it again");
    assert_ne!(group_of(process.number("@main")), guardian, "it has a new one");
}

#[test]
fn a_guardian_that_dies_while_following_is_replaced_before_the_command_starts() {
    let place = Place::new();
    let mut leader = run(&place, "a", &[], "echo @up; exec sleep 99");
    leader.line("@up");
    let mut follower = run(&place, "b", &[], "echo @main $$; exec sleep 99");
    follower.line("following");
    let guardian = eventually("the follower's guardian", || {
        let all = common::processes();
        all.into_iter().find(|p| p.parent == follower.pid() && p.group == p.pid).map(|p| p.pid)
    });
    let watched = Watched::new(guardian);
    kill_process(Pid::from_raw(guardian as i32).unwrap(), Signal::KILL).unwrap();
    watched.ends();
    leader.signal(Signal::TERM);
    let group = group_of(follower.number("@main"));
    assert_ne!(group, guardian);
}

/// As in most containers: the session and the group of whoever started us have no number here.
#[needs(root)]
#[test]
fn needs_root_a_command_runs_and_ends_in_a_pid_namespace_of_its_own() {
    let place = Place::new();
    let script = "sleep 99 & echo @main; exit 7";
    for round in 1..=3 {
        let inside = place.command(&["run", "job", "--once", "--", "sh", "-c", script]);
        let mut command = std::process::Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(inside.get_program());
        command.args(inside.get_args()).env("TENURE_STORE", place.url());
        let done = support::finish(&mut command);
        assert_eq!((done.code, done.out.as_str()), (7, "@main\n"), "{done:?}");
        assert!(done.err.contains(&format!("leading as term {round};")), "{done:?}");
    }
}

const NOBODY: u32 = 65_534;

/// A place of an ordinary user, and a script whose rest belongs to another user, so that KILL does
/// not reach it.
fn unkillable() -> (Place, String) {
    let place = Place::new();
    let owned = |path: &str, mode: u32, owner: u32| {
        // In this order: a change of hands takes the right to become somebody else away.
        chown(path, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    owned(&place.path(""), 0o755, NOBODY);
    for (name, program, mode, owner) in [
        ("tenure", common::tenure().to_string_lossy().into_owned(), 0o755, NOBODY),
        ("become-root", "/usr/bin/setpriv".to_owned(), 0o4755, 0),
    ] {
        fs::copy(program, place.path(name)).unwrap();
        owned(&place.path(name), mode, owner);
    }
    let script = format!(
        "echo @group $(cut -d' ' -f5 /proc/self/stat); \
         {become_root} --reuid=0 sh -c 'touch {up}; exec sleep 99' >&2 & \
         until test -e {up}; do sleep 0.01; done; exit 3",
        become_root = place.path("become-root"),
        up = place.path("up"),
    );
    (place, script)
}

fn as_nobody(place: &Place, args: &[&str]) -> Process {
    let mut command = Command::new(place.path("tenure"));
    command.uid(NOBODY).gid(NOBODY).env_clear().env("PATH", "/usr/bin:/bin");
    command.env("TENURE_STORE", place.url()).stdin(Stdio::null()).args(args);
    Process::new(&mut command)
}

/// D1: `cron` and `listen` drop a command at the end of the drain, dead or not.
#[needs(root)]
#[test]
fn needs_root_no_lease_is_given_back_under_a_rest_that_can_not_be_killed() {
    for which in ["cron", "listen"] {
        let (place, script) = unkillable();
        let schedule = "0 0 1 1 *";
        let of_which = if which == "cron" { schedule } else { "channel" };
        let args = [which, "job", of_which, "--id", "a", "--ttl", "3s", "--", "sh", "-c", &script];
        let mut leader = as_nobody(&place, &args);
        leader.line("leading as term 1");
        let begin: &[&str] = match which {
            "cron" => &["cron", "trigger", "job", "--timeout", "50ms"],
            _ => &["post", "job", "channel"],
        };
        as_nobody(&place, begin).code();
        let group = leader.number("@group");
        leader.line("the command was killed and is still there");
        let mut next =
            as_nobody(&place, &["campaign", "job", "--id", "b", "--json", "--ttl", "3s"]);
        next.event("leader_changed");
        let lease = place.status("job");
        leader.signal(Signal::TERM);
        let elected = next.event("elected");
        // The rest has the pipe of stderr, which tells when all has ended.
        kill_process_group(Pid::from_raw(group as i32).unwrap(), Signal::KILL).unwrap();
        let remaining_ns = lease["remaining_ms"].as_u64().unwrap() * 1_000_000;
        // The status was read a moment before it was stamped.
        let least = lease["boot_ns"].as_u64().unwrap() + remaining_ns - 200_000_000;
        assert!(elected["boot_ns"].as_u64().unwrap() >= least, "{which}: {lease}, {elected}");
        leader.code();
    }
}

/// What is left of the command belongs to another user, so that KILL does not reach it.
#[needs(root)]
#[test]
fn needs_root_no_lease_is_kept_for_a_rest_that_can_not_be_killed() {
    let (place, script) = unkillable();
    let args = ["run", "job", "--id", "a", "--ttl", "3s", "--", "sh", "-c", &script];
    let mut leader = as_nobody(&place, &args);
    let group = leader.number("@group");
    leader.line("the command was killed and is still there");
    let mut next = as_nobody(&place, &["campaign", "job", "--id", "b", "--ttl", "3s"]);
    next.line("leading as term 2");
    kill_process_group(Pid::from_raw(group as i32).unwrap(), Signal::KILL).unwrap();
    // With that the rest is gone, and it takes part again.
    leader.line("following: b leads as term 2");
}

#[needs(root)]
#[test]
fn needs_root_a_full_disk_ends_leadership_in_time_and_is_said() {
    let place = Place::new();
    let disk = place.path("disk");
    fs::create_dir(&disk).unwrap();
    let mounted = Mounted::tmpfs(&disk, "size=512k");
    let mut command = place.command(&["run", "job", "--id", "a", "--ttl", "2s", "--"]);
    command.args(["sh", "-c", "trap 'echo @told; exit 0' TERM; echo @up; sleep 99 & wait"]);
    let mut leader = Process::new(command.env("TENURE_STORE", format!("sqlite:{disk}/x.db")));
    leader.line("leading as term 1");
    leader.line("@up");
    fs::write(format!("{disk}/rest"), vec![1; 512 * 1024]).unwrap_err();
    leader.line("the disk is full");
    leader.line("stepping down from term 1 (the lease could not be renewed in time)");
    leader.line("@told");
    fs::remove_file(format!("{disk}/rest")).unwrap();
    leader.line("leading as term 2");
    drop((leader, mounted));
}

/// A file system that is there until this is dropped.
struct Mounted(String);

impl Mounted {
    fn tmpfs(path: &str, options: &str) -> Mounted {
        let mut mount = Command::new("mount");
        assert!(
            mount.args(["-t", "tmpfs", "-o", options, "tmpfs", path]).status().unwrap().success()
        );
        Mounted(path.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", &self.0]).status();
    }
}

/// D1: an ordinary user has no cgroup, and `setsid` with a double fork leaves every group. Whoever
/// is left behind by a kill of tenure has written its last word before the next command starts.
#[test]
fn what_hides_from_its_group_is_dead_before_the_next_command_starts() {
    let place = Place::new();
    let notes = place.path("notes");
    // One in a session of its own, one whose parents are all gone, and one whose parents live.
    let write = format!("while :; do echo a >>{notes}; done");
    let script = format!(
        "(setsid sh -c 'echo @one $$; {write}' &); \
         (setsid sh -c \"sh -c 'echo @two \\$\\$; {write}' & exit\" &); \
         (setsid sh -c \"sh -c 'echo @three \\$\\$; {write}' & wait\" &); sleep 99"
    );
    let mut leader = run_as_nobody(&place, "a", &script);
    let words = ["@one", "@two", "@three"];
    let hidden = words.map(|word| Watched::new(leader.number(word)));
    eventually("its first words", || fs::metadata(&notes).ok().filter(|file| file.len() > 0));
    let mut next = run_as_nobody(&place, "b", &format!("echo b >>{notes}; echo @next; sleep 99"));
    next.line("following: a leads as term 1");
    let lease = place.status("job");
    leader.signal(Signal::KILL);
    next.line("@next");
    let took_ns = now().as_nanos() - lease["boot_ns"].as_u64().unwrap();
    let alive: Vec<u32> = hidden.iter().filter(|one| one.is_alive()).map(|one| one.pid).collect();
    hidden.iter().for_each(Watched::ends);
    let text = fs::read_to_string(&notes).unwrap();
    let after = text.lines().skip_while(|line| *line != "b").filter(|line| *line == "a").count();
    assert_eq!((alive, after), (Vec::new(), 0), "the old command worked on beside its successor");
    // It did not have to wait for the lease to run out.
    assert!(took_ns / 1_000_000 < lease["remaining_ms"].as_u64().unwrap(), "{took_ns} ns, {lease}");
}

/// As a user without privileges, if we have any: no cgroup can be made then.
fn run_as_nobody(place: &Place, id: &str, script: &str) -> Process {
    let binary = place.path("tenure");
    let mut command = if rustix::process::geteuid().is_root() {
        if fs::metadata(&binary).is_err() {
            fs::copy(common::tenure(), &binary).unwrap();
        }
        chown(place.path(""), Some(NOBODY), Some(NOBODY)).unwrap();
        let mut command = Command::new(binary);
        command.uid(NOBODY).gid(NOBODY);
        command
    } else {
        Command::new(common::tenure())
    };
    command.env_clear().env("PATH", "/usr/bin:/bin").env("TENURE_STORE", place.url());
    command.args(["run", "job", "--id", id, "--ttl", "20s", "--", "sh", "-c", script]);
    Process::new(command.stdin(Stdio::null()))
}

/// D1, I8: what works because of a `campaign`, a `serve` or a `listen` that prints lives elsewhere,
/// and outlives it.
#[test]
fn a_killed_campaign_or_sidecar_is_not_succeeded_before_its_lease_has_run_out() {
    for (place, args) in [
        (Place::new(), &["campaign", "job", "--json"][..]),
        (Place::new(), &["serve", "-e", "job", "--listen", "127.0.0.1:0", "--json"]),
        (Place::new(), &["listen", "job", "channel", "--json"]),
    ] {
        let mut leader = place.spawn(&[args, &["--id", "a", "--ttl", "3s"]].concat());
        leader.event("elected");
        let mut next = place.spawn(&["campaign", "job", "--json", "--id", "b", "--ttl", "3s"]);
        next.event("leader_changed");
        leader.signal(Signal::STOP);
        let lease = place.status("job");
        leader.signal(Signal::KILL);
        let elected = next.event("elected");
        let remaining_ns = lease["remaining_ms"].as_u64().unwrap() * 1_000_000;
        // The status was read a moment before it was stamped.
        let least = lease["boot_ns"].as_u64().unwrap() + remaining_ns - 200_000_000;
        assert!(elected["boot_ns"].as_u64().unwrap() >= least, "{args:?}: {lease} but {elected}");
    }
}

#[test]
fn a_command_that_is_stopped_while_it_leads_is_told_of() {
    let place = Place::new();
    let mut leader = run(&place, "a", &[], "echo @main $$; kill -STOP $$; echo @on; sleep 99");
    let main = leader.number("@main");
    leader.line("the command was stopped (SIGSTOP)");
    kill_process(Pid::from_raw(main as i32).unwrap(), Signal::CONT).unwrap();
    leader.line("@on");
}

/// Of several commands at once the last guardian gives the lease back.
#[test]
fn a_killed_listener_is_succeeded_at_once_when_all_its_commands_are_dead() {
    let place = Place::new();
    let script = "echo @$TENURE_CHANNEL $$; (setsid sh -c 'echo @hidden $$; sleep 99' &); sleep 99";
    let listen = |id: &str, script: &str| {
        let args = ["listen", "job", "one", "two", "--id", id, "--ttl", "20s", "--", "sh", "-c"];
        place.spawn(&[&args[..], &[script]].concat())
    };
    let mut leader = listen("a", script);
    leader.line("leading as term 1");
    for channel in ["one", "two"] {
        assert_eq!(place.run(&["post", "job", channel, "{}"]).code, 0);
    }
    let words = ["@one", "@two", "@hidden", "@hidden"];
    let old = words.map(|word| Watched::new(leader.number(word)));
    let mut next = listen("b", "echo @again $TENURE_CHANNEL");
    next.line("following: a leads as term 1");
    let lease = place.status("job");
    leader.signal(Signal::KILL);
    next.line("leading as term 2");
    let took_ns = now().as_nanos() - lease["boot_ns"].as_u64().unwrap();
    assert!(old.iter().all(|process| !process.is_alive()));
    assert!(took_ns / 1_000_000 < lease["remaining_ms"].as_u64().unwrap(), "{took_ns} ns, {lease}");
    next.line("@again");
    next.line("@again");
}
