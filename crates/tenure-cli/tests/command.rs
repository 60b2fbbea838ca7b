//! The command: how it starts, what signals do to it, how it ends and what it leaves.
//!
//! These tests play tenure themselves, several at once in one process, as `tenure cron` will. They
//! make that process a subreaper that reaps every child it does not know, so they have a binary of
//! their own: elsewhere they would reap the children of other tests.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

#[path = "all/common/mod.rs"]
mod common;

use std::ffi::OsString;
use std::fs;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, kill_process, test_kill_process_group};
use tenure_cli::process::{CannotStart, GuardianHandle, Running, Signal, start};

use common::*;

fn handle() -> GuardianHandle {
    GuardianHandle::spawn_from(tenure()).unwrap()
}

fn argv(words: &[&str]) -> Vec<OsString> {
    words.iter().map(Into::into).collect()
}

/// Starts a shell script that finds its notes in `$NOTES`.
fn sh(script: &str, notes: &Notes, handle: &GuardianHandle) -> Running {
    start(&argv(&["sh", "-c", script]), [("NOTES", notes.path(""))], handle).unwrap()
}

fn refusal(words: &[&str]) -> CannotStart {
    // With a directory in it that may not be read, a missing command is one that may not be run.
    start(&argv(words), [("PATH", "/usr/bin:/bin")], &handle()).unwrap_err()
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it takes forever")
}

fn pid_of(number: u32) -> Pid {
    Pid::from_raw(number as i32).unwrap()
}

fn is_empty(group: u32) -> bool {
    test_kill_process_group(pid_of(group)) == Err(Errno::SRCH)
}

#[tokio::test]
async fn the_exit_code_is_the_commands() {
    for (script, expected) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
        // nix knows no name for it.
        ("kill -40 $$", 168),
    ] {
        let handle = handle();
        let running = sh(script, &Notes::new(), &handle);
        assert_eq!(soon(running.wait()).await, expected, "{script}");
        assert_eq!(soon(running.wait()).await, expected, "{script}, asked again");
        assert_eq!(soon(running.gone()).await, expected, "{script}, until all is gone");
        assert!(is_empty(handle.group()));
    }
}

#[tokio::test]
async fn a_missing_command_is_127_and_one_that_cannot_be_executed_126() {
    let notes = Notes::new();
    let plain = notes.path("plain");
    fs::write(&plain, "no program").unwrap();
    let missing = refusal(&["no-such-command-anywhere"]);
    assert_eq!(missing.code(), 127);
    assert_eq!(missing.to_string(), "command not found: no-such-command-anywhere");
    assert_eq!(refusal(&["/no/such/path"]).code(), 127);
    let denied = refusal(&[plain.to_str().unwrap()]);
    assert_eq!(denied.code(), 126);
    assert!(denied.to_string().contains("can't execute"), "{denied}");
    assert_eq!(refusal(&["/"]).code(), 126);
    assert_eq!(refusal(&[]).code(), 125);
}

#[tokio::test]
async fn a_guardian_is_good_for_one_command() {
    let handle = handle();
    let notes = Notes::new();
    let running = sh("exec sleep 99", &notes, &handle);
    let second = start(&argv(&["true"]), [("A", "b")], &handle).unwrap_err();
    assert_eq!(second.code(), 125);
    drop(running);
    assert!(is_empty(handle.group()));
    assert_eq!(start(&argv(&["true"]), [("A", "b")], &handle).unwrap_err().code(), 125);
}

#[tokio::test]
async fn the_command_joins_the_guardians_group_and_gets_the_variables() {
    let (handle, notes) = (handle(), Notes::new());
    let script = r#"ps -o pgid= -p $$ >"$NOTES/group"; echo "$EXTRA $1" >"$NOTES/words""#;
    let envs = [("NOTES", notes.path("").into_os_string()), ("EXTRA", "from tenure".into())];
    let argv = argv(&["sh", "-c", script, "sh", "an argument"]);
    let running = start(&argv, envs, &handle).unwrap();
    assert_eq!(soon(running.gone()).await, 0);
    assert_eq!(line_of(&notes.path("group")).trim(), handle.group().to_string());
    assert_eq!(line_of(&notes.path("words")), "from tenure an argument");
}

#[tokio::test]
async fn the_command_starts_with_no_signal_blocked_or_ignored() {
    let (handle, notes) = (handle(), Notes::new());
    let running = sh(r#"grep ^Sig /proc/self/status >"$NOTES/signals""#, &notes, &handle);
    assert_eq!(soon(running.gone()).await, 0);
    let signals = fs::read_to_string(notes.path("signals")).unwrap();
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        // The first 31: the C library does as it likes with 32 and 33.
        u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap() & 0x7fff_ffff
    };
    assert_eq!(field(&signals, "SigBlk"), 0);
    // What tenure's parent ignores stays ignored, save SIGPIPE, which only Rust itself ignores.
    assert_eq!(field(&signals, "SigIgn"), field(&own, "SigIgn") & !(1 << 12));
}

#[tokio::test]
async fn term_reaches_the_group_even_if_it_is_stopped() {
    let (handle, notes) = (handle(), Notes::new());
    let script = r#"trap 'exit 5' TERM; echo >"$NOTES/up"; kill -STOP $$; while :; do :; done"#;
    let running = sh(script, &notes, &handle);
    line_of(&notes.path("up"));
    eventually("the stop", || {
        let stats = processes();
        stats.into_iter().find(|stat| stat.pid == running.pid() && stat.state == "T")
    });
    running.signal_group(Signal::TERM).unwrap();
    assert_eq!(soon(running.gone()).await, 5);
    assert!(is_empty(handle.group()));
}

#[tokio::test]
async fn a_command_that_traps_term_is_killed() {
    let (handle, notes) = (handle(), Notes::new());
    let script = r#"trap 'echo >"$NOTES/term"' TERM; echo >"$NOTES/up"; while :; do sleep 9; done"#;
    let running = sh(script, &notes, &handle);
    line_of(&notes.path("up"));
    let all = watch_group(handle.group(), 3);
    running.signal_group(Signal::TERM).unwrap();
    line_of(&notes.path("term"));
    running.kill();
    assert_eq!(soon(running.gone()).await, 137);
    assert!(all.iter().all(|process| !process.is_alive()));
    assert!(is_empty(handle.group()));
}

#[tokio::test]
async fn a_signal_for_the_main_process_alone_spares_its_children() {
    let (handle, notes) = (handle(), Notes::new());
    let script = r#"trap 'echo >"$NOTES/usr1"' USR1; sleep 99 & echo $! >"$NOTES/child"
                    while :; do wait; done"#;
    let running = sh(script, &notes, &handle);
    let child = Watched::new(line_of(&notes.path("child")).parse().unwrap());
    running.signal_main(Signal::USR1).unwrap();
    line_of(&notes.path("usr1"));
    assert!(child.is_alive());
    running.kill();
    soon(running.gone()).await;
    assert!(!child.is_alive());
    assert_eq!(running.signal_main(Signal::USR1).unwrap_err().raw_os_error(), Some(3));
}

#[tokio::test]
async fn a_grandchild_that_outlives_the_main_process_is_killed() {
    let (handle, notes) = (handle(), Notes::new());
    let script = r#"sleep 99 & echo $! >"$NOTES/child"
                    until [ -e "$NOTES/go" ]; do sleep 0.01; done; exit 3"#;
    let running = sh(script, &notes, &handle);
    let child = Watched::new(line_of(&notes.path("child")).parse().unwrap());
    assert!(child.is_alive());
    fs::write(notes.path("go"), "").unwrap();
    assert_eq!(soon(running.gone()).await, 3);
    assert!(!child.is_alive());
    assert!(is_empty(handle.group()));
}

#[tokio::test]
async fn kill_0_in_the_command_does_not_end_the_guardian() {
    let (handle, notes) = (handle(), Notes::new());
    let script = r#"trap '' TERM HUP SEGV; kill 0; kill -HUP 0; kill -SEGV 0
                    echo >"$NOTES/up"; exec sleep 99"#;
    let running = sh(script, &notes, &handle);
    line_of(&notes.path("up"));
    let guardian = Watched::new(handle.pid());
    assert!(guardian.is_alive());
    // And it still does its work.
    handle.set_deadline(Some(now())).unwrap();
    assert_eq!(soon(running.wait()).await, 137);
    guardian.ends();
}

#[tokio::test]
async fn kill_9_0_in_the_command_is_noticed() {
    let (handle, notes) = (handle(), Notes::new());
    let running = sh("sleep 99 & kill -9 0", &notes, &handle);
    soon(handle.gone()).await;
    assert!(handle.set_deadline(Some(now())).is_err());
    assert_eq!(soon(running.gone()).await, 137);
    assert!(is_empty(handle.group()));
}

#[tokio::test]
async fn no_signal_but_kill_ends_the_guardian() {
    let handle = handle();
    let guardian = Watched::new(handle.pid());
    for signal in (1..32).filter_map(Signal::from_named_raw) {
        if ![Signal::KILL, Signal::STOP].contains(&signal) {
            kill_process(pid_of(handle.pid()), signal).unwrap();
        }
    }
    // It reads its orders after the signals, so it has survived them when it obeys.
    let deadline = now() + Duration::from_millis(100);
    handle.set_deadline(Some(deadline)).unwrap();
    guardian.ends();
    assert!(now() >= deadline, "a signal ended it");
}

#[tokio::test]
async fn the_death_of_the_guardian_is_told_only_if_it_is_unexpected() {
    let handle = handle();
    kill_process(pid_of(handle.pid()), Signal::KILL).unwrap();
    soon(handle.gone()).await;
    soon(handle.gone()).await;

    let handle = self::handle();
    let running = sh("exit 0", &Notes::new(), &handle);
    soon(running.gone()).await;
    let mut gone = pin!(handle.gone());
    let told = tokio::time::timeout(Duration::from_millis(20), &mut gone).await;
    assert!(told.is_err(), "its end was ours");
}

#[tokio::test]
async fn no_command_begins_without_its_guardian() {
    let (handle, notes) = (handle(), Notes::new());
    kill_process(pid_of(handle.pid()), Signal::KILL).unwrap();
    soon(handle.gone()).await;
    let touched = notes.path("touched");
    let words = argv(&["touch", touched.to_str().unwrap()]);
    assert_eq!(start(&words, [("A", "b")], &handle).unwrap_err().code(), 125);
    drop(handle);
    assert!(!touched.exists());
}

#[tokio::test]
async fn a_guardian_that_does_not_read_its_orders_is_broken_and_not_waited_for() {
    let handle = handle();
    kill_process(pid_of(handle.pid()), Signal::STOP).unwrap();
    let refused = (0..100_000).find_map(|_| handle.set_deadline(Some(now())).err());
    assert_eq!(refused.unwrap().kind(), std::io::ErrorKind::WouldBlock);
    let guardian = Watched::new(handle.pid());
    drop(handle);
    assert!(!guardian.is_alive());
}

#[tokio::test]
async fn dropping_either_handle_kills_the_group() {
    for drop_the_handle in [true, false] {
        let (handle, notes) = (handle(), Notes::new());
        let running = sh("sleep 99 & sleep 98 & wait", &notes, &handle);
        let group = handle.group();
        let all = watch_group(group, 4);
        if drop_the_handle {
            drop(handle);
            all.iter().for_each(Watched::ends);
            assert_eq!(soon(running.gone()).await, 137);
        } else {
            drop(running);
            all.iter().for_each(Watched::ends);
        }
        assert!(is_empty(group));
    }
}

#[tokio::test]
async fn a_main_process_that_leaves_the_group_is_still_signalled_and_killed() {
    let (handle, notes) = (handle(), Notes::new());
    let script = r#"trap 'echo >"$NOTES/term"' TERM; echo >"$NOTES/up"; while :; do sleep 9; done"#;
    let words = argv(&["setsid", "sh", "-c", script]);
    let running = start(&words, [("NOTES", notes.path(""))], &handle).unwrap();
    line_of(&notes.path("up"));
    assert!(processes().iter().any(|stat| stat.pid == running.pid() && stat.group == stat.pid));
    running.signal_group(Signal::TERM).unwrap();
    // The shell acts on it when its sleep, which is out of the group too, has ended.
    eventually("the shell's child", || {
        let stats = processes();
        let sleep = stats.into_iter().find(|stat| stat.parent == running.pid())?;
        kill_process(pid_of(sleep.pid), Signal::KILL).ok()
    });
    line_of(&notes.path("term"));
    running.kill();
    assert_eq!(soon(running.gone()).await, 137);
}

#[tokio::test]
async fn the_cgroup_is_removed_when_all_is_gone() {
    let (handle, notes) = (self::handle(), Notes::new());
    let script = r#"grep ^0:: /proc/self/cgroup >"$NOTES/cgroup"
                    for i in 1 2 3 4 5 6 7 8 9; do setsid sleep 99 & done; exec sleep 98"#;
    let running = sh(script, &notes, &handle);
    if !running.is_confined() {
        skipped("no cgroup can be made here (needs root and a cgroup2 mount)");
        return;
    }
    let cgroup = line_of(&notes.path("cgroup"));
    let name = cgroup.rsplit('/').next().unwrap();
    assert!(name.starts_with(&format!("tenure-{}-", std::process::id())), "{cgroup}");
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2")).unwrap();
    let mount = mount.split(' ').nth(1).unwrap();
    let dir = std::path::PathBuf::from(format!("{mount}{}", cgroup.strip_prefix("0::").unwrap()));
    assert!(dir.is_dir(), "{}", dir.display());
    // No process has this pid, it is beyond the kernel's limit.
    let left_behind = dir.with_file_name("tenure-2000000000-0");
    fs::create_dir(&left_behind).unwrap();
    running.kill();
    soon(running.gone()).await;
    assert!(!dir.exists(), "{}", dir.display());

    let handle = self::handle();
    let running = sh("exit 0", &notes, &handle);
    assert!(!left_behind.exists(), "the leftover of a dead tenure");
    soon(running.gone()).await;
}
