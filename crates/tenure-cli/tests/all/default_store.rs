//! The store that nobody has named, and a file that may only be read.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::common::{LIMIT, tenure};
use crate::support::{Done, Place, finish, finish_within};

const NOBODY: u32 = 65_534;

/// `tenure` without a store, with its state in this place.
fn nameless(place: &Place, args: &[&str]) -> Command {
    let mut command = place.command(args);
    command.env_remove("TENURE_STORE").env("XDG_STATE_HOME", place.path("state"));
    command
}

#[test]
fn whoever_forbids_the_default_store_is_told_to_name_one() {
    let place = Place::new();
    for args in [
        &["run", "job", "--no-default-store", "--", "true"][..],
        &["--no-default-store", "status"],
        &["--no-default-store", "migrate"],
    ] {
        let done = finish(&mut nameless(&place, args));
        assert_eq!(done.code, 2, "{args:?}: {done:?}");
        assert!(done.err.contains("--store URL or set TENURE_STORE"), "{args:?}: {done:?}");
    }
    let by_variable =
        finish(nameless(&place, &["run", "job", "--", "true"]).env("TENURE_NO_DEFAULT_STORE", "1"));
    assert_eq!(by_variable.code, 2, "{by_variable:?}");
    assert!(!fs::exists(place.path("state")).unwrap(), "nothing is created");
    let named =
        finish(place.command(&["run", "job", "--", "true"]).env("TENURE_NO_DEFAULT_STORE", "1"));
    assert_eq!(named.code, 0, "{named:?}");
}

#[test]
fn in_a_container_the_default_store_is_said_to_be_the_containers_alone() {
    let place = Place::new();
    // As podman and systemd-nspawn say it to everybody inside.
    let mut command = nameless(&place, &["run", "job", "--", "true"]);
    let done = finish(command.env("container", "podman"));
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.err.contains("electing inside this container only"), "{done:?}");
    assert!(!done.err.contains("on this machine"), "{done:?}");
}

/// Copies `tenure`. Another program does it: what this process has open to write, a child that
/// another test starts meanwhile has open, too, and then nobody can run the copy.
fn copy_program(to: &str) {
    let copied = Command::new("cp").arg(tenure()).arg(to).status().unwrap();
    assert!(copied.success());
}

/// Runs `tenure` as a user whom permissions mean something to.
fn as_nobody(place: &Place, args: &[&str]) -> Done {
    let mut command = place.command(args);
    if rustix::process::geteuid().is_root() {
        // The binary may be where only root can reach it.
        let binary = place.path("tenure");
        copy_program(&binary);
        let mut other = Command::new(binary);
        other.args(args).env("TENURE_STORE", place.url()).uid(NOBODY).gid(NOBODY);
        command = other;
    }
    finish(&mut command)
}

#[test]
fn status_works_on_a_file_that_may_only_be_read() {
    let place = Place::new();
    let mut leader = place.spawn(&["campaign", "job", "--id", "a"]);
    leader.line("leading as term 1");
    let read_only = |mode: u32| {
        fs::set_permissions(place.dir.path(), Permissions::from_mode(mode)).unwrap();
        for suffix in ["", "-wal", "-shm"] {
            let path = place.path(&format!("tenure.db{suffix}"));
            if fs::exists(&path).unwrap() {
                fs::set_permissions(&path, Permissions::from_mode(mode & 0o444)).unwrap();
            }
        }
    };
    read_only(0o555);
    let done = as_nobody(&place, &["status", "job"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.out.contains("job") && done.out.contains(" a "), "{done:?}");
    // With nobody who has it open, there is no -wal either.
    fs::set_permissions(place.dir.path(), Permissions::from_mode(0o755)).unwrap();
    drop(leader);
    let ended = place.run(&["status", "--json"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    read_only(0o555);
    let done = as_nobody(&place, &["status", "--json"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.out.contains("\"last_term\":1"), "{done:?}");
    // A candidate is refused at once, and told why.
    let done = as_nobody(&place, &["run", "job", "--", "true"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.err.contains("can't be read and written by this user"), "{done:?}");
    if rustix::process::geteuid().is_root() {
        chown(place.dir.path(), Some(0), Some(0)).unwrap();
    }
    fs::set_permissions(place.dir.path(), Permissions::from_mode(0o755)).unwrap();
}

#[needs(root)]
#[test]
fn needs_root_commands_run_where_proc_hides_others() {
    let place = Place::new();
    fs::set_permissions(place.dir.path(), Permissions::from_mode(0o777)).unwrap();
    let binary = place.path("tenure");
    fs::copy(tenure(), &binary).unwrap();
    for options in ["hidepid=1", "hidepid=2", "hidepid=4", "subset=pid"] {
        let url = format!("sqlite:{}", place.path(&format!("{options}.db")));
        let script = format!(
            "mount -t proc -o {options} proc /proc && exec setpriv --reuid {NOBODY} --regid \
             {NOBODY} --clear-groups {binary} run job --once -- sh -c 'setsid sleep 99 & exit 7'"
        );
        for _ in 0..2 {
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", &script]).env("TENURE_STORE", &url);
            let done = finish_within(LIMIT, &mut command);
            assert_eq!(done.code, 7, "{options}: {done:?}");
        }
    }
}
