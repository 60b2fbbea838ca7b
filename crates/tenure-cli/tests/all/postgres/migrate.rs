//! `tenure migrate`, and what the other commands say before it was run.

use rustix::process::Signal;
use serde_json::Value;

use super::database::{Database, Psql};
use crate::support::finish;

#[needs(postgres)]
#[test]
fn needs_postgres_commands_ask_for_a_migration_and_work_after_it() {
    let database = Database::empty();
    for args in [
        &["status"][..],
        &["status", "job"],
        &["resign", "job"],
        &["watch", "job"],
        &["campaign", "job"],
        &["run", "job", "--", "echo", "never"],
    ] {
        let done = database.run(args);
        assert_eq!(done.code, 2, "{args:?}: {done:?}");
        assert!(done.err.contains("run `tenure migrate`"), "{args:?}: {done:?}");
        assert!(!done.out.contains("never") && !done.err.contains("tenure-test"), "{done:?}");
    }
    let done = database.run(&["migrate"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.err.contains("is set up, at version"), "{done:?}");
    let done = database.run(&["migrate"]);
    assert!(done.code == 0 && done.err.contains("is up to date, at version"), "{done:?}");
    let done = database.run(&["migrate", "--json"]);
    let object: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(object["event"], "migrated");
    assert!(object["from"] == object["to"] && object["to"].as_i64() > Some(0), "{object}");
    let text = format!("{}{}", done.out, done.err);
    assert!(!text.contains("tenure-test"), "a secret: {text}");

    let done = database.run(&["run", "job", "--", "sh", "-c", "echo term $TENURE_TERM"]);
    assert!(done.code == 0 && done.out.contains("term 1"), "{done:?}");
    assert_eq!(database.run(&["status", "job"]).code, 1, "nobody leads");
    let mut watch = database.spawn(&["watch", "job", "--json"]);
    let mut leader = database.spawn(&["campaign", "job", "--json", "--id", "first"]);
    assert_eq!(leader.event("elected")["term"], 2);
    watch.line("first");
    let done = database.run(&["status", "job"]);
    assert!(done.code == 0 && done.out.contains("first"), "{done:?}");
    let mut second = database.spawn(&["campaign", "job", "--json", "--id", "second"]);
    second.event("leader_changed");
    let done = database.run(&["resign", "job"]);
    assert!(done.code == 0 && done.err.contains("term 2 of job is over"), "{done:?}");
    assert_eq!(second.event("elected")["term"], 3);
    watch.line("second");
    leader.signal(Signal::TERM);
    second.signal(Signal::TERM);
    assert_eq!((leader.code(), second.code()), (0, 0));
}

#[needs(postgres)]
#[test]
fn needs_postgres_what_print_prints_sets_up_the_same() {
    let database = Database::empty();
    // Nobody is asked for it: this host does not exist.
    let url = format!("postgres://u:hunter2@nowhere.invalid/d?schema={}", database.schema);
    let printed = finish(database.command(&["migrate", "--print"]).env("TENURE_STORE", url));
    assert_eq!((printed.code, printed.err.as_str()), (0, ""));
    assert!(!printed.out.contains("hunter2"));
    for _ in 0..2 {
        Psql::start(&database.server).script(&printed.out).unwrap();
    }
    // As in `tenure migrate --print | psql`: an error is one for the shell, too.
    let wrong = printed.out.replace("CREATE TABLE", "CREATE TABEL");
    let mut psql = std::process::Command::new("psql");
    let psql = psql.arg("-q").arg(&database.server).stdin(std::process::Stdio::piped());
    let mut psql = psql.stderr(std::process::Stdio::null()).spawn().unwrap();
    std::io::Write::write_all(&mut psql.stdin.take().unwrap(), wrong.as_bytes()).unwrap();
    assert_eq!(psql.wait().unwrap().code(), Some(3));
    let done = database.run(&["migrate"]);
    assert!(done.err.contains("is up to date"), "{done:?}");
    assert_eq!(database.run(&["run", "job", "--", "true"]).code, 0);
}

#[needs(postgres)]
#[test]
fn needs_postgres_a_migration_that_can_not_be_says_what_to_do() {
    let database = Database::empty();
    let role = format!("poor_{}", database.schema);
    let mut admin = Psql::start(&database.server);
    admin.tell(&format!("CREATE ROLE {role} LOGIN PASSWORD 'right'"));
    let (_, place) = database.server.split_once('@').unwrap();
    let migrate = |url: &str| finish(database.command(&["migrate"]).env("TENURE_STORE", url));

    let done = migrate(&format!("postgres://{role}:right@{place}?schema={}", database.schema));
    assert_eq!(done.code, 2, "{done:?}");
    assert!(
        done.err.contains("have its owner run what `tenure migrate --print` prints"),
        "{done:?}"
    );

    let (host, _) = place.split_once('/').unwrap();
    for (url, code, says) in [
        (format!("postgres://{role}:hunter2@{place}"), 2, "fix the password"),
        (format!("postgres://{role}:right@{host}/nowhere"), 2, "create it, or fix the URL"),
        ("postgres://u:hunter2@127.0.0.1:1/d".to_owned(), 69, "is it running?"),
        ("postgres://u:hunter2@h/d?sslmode=odd".to_owned(), 2, "sslmode=odd is not known"),
    ] {
        let done = migrate(&url);
        assert!(done.code == code && done.err.contains(says), "{url}: {done:?}");
        assert!(!done.err.contains("hunter2"), "{done:?}");
    }

    // A table of another program is left alone.
    admin.tell(&format!(
        "CREATE SCHEMA {0}; CREATE TABLE {0}.leader_election (id integer)",
        database.schema
    ));
    let done = database.run(&["migrate"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.err.contains("another shape") && done.err.contains("?schema="), "{done:?}");
}
