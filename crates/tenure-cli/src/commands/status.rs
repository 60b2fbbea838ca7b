//! `tenure status`: who leads.

use serde_json::Value;
use tenure::{Leader, Name};

use super::screen::{Row, table};
use super::{in_time, read_all};
use crate::exit::{Exit, Failure};
use crate::output::{self, Output, boot_now};
use crate::store::StoreChoice;

/// Prints a table, or one object for each election.
pub(crate) async fn run(
    names: Vec<Name>,
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    let named = !names.is_empty();
    let (names, leaders) = look(names, choice).await?;
    let at = boot_now();
    if out.json {
        for (name, leader) in names.iter().zip(&leaders) {
            let mut fields = vec![("candidate", Value::Null)];
            fields.extend(output::leader_fields(leader.as_ref()));
            out.object(at, "status", name, fields);
        }
    } else if names.is_empty() {
        out.say("nobody ever led anything here");
    } else {
        let rows: Vec<Row> = names.iter().zip(&leaders).map(|(n, l)| Row::new(n, l)).collect();
        out.data(&table(&rows, None).join("\n"));
    }
    let vacant = leaders.iter().any(Option::is_none);
    Ok(if named && vacant { Exit::NEGATIVE } else { Exit::DONE })
}

async fn look(
    names: Vec<Name>,
    choice: &StoreChoice,
) -> Result<(Vec<Name>, Vec<Option<Leader>>), Failure> {
    // To ask is no reason to create a file.
    if choice.is_missing() {
        let leaders = vec![None; names.len()];
        return Ok((names, leaders));
    }
    let opened = choice.open()?;
    let names = if names.is_empty() { in_time(opened.elections()).await?? } else { names };
    let leaders = read_all(&*opened.store, &names).await?;
    Ok((names, leaders))
}
