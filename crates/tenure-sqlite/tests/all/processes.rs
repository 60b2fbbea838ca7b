//! Real processes: many at once, killed, stopped, not reaped, with children.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tenure_core::{Hint, ProcStat, Reply, Store};
use tenure_sqlite::{Host, SqliteConfig, SqliteStore};

use crate::common::*;

/// Long enough that nothing runs out while a test is played.
const LONG: Duration = Duration::from_secs(600);

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
    let sight = refused(me.acquire("e", 1).await);
    assert!(sight.lease.unwrap().remaining > LONG / 2);
    leader.kill();
    assert_eq!(next_hint(&mut hints).await, Some(Hint::Election(name("e"))));
    let grant = granted(me.acquire("e", 1).await);
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
    refused(me.acquire("e", 1).await);
    leader.signal(Signal::KILL);
    next_hint(&mut hints).await;
    let stat = fs::read(format!("/proc/{}/stat", leader.pid())).unwrap();
    assert_eq!(ProcStat::parse(&stat).map(|stat| stat.state), Some(b'Z'), "a zombie");
    assert_eq!(granted(me.acquire("e", 1).await).term, term(2));
}

/// Stops a process while it writes nothing: one that is stopped in the middle of a write holds up
/// everybody, which is a limit that `info()` tells.
fn stop_between_writes(other: &Other, path: &Path) {
    let is_free = || {
        let file = rusqlite::Connection::open(path)?;
        file.busy_timeout(Duration::ZERO)?;
        file.execute_batch("BEGIN IMMEDIATE; ROLLBACK")
    };
    loop {
        other.signal(Signal::STOP);
        if is_free().is_ok() {
            return;
        }
        other.signal(Signal::CONT);
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn a_stopped_leader_keeps_its_lease_until_it_runs_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let ttl_ms = 400;
    let mut leader = Other::start(&format!("hold {ttl_ms}"), &path);
    let said = leader.hear();
    let sent_ns: i64 = said.split(' ').next().unwrap().parse().unwrap();
    stop_between_writes(&leader, &path);

    let store = SqliteStore::open(&path).unwrap();
    let me = Player::new(&store, "me", 1);
    let host = Host::detect().unwrap();
    let grant = loop {
        match me.acquire("e", 1).await {
            Reply::Refused(sight) => {
                let remaining = sight.lease.unwrap().remaining;
                crate::common::real_wait(remaining).await;
            }
            reply => break granted(reply),
        }
    };
    assert!(host.now_ns() >= sent_ns + ttl_ms * 1_000_000, "taken from under a living leader");
    assert_eq!((grant.term, grant.expired), (term(2), Some(Duration::from_millis(400))));
}

/// D1: its death is no proof that its work is over.
#[tokio::test]
async fn a_killed_leader_that_declared_nothing_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let mut leader = Other::start("undeclared 1000", &path);
    let said = leader.hear();
    let sent_ns: i64 = said.split(' ').next().unwrap().parse().unwrap();
    let store = SqliteConfig::new(&path).childless().open().unwrap();
    let me = Player::new(&store, "me", 1);
    leader.kill();
    let grant = loop {
        match me.acquire("e", 1).await {
            Reply::Refused(sight) => {
                let remaining = sight.lease.unwrap().remaining;
                crate::common::real_wait(remaining).await;
            }
            reply => break granted(reply),
        }
    };
    let now_ns = Host::detect().unwrap().now_ns();
    assert!(now_ns >= sent_ns + 1_000_000_000, "taken over by proof of a death that is none");
    assert_eq!(grant.expired, Some(Duration::from_secs(1)));
    assert!(store.info().sees_death && !SqliteStore::open(&path).unwrap().info().sees_death);
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
        refused(Player::new(&elsewhere, "me", 1).acquire("e", 1).await);
    }
    let here = SqliteStore::open(&path).unwrap();
    granted(Player::new(&here, "me", 2).acquire("e", 1).await);
}

#[tokio::test]
async fn a_handle_of_this_process_that_holds_a_lease_is_never_taken_for_dead() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let (one, two) = (SqliteStore::open(&path).unwrap(), SqliteStore::open(&path).unwrap());
    let (a, b) = (Player::new(&one, "a", 1), Player::new(&two, "b", 2));
    let mut hints = two.hints();
    let grant = granted(a.acquire("e", 1).await);
    refused(b.acquire("e", 1).await);
    granted(a.renew("e", grant.term).await);
    granted(a.release("e", grant.term, 1).await);
    assert_eq!(next_hint(&mut hints).await, Some(Hint::Election(name("e"))));
    assert_eq!(granted(b.acquire("e", 1).await).term, term(2));
    // The thread of a dropped handle ends, and what it held goes on.
    drop((two, b));
    let sight = refused(a.acquire("e", 1).await);
    assert_eq!(sight.lease.unwrap().holder.label(), "b");
}

#[tokio::test]
async fn a_writer_that_is_stopped_in_the_middle_makes_outcomes_unknown_and_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.db");
    let config = SqliteConfig::new(&path).with_busy_timeout(Duration::from_millis(20));
    let store = config.open().unwrap();
    let me = Player::new(&store, "me", 1);
    let grant = granted(me.acquire("e", 1).await);
    let stuck = rusqlite::Connection::open(&path).unwrap();
    stuck.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = unknown(me.renew("e", grant.term).await);
    assert!(error.is_retryable(), "{error}");
    assert!(error.to_string().contains("has been writing to"), "{error}");
    assert!(error.to_string().starts_with("sqlite: renew: process"), "{error}");
    // Refusals and reads need no turn at writing.
    refused(Player::new(&store, "other", 2).acquire("e", 1).await);
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
    let grant = granted(me.acquire("e", 1).await);
    granted(me.release("e", grant.term, 1).await);
    assert_eq!(granted(Player::new(&store, "other", 2).acquire("e", 1).await).term, term(2));
}

#[needs(root)]
#[tokio::test]
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

/// As systemd-nspawn, LXC and Incus do it: the container has a boot id of its own, made up, on the
/// same kernel and the same clock (S2).
fn with_a_boot_id_of_its_own(directory: &std::path::Path) -> Command {
    let id = directory.join("boot_id");
    fs::write(&id, "0d9fa1ac-4b7e-4d0c-9d1b-000000000001\n").unwrap();
    let mut command = Command::new("unshare");
    let script = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
    command.args(["--mount", "sh", "-c", script]).arg(id).arg(std::env::current_exe().unwrap());
    command
}

#[needs(root)]
#[tokio::test]
async fn needs_root_a_boot_id_of_a_container_ends_no_lease_of_the_host_nor_the_other_way_round() {
    let directory = tempfile::tempdir().unwrap();
    for path in ["host.db", "container.db"].map(|name| directory.path().join(name)) {
        let inside = || with_a_boot_id_of_its_own(directory.path());
        let mut leader = match path.ends_with("host.db") {
            true => Other::start("hold", &path),
            false => Other::from_command(inside(), "hold", &path),
        };
        assert!(leader.hear().ends_with(" 1"));
        let command = match path.ends_with("host.db") {
            true => inside(),
            false => Command::new(std::env::current_exe().unwrap()),
        };
        let said = Other::from_command(command, "campaign", &path).hear();
        assert_eq!(said, "refused", "{}: two led at once", path.display());
    }
}
