//! The part of a job that writes into a SQLite file: another process of this very test binary.

use rusqlite::{Connection, TransactionBehavior};
use tenure_core::{Name, Term};
use tenure_sqlite::tick;

/// Names the file, and by that asks for the part to be played.
pub(crate) const FILE: &str = "CRON_TEST_FILE";

/// How this binary is called to play the part.
pub(crate) fn command() -> Vec<String> {
    let me = std::env::current_exe().unwrap().display().to_string();
    [&me, "--exact", "cron::workload::plays_its_part", "--quiet"].map(str::to_owned).into()
}

/// An effect in the user's file, and the note that it is there, in one fenced transaction.
#[test]
fn plays_its_part() {
    let Ok(file) = std::env::var(FILE) else { return };
    let word = |name: &str| std::env::var(name).unwrap();
    let election = Name::new(word("TENURE_ELECTION")).unwrap();
    let term = Term::new(word("TENURE_TERM").parse().unwrap()).unwrap();
    let (job, at) = (word("TENURE_JOB"), word("TENURE_SCHEDULED_AT"));
    let mut conn = Connection::open(file).unwrap();
    conn.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    if tick::take(&tx, &election, term, &job, &at).unwrap() == tick::Taken::Before {
        return;
    }
    tx.execute("INSERT INTO effect (at) VALUES (?1)", [&at]).unwrap();
    tx.commit().unwrap();
}
