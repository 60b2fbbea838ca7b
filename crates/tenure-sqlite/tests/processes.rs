//! Real processes: many at once, killed, stopped, not reaped, with children.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests")]

mod common;

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tenure_core::{Hint, Reply, Store};
use tenure_sqlite::{Guard, Host, SqliteConfig, SqliteStore};

use common::*;

/// Long enough that nothing runs out while a test is played.
const LONG: Duration = Duration::from_secs(600);

/// What the other processes do. As a test of its own it does nothing.
#[tokio::test]
async fn child() {
    let Some((role, path)) = role() else { return };
    let store = SqliteStore::open(path).unwrap();
    let mut me = Player::new(&store, "child", u128::from(std::process::id()));
    me.ttl = LONG;
    let (role, argument) = role.split_once(' ').unwrap_or((&role, ""));
    match role {
        "campaign" => {
            // Another process may be writing for longer than we wait: then we ask again.
            let said = loop {
                match me.acquire("e").await {
                    Reply::Granted(grant) => break format!("granted {}", grant.term),
                    Reply::Refused(_) => break "refused".to_owned(),
                    Reply::Unknown(error) if error.is_retryable() => {}
                    other => break format!("{other:?}"),
                }
            };
            say(said);
        }
        "hold" => {
            if let Ok(ms) = argument.parse() {
                me.ttl = Duration::from_millis(ms);
            }
            say(format!("{} {}", Host::detect().unwrap().now_ns(), {
                granted(me.acquire("e").await).term
            }));
        }
        "guarded" => {
            let mut ids = argument.split(' ').map(|id| id.parse().unwrap());
            let (pid, group) = (ids.next().unwrap(), ids.next());
            granted(me.acquire("e").await);
            store.attest(Guard { pid, group }).await.unwrap();
            say("attested");
        }
        other => panic!("no role {other}"),
    }
    while listen().is_some() {}
}

/// A process, the leader of a group of its own, that ends with the test and all its group.
struct Group(Child);

impl Group {
    /// Starts this script and waits until it has said something.
    fn start(script: &str) -> Group {
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0).stdout(Stdio::piped());
        let mut leader = command.spawn().unwrap();
        let mut said = [0];
        leader.stdout.take().unwrap().read_exact(&mut said).unwrap();
        Group(leader)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Ends the leader, and no other member.
    fn kill_leader(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn kill_all(&self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill_all();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn fifty_processes_start_together_on_a_missing_file_and_one_of_them_leads() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/er/tenure.db");
    let mut others: Vec<Other> = (0..50).map(|_| Other::start("campaign", &path)).collect();
    let mut said: Vec<String> = others.iter_mut().map(Other::hear).collect();
    said.sort();
    assert_eq!(said[0], "granted 1");
    assert!(said[1..].iter().all(|said| said == "refused"), "{said:?}");
}

#[tokio::test]
async fn the_successor_of_a_killed_leader_gets_a_hint_and_takes_over_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let mut leader = Other::start("hold", &path);
    leader.hear();

    let store = SqliteStore::open(&path).unwrap();
    let me = Player::new(&store, "me", 1);
    let mut hints = store.hints();
    let sight = refused(me.acquire("e").await);
    assert!(sight.lease.unwrap().remaining > LONG / 2);
    leader.kill();
    assert_eq!(next_hint(&mut hints).await, Some(Hint::Election(name("e"))));
    let grant = granted(me.acquire("e").await);
    assert_eq!((grant.term, grant.expired), (term(2), None));
}

#[tokio::test]
async fn a_leader_that_nobody_has_reaped_counts_as_dead() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let mut leader = Other::start("hold", &path);
    leader.hear();
    let store = SqliteStore::open(&path).unwrap();
    let me = Player::new(&store, "me", 1);
    let mut hints = store.hints();
    refused(me.acquire("e").await);
    leader.signal(Signal::KILL);
    next_hint(&mut hints).await;
    let stat = fs::read_to_string(format!("/proc/{}/stat", leader.pid())).unwrap();
    assert!(stat.contains(") Z "), "not a zombie: {stat}");
    assert_eq!(granted(me.acquire("e").await).term, term(2));
}

#[tokio::test]
async fn a_stopped_leader_keeps_its_lease_until_it_runs_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let ttl_ms = 400;
    let mut leader = Other::start(&format!("hold {ttl_ms}"), &path);
    let said = leader.hear();
    let sent_ns: i64 = said.split(' ').next().unwrap().parse().unwrap();
    leader.signal(Signal::STOP);

    let store = SqliteStore::open(&path).unwrap();
    let me = Player::new(&store, "me", 1);
    let host = Host::detect().unwrap();
    let grant = loop {
        match me.acquire("e").await {
            Reply::Refused(sight) => {
                let remaining = sight.lease.unwrap().remaining;
                tokio::time::timeout(remaining, std::future::pending::<()>()).await.unwrap_err();
            }
            reply => break granted(reply),
        }
    };
    assert!(host.now_ns() >= sent_ns + ttl_ms * 1_000_000, "taken from under a living leader");
    assert_eq!((grant.term, grant.expired), (term(2), Some(Duration::from_millis(400))));
}

#[tokio::test]
async fn a_killed_leader_is_succeeded_only_once_its_guardian_is_dead_and_its_group_empty() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let (mut guardian, mut command) =
        (Group::start("echo; exec sleep 600"), Group::start("sleep 600 & echo; wait"));
    let role = format!("guarded {} {}", guardian.pid(), command.pid());
    let mut leader = Other::start(&role, &path);
    leader.hear();
    let store = SqliteStore::open(&path).unwrap();
    let me = Player::new(&store, "me", 1);
    let mut hints = store.hints();

    leader.kill();
    refused(me.acquire("e").await);
    guardian.kill_leader();
    refused(me.acquire("e").await);
    command.kill_leader();
    refused(me.acquire("e").await); // the grandchild still runs
    command.kill_all();
    assert_eq!(next_hint(&mut hints).await, Some(Hint::Election(name("e"))));
    let grant = granted(me.acquire("e").await);
    assert_eq!((grant.term, grant.expired), (term(2), None));
}

#[tokio::test]
async fn a_later_guard_replaces_an_earlier_one_and_counts_for_later_leases() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let store = SqliteStore::open(&path).unwrap();
    let guards = [Group::start("echo; exec sleep 600"), Group::start("echo; exec sleep 600")];
    let error = store.attest(Guard { pid: 0, group: None }).await.unwrap_err();
    assert!(error.to_string().starts_with("sqlite: attest: there is no process 0"), "{error}");
    for guard in &guards {
        store.attest(Guard { pid: guard.pid(), group: None }).await.unwrap();
    }
    granted(Player::new(&store, "me", 1).acquire("e").await);
    let conn = rusqlite::Connection::open(&path).unwrap();
    let (rows, guard): (i64, u32) = conn
        .query_row("SELECT count(*), max(guard_pid) FROM witness", (), |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert_eq!((rows, guard), (1, guards[1].pid()));
}

#[tokio::test]
async fn a_leader_that_can_not_be_seen_is_waited_for_though_it_is_dead() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let mut leader = Other::start("hold", &path);
    leader.hear();
    leader.kill();
    for inode in [Some(1), None] {
        let host = Host::detect().unwrap().with_pid_namespace(inode);
        let elsewhere = SqliteConfig::new(&path).with_host(host).open().unwrap();
        refused(Player::new(&elsewhere, "me", 1).acquire("e").await);
    }
    let here = SqliteStore::open(&path).unwrap();
    granted(Player::new(&here, "me", 2).acquire("e").await);
}

#[tokio::test]
async fn a_handle_of_this_process_that_holds_a_lease_is_never_taken_for_dead() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let (one, two) = (SqliteStore::open(&path).unwrap(), SqliteStore::open(&path).unwrap());
    let (a, b) = (Player::new(&one, "a", 1), Player::new(&two, "b", 2));
    let mut hints = two.hints();
    let grant = granted(a.acquire("e").await);
    refused(b.acquire("e").await);
    granted(a.renew("e", grant.term).await);
    granted(a.release("e", grant.term).await);
    assert_eq!(next_hint(&mut hints).await, Some(Hint::Election(name("e"))));
    assert_eq!(granted(b.acquire("e").await).term, term(2));
    // The thread of a dropped handle ends, and what it held goes on.
    drop((two, b));
    let sight = refused(a.acquire("e").await);
    assert_eq!(sight.lease.unwrap().holder.label(), "b");
}

#[tokio::test]
async fn a_writer_that_is_stopped_in_the_middle_makes_outcomes_unknown_and_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let config = SqliteConfig::new(&path).with_busy_timeout(Duration::from_millis(20));
    let store = config.open().unwrap();
    let me = Player::new(&store, "me", 1);
    let grant = granted(me.acquire("e").await);
    let stuck = rusqlite::Connection::open(&path).unwrap();
    stuck.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = unknown(me.renew("e", grant.term).await);
    assert!(error.is_retryable(), "{error}");
    assert!(error.to_string().contains("has been writing to"), "{error}");
    assert!(error.to_string().starts_with("sqlite: renew: process"), "{error}");
    // Refusals and reads need no turn at writing.
    refused(Player::new(&store, "other", 2).acquire("e").await);
    stuck.execute_batch("ROLLBACK").unwrap();
    granted(me.renew("e", grant.term).await);
}

#[tokio::test]
async fn without_the_directory_of_hints_everything_still_works() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let store = SqliteStore::open(&path).unwrap();
    let _hints = store.hints();
    fs::remove_dir_all(directory.path().join("x.db-hints")).unwrap();
    let _more = store.hints();
    let me = Player::new(&store, "me", 1);
    let grant = granted(me.acquire("e").await);
    granted(me.release("e", grant.term).await);
    assert_eq!(granted(Player::new(&store, "other", 2).acquire("e").await).term, term(2));
}

#[tokio::test]
#[ignore = "needs root: makes a pid namespace"]
async fn needs_root_from_a_real_pid_namespace_nobody_is_proven_dead() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let mut leader = Other::start("hold", &path);
    leader.hear();
    leader.kill();
    // With a /proc of its own, and with that of another namespace, where pids mean others.
    for proc in [&["--mount-proc"][..], &[]] {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child"]).args(proc);
        command.arg(std::env::current_exe().unwrap());
        assert_eq!(Other::from_command(command, "campaign", &path).hear(), "refused");
    }
    assert_eq!(Other::start("campaign", &path).hear(), "granted 2");
}
