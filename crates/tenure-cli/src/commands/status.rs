//! `tenure status`: who leads.

use serde_json::{Value, json};
use tenure::{ChannelBacklog, Error, Leader, Name, Store, Term};
use tenure_core::Sight;

use super::screen::{Row, table};
use super::{in_time, see_all};
use crate::exit::{Exit, Failure};
use crate::output::{self, Output, boot_now, printable, show_short};
use crate::store::StoreChoice;

/// Prints a table, or one object for each election.
pub(crate) async fn run(
    names: Vec<Name>,
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    let named = !names.is_empty();
    let (names, sights, backlogs) = look(names, choice, out).await?;
    let last_terms: Vec<Option<Term>> = sights.iter().map(|sight| sight.last_term).collect();
    let leaders: Vec<Option<Leader>> =
        sights.into_iter().map(|sight| sight.lease.map(Leader::from)).collect();
    let at = boot_now();
    if out.json {
        let seen = names.iter().zip(&leaders).zip(&last_terms).zip(&backlogs);
        for (((name, leader), last_term), backlog) in seen {
            let mut fields = vec![("candidate", Value::Null)];
            fields.extend(output::leader_fields(leader.as_ref()));
            // Also of an election that nobody leads: what another store has to go on from.
            fields.push(("last_term", json!(last_term.map(Term::get))));
            fields.push(("backlog", backlog.iter().map(backlog_fields).collect()));
            out.object(at, "status", name, fields);
        }
    } else if names.is_empty() {
        out.say("no elections in this store yet");
    } else {
        let rows: Vec<Row> = names.iter().zip(&leaders).map(|(n, l)| Row::new(n, l)).collect();
        out.data(&table(&rows, None).join("\n"));
        let lines = names.iter().zip(&backlogs).flat_map(|(name, backlog)| {
            backlog.iter().map(|one| backlog_line(name, one)).collect::<Vec<_>>()
        });
        lines.for_each(|line| out.data(&line));
    }
    let vacant = leaders.iter().any(Option::is_none);
    Ok(if named && vacant { Exit::NEGATIVE } else { Exit::DONE })
}

/// The elections, who leads them, and what waits for their leaders.
type Looked = (Vec<Name>, Vec<Sight>, Vec<Vec<ChannelBacklog>>);

async fn look(names: Vec<Name>, choice: &StoreChoice, out: &Output) -> Result<Looked, Failure> {
    // To ask is no reason to create a file.
    if choice.is_missing() {
        let (sights, backlogs) =
            (vec![Sight::default(); names.len()], vec![Vec::new(); names.len()]);
        return Ok((names, sights, backlogs));
    }
    let opened = choice.open()?;
    let names = if names.is_empty() { in_time(opened.elections()).await?? } else { names };
    let sights = see_all(&*opened.store, &names).await?;
    let backlogs = match backlogs(&*opened.store, &names).await {
        Ok(backlogs) => backlogs,
        Err(error) => {
            out.warn(&format!("what waits for leaders is not known: {error}"));
            vec![Vec::new(); names.len()]
        }
    };
    Ok((names, sights, backlogs))
}

async fn backlogs(store: &dyn Store, names: &[Name]) -> Result<Vec<Vec<ChannelBacklog>>, Error> {
    let Some(channels) = store.channels() else { return Ok(vec![Vec::new(); names.len()]) };
    let mut backlogs = Vec::with_capacity(names.len());
    for name in names {
        backlogs.push(in_time(channels.backlog(name)).await??);
    }
    Ok(backlogs)
}

fn backlog_fields(backlog: &ChannelBacklog) -> Value {
    json!({
        "channel": backlog.channel,
        "waiting": backlog.waiting,
        "dead": backlog.dead,
        "oldest_ms": backlog.oldest.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
    })
}

/// `shop: posts that wait in orders: 12, the oldest for 3s; dead letters: 1`.
fn backlog_line(name: &Name, backlog: &ChannelBacklog) -> String {
    let ChannelBacklog { channel, waiting, dead, oldest } = backlog;
    let (name, channel) = (printable(name.as_str()), printable(channel));
    let age = oldest.map(|age| format!(", the oldest for {}", show_short(age)));
    let dead = match dead {
        0 => String::new(),
        count => format!("; dead letters: {count}"),
    };
    format!("{name}: posts that wait in {channel}: {waiting}{}{dead}", age.unwrap_or_default())
}
