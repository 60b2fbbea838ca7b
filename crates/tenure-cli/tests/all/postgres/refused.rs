//! A server that does not let us in, from the start: no waiting helps, and it is said once.

use super::database::Database;
use crate::common::LIMIT;
use crate::support::{finish, finish_within};

/// Each command that takes part or looks on.
const COMMANDS: [&[&str]; 6] = [
    &["run", "a", "--", "true"],
    &["campaign", "a"],
    &["listen", "a", "orders"],
    &["cron", "a", "@daily", "--", "true"],
    &["watch", "a"],
    &["serve", "--listen", "127.0.0.1:0", "--election", "a"],
];

#[needs(postgres)]
#[test]
fn needs_postgres_a_wrong_password_ends_every_command_with_one_sentence() {
    let database = Database::empty();
    let (who, host) = database.server.rsplit_once('@').unwrap();
    let (user, _) = who.rsplit_once(':').unwrap();
    let wrong = format!("{user}:no@{host}");
    for args in COMMANDS {
        let mut command = database.command(args);
        command.env("TENURE_STORE", &wrong).env("TENURE_TOKEN", "0123456789abcdef0123");
        let done = finish_within(LIMIT, &mut command);
        assert_eq!(done.code, 2, "{args:?}: {done:?}");
        assert_eq!(done.err.matches("does not let").count(), 1, "{args:?}: {done:?}");
        assert!(!done.err.contains("trying again"), "{args:?}: {done:?}");
    }
    let done = finish(database.command(&["doctor"]).env("TENURE_STORE", &wrong));
    assert_eq!(done.code, 1, "{done:?}");
    assert_eq!(done.out.matches("does not let").count(), 1, "{done:?}");
    assert!(done.out.contains("1 finding\n"), "{done:?}");
}

#[needs(postgres)]
#[test]
fn needs_postgres_missing_tables_end_every_command_with_one_sentence() {
    let database = Database::empty();
    for args in COMMANDS {
        let mut command = database.command(args);
        let done = finish_within(LIMIT, command.env("TENURE_TOKEN", "0123456789abcdef0123"));
        assert_eq!(done.code, 2, "{args:?}: {done:?}");
        assert_eq!(done.err.matches("run `tenure migrate`").count(), 1, "{args:?}: {done:?}");
    }
}
