//! Setting up a schema, or bringing it up to date.
//!
//! Any number of instances may do so at once: they take turns by an advisory lock. What is there
//! already is changed where it stands, and nobody is kept waiting for long: a statement that does
//! not get its table within 200 ms is given up, everything is undone, and it is tried again (P5).

use std::time::Duration;

use tenure_core::{BoxFuture, Error, ErrorKind, Migrate, Migrated, Term};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Row};

use crate::clock::{now, pause};
use crate::config::PostgresConfig;
use crate::connection;
use crate::error;
use crate::shape::{self, Difference};
use crate::{AdvisoryStore, PostgresStore};

/// All migrations, in order. What was published is never edited: a change is a new file.
const MIGRATIONS: [(i32, &str); 9] = [
    (1, include_str!("../migrations/0001_init.sql")),
    (2, include_str!("../migrations/0002_rules.sql")),
    (3, include_str!("../migrations/0003_table_clients.sql")),
    (4, include_str!("../migrations/0004_apply.sql")),
    (5, include_str!("../migrations/0005_fence.sql")),
    (6, include_str!("../migrations/0006_messages.sql")),
    (7, include_str!("../migrations/0007_ledger.sql")),
    (8, include_str!("../migrations/0008_advisory.sql")),
    (9, include_str!("../migrations/0009_rpc.sql")),
];

/// What comes before the first of them, and what is tried after the last.
const TABLE_OF_MIGRATIONS: &str = include_str!("sql/migrations_table.sql");
const PROBE: &str = include_str!("sql/probe.sql");

/// The oldest server that has all that is used here.
const SERVER_MIN: i32 = 140_000;

/// What bounds a migration on the server's side. Candidates wait while the table is
/// changed, so a migrator that is frozen or cut off in the middle must be ended.
const BOUNDS: &str = "SET LOCAL lock_timeout = '200ms';\n\
                      SET LOCAL idle_in_transaction_session_timeout = '5s'";

/// What tells the version of the server.
pub(crate) const SERVER_SQL: &str = "SELECT current_setting('server_version_num')::integer";

/// How long to go on trying, and how long to wait in between.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

impl Migrate for PostgresStore {
    fn run(&self) -> BoxFuture<'_, Result<Migrated, Error>> {
        Box::pin(self.migrate())
    }

    fn raise_terms(&self, above: Term) -> BoxFuture<'_, Result<Term, Error>> {
        Box::pin(self.raise_terms(above))
    }

    fn script(&self, terms_above: Option<Term>) -> String {
        let raise = terms_above.map(|above| self.raise_terms_sql(above));
        self.migration_sql() + &raise.unwrap_or_default()
    }

    fn client_preamble(&self) -> &'static str {
        "-- For psql. Leave the next line out elsewhere.\n\\set ON_ERROR_STOP on\n"
    }
}

/// The tables are the same for both kinds of stores.
impl Migrate for AdvisoryStore {
    fn run(&self) -> BoxFuture<'_, Result<Migrated, Error>> {
        Migrate::run(self.tables())
    }

    fn raise_terms(&self, above: Term) -> BoxFuture<'_, Result<Term, Error>> {
        Migrate::raise_terms(self.tables(), above)
    }

    fn script(&self, terms_above: Option<Term>) -> String {
        self.tables().script(terms_above)
    }

    fn client_preamble(&self) -> &'static str {
        self.tables().client_preamble()
    }
}

/// The latest version that this crate knows.
pub(crate) fn latest() -> i32 {
    MIGRATIONS.iter().map(|(version, _)| *version).max().unwrap_or(0)
}

/// The functions of all migrations with their bodies, before names are put in. A later one takes
/// the place of an earlier one.
pub(crate) fn bodies() -> Vec<(&'static str, &'static str)> {
    const CREATE: &str = "CREATE OR REPLACE FUNCTION @schema@.";
    let files = MIGRATIONS.iter().map(|(_, sql)| *sql);
    let body = |rest: &'static str| {
        let name = rest.split('(').next()?;
        let end = rest.find(CREATE).unwrap_or(rest.len());
        let (_, text) = rest[..end].split_once("AS $tenure$")?;
        Some((name, text.split("$tenure$").next()?))
    };
    let all = std::iter::once(TABLE_OF_MIGRATIONS).chain(files);
    all.flat_map(|sql| sql.split(CREATE).skip(1)).filter_map(body).collect()
}

/// All statements as one, for those whose own role may not create tables. It may run again, and
/// puts right what differs; where a later version of tenure has been it leaves everything alone.
/// What others have locked is tried again. It needs no transaction and no `psql`.
pub(crate) fn script(config: &PostgresConfig) -> String {
    let steps: String = MIGRATIONS
        .iter()
        .map(|(version, _)| {
            format!("EXECUTE $tenure_{version}$\n{}$tenure_{version}$;\n", step(config, *version))
        })
        .collect();
    let words = [
        ("@key@", config.names.migration_key().to_string()),
        ("@latest@", latest().to_string()),
        ("@first@", config.names.render(TABLE_OF_MIGRATIONS)),
        ("@last@", config.names.render(PROBE)),
    ];
    let frame = config.names.render(include_str!("sql/script.sql"));
    let frame = words.iter().fold(frame, |text, (word, value)| text.replace(word, value));
    frame.replace("@steps@", &steps)
}

/// Brings the schema up to date.
pub(crate) async fn migrate(config: &PostgresConfig) -> Result<Migrated, Error> {
    let started = now();
    loop {
        match attempt(config).await {
            Err(Trouble::Passing(_)) if started.elapsed() < PATIENCE => {
                pause(PAUSE).await;
            }
            Err(Trouble::Passing(error) | Trouble::Final(error)) => return Err(error),
            Ok(migrated) => return Ok(migrated),
        }
    }
}

/// Refuses a server that is too old, in a sentence.
pub(crate) fn check_server(version: i32) -> Result<(), Error> {
    if version >= SERVER_MIN {
        return Ok(());
    }
    Err(error::new(
        ErrorKind::Unsupported,
        format!(
            "the server is PostgreSQL {}, and {} is the oldest that will do; upgrade it",
            version / 10_000,
            SERVER_MIN / 10_000
        ),
    ))
}

/// Why an attempt failed.
enum Trouble {
    /// Others were at it; it may do in a moment.
    Passing(Error),
    Final(Error),
}

/// One attempt, on a connection of its own: whatever happened to an earlier one is gone.
async fn attempt(config: &PostgresConfig) -> Result<Migrated, Trouble> {
    let (client, task) = connection::connect(config).await.map_err(|error| {
        let full = error.message().contains("no connection left");
        if full { Trouble::Passing(error) } else { Trouble::Final(error) }
    })?;
    let done = match timeout(PATIENCE, carry_out(config, &client)).await {
        Ok(done) => done,
        Err(_) => Err(Trouble::Final(error::timed_out(config, "a migration of", PATIENCE))),
    };
    if done.is_err() {
        task.abort();
    }
    done
}

async fn carry_out(config: &PostgresConfig, client: &Client) -> Result<Migrated, Trouble> {
    let failed = |error: tokio_postgres::Error| {
        let again = [
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::T_R_SERIALIZATION_FAILURE,
        ];
        let passing = error.code().is_some_and(|code| again.contains(code));
        let error = match error.code() {
            Some(&SqlState::INSUFFICIENT_PRIVILEGE) => error::may_not_migrate(config, error),
            _ => error::from_postgres(config, error),
        };
        if passing { Trouble::Passing(error) } else { Trouble::Final(error) }
    };
    let number = |rows: Vec<Row>| rows.first().map_or(0, |row| row.get::<_, i32>(0));
    let server = number(client.query_typed(SERVER_SQL, &[]).await.map_err(failed)?);
    check_server(server).map_err(Trouble::Final)?;
    let names = &config.names;
    let version = names.render(include_str!("sql/version.sql"));
    let to = latest();
    // Where all is done already, nobody has to take a turn.
    if let Ok(rows) = client.query_typed(&version, &[]).await {
        let from = number(rows);
        let done = from > to
            || from == to
                && shape::differences(client, names, false).await.map_err(failed)?.is_empty();
        if done {
            return Ok(Migrated::new(from, from, to));
        }
    }
    let run = async |sql: String| client.batch_execute(&sql).await.map_err(failed);
    let key = names.migration_key();
    // Its turn may be a while off: the bounds are for what comes then.
    run(format!("BEGIN; SELECT pg_advisory_xact_lock({key}); {BOUNDS}")).await?;
    run(names.render(TABLE_OF_MIGRATIONS)).await?;
    let from = number(client.query_typed(&version, &[]).await.map_err(failed)?);
    if from > to {
        run("COMMIT".to_owned()).await?;
        return Ok(Migrated::new(from, from, to));
    }
    // What was done before may have been changed since (P8). What is new is not there yet.
    let differs = match from == to {
        true => shape::differences(client, names, true).await.map_err(failed)?,
        false => Vec::new(),
    };
    let before: String = differs.iter().filter_map(|differs| differs.before(names)).collect();
    let steps: String = MIGRATIONS.iter().map(|(version, _)| step(config, *version)).collect();
    let after: String = differs.iter().filter_map(|differs| differs.after(names)).collect();
    // With the commit in one message: a client that is gone leaves no table locked.
    run(format!("{before}{steps}{after}{}COMMIT", names.render(PROBE))).await?;
    let says = |differs: &[Difference]| -> Vec<String> {
        differs.iter().map(|differs| differs.says(names)).collect()
    };
    let left = shape::differences(client, names, false).await.map_err(failed)?;
    if from < to && !left.is_empty() {
        // It was changed before: now that all is there, it can be told what is wrong.
        return Err(Trouble::Passing(error::differs(config, &says(&left))));
    }
    if !left.is_empty() {
        return Err(Trouble::Final(error::differs(config, &says(&left))));
    }
    Ok(Migrated::new(from, to, to).with_repairs(says(&differs)))
}

/// One migration, with the note that it was done.
fn step(config: &PostgresConfig, version: i32) -> String {
    let sql = MIGRATIONS.iter().find(|(number, _)| *number == version).map_or("", |(_, sql)| sql);
    let note = format!(
        "\nINSERT INTO @schema@.tenure_migrations (version, table_name)\n\
         VALUES ({version}, @table_literal@) ON CONFLICT (version) DO NOTHING;\n\n"
    );
    config.names.render(&format!("{sql}{note}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_holds_every_migration_and_no_word_to_be_put_in() {
        let config = PostgresConfig::from_url("postgres://h/d?schema=s&table=t").unwrap();
        let script = script(&config);
        for (version, _) in MIGRATIONS {
            assert!(script.contains(&format!("VALUES ({version}, '\"s\".\"t\"')")), "{version}");
        }
        assert!(script.starts_with("DO ") && script.ends_with("$tenure_migration$;\n"));
        assert!(!script.contains('@'), "a word was not put in");
    }

    #[test]
    fn a_server_that_is_too_old_is_named() {
        assert!(check_server(150_018).is_ok());
        let error = check_server(130_011).unwrap_err();
        assert!(error.message().contains("PostgreSQL 13") && error.message().contains("14"));
    }
}
