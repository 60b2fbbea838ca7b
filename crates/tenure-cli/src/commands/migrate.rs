//! `tenure migrate`: sets up a database, or prints the SQL that would.

use std::io::{self, IsTerminal as _};

use clap::Args;
use serde_json::json;
use tenure::Term;
use tenure_core::{Migrate, Secret};

use super::terms;
use crate::exit::{Exit, Failure};
use crate::options::names;
use crate::output::Output;
use crate::store::StoreChoice;

/// Create or upgrade what tenure needs in a Postgres database
///
/// Creates the table leader_election and its functions, or upgrades an older one where it stands.
/// What others have changed of it since is said and put right. It may be run any number of times
/// and by all instances at once; leaders go on leading. Other stores need no migration.
///
/// If the role of the app may not create tables, print the SQL and have the owner run it.
///
/// With --terms-above, terms go on above those of a store that you come from: stop all candidates,
/// read the last terms with `tenure status --json` there, and give the highest here. On Postgres it
/// holds for all elections; on other stores name them. It can be repeated, and never lowers a term.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MigrateArgs {
    /// Print the SQL instead of running it; no database is asked. For psql it begins with a line
    /// that has it fail at an error; =sql leaves that out, as does a terminal
    #[arg(long, value_name = "FOR", num_args = 0..=1, require_equals = true)]
    pub(crate) print: Option<Option<Dialect>>,

    /// Have all terms from now on be above this one: for moving here from another store
    #[arg(long, value_name = "TERM", value_parser = term)]
    pub(crate) terms_above: Option<Term>,

    /// The elections whose terms are raised, on stores other than Postgres
    #[arg(value_name = "NAME", requires = "terms_above")]
    pub(crate) names: Vec<String>,
}

/// Who reads what is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Dialect {
    /// The command `psql`.
    Psql,
    /// Anything that takes SQL, such as an editor in a browser.
    Sql,
}

fn term(text: &str) -> Result<Term, String> {
    text.parse().ok().and_then(Term::new).ok_or_else(|| {
        format!("a term is a number from 1 to {}; give the last one of the other store", Term::MAX)
    })
}

const EXAMPLES: &str = "\
Examples:
  tenure migrate --store postgres://owner@db/shop
  tenure migrate --store postgres://db/shop --print > tenure.sql
  tenure migrate --store 'postgres://db/shop?schema=tenure' --print | psql shop
  tenure migrate --store postgres://db/shop --print=sql > for-an-editor.sql
  tenure migrate --store postgres://owner@db/shop --terms-above 1763424000123
  tenure migrate --store sqlite:/var/lib/shop/tenure.db --terms-above 42 invoices reports";

/// Applies what is missing, or prints everything.
///
/// # Cancel safety
/// Cancel safe: it is done as a whole or not at all.
pub(crate) async fn run(
    args: &MigrateArgs,
    url: Option<&Secret>,
    out: &Output,
) -> Result<Exit, Failure> {
    let Some(url) = url else {
        return Err(Failure::usage(
            "say which database to migrate: give --store URL or set TENURE_STORE",
        ));
    };
    let choice = StoreChoice::new(Some(url))?;
    if choice.is_missing() && args.terms_above.is_none() {
        // Opening it would create it, and a file that is new needs nothing more.
        return Ok(needs_none(&choice, out));
    }
    let opened = choice.open()?;
    match (opened.store.migrate(), args.terms_above) {
        (Some(_), _) if !args.names.is_empty() => Err(Failure::usage(
            "on this store --terms-above holds for all elections; leave the names out",
        )),
        (Some(migrate), _) => set_up(args, migrate, &choice.address(), out).await,
        (None, Some(_)) if args.print.is_some() => {
            Err(Failure::usage("there is no script for that; leave out --print"))
        }
        (None, Some(above)) => terms::raise(above, &names(&args.names)?, &*opened.store, out).await,
        (None, None) => Ok(needs_none(&choice, out)),
    }
}

fn needs_none(choice: &StoreChoice, out: &Output) -> Exit {
    out.say(&format!("{} needs no migration", choice.address()));
    Exit::DONE
}

async fn set_up(
    args: &MigrateArgs,
    store: &dyn Migrate,
    address: &str,
    out: &Output,
) -> Result<Exit, Failure> {
    if let Some(dialect) = args.print {
        // What is on a terminal is there to be copied.
        let guess = if io::stdout().is_terminal() { Dialect::Sql } else { Dialect::Psql };
        let preamble = match dialect.unwrap_or(guess) {
            Dialect::Psql => store.client_preamble(),
            Dialect::Sql => "",
        };
        out.data(format!("{preamble}{}", store.script(args.terms_above)).trim_end());
        return Ok(Exit::DONE);
    }
    let done = store.run().await?;
    let raised = match args.terms_above {
        Some(above) => Some(store.raise_terms(above).await?),
        None => None,
    };
    if out.json {
        let fields = vec![
            ("store", json!(address)),
            ("from", json!(done.from)),
            ("to", json!(done.to)),
            ("repaired", json!(done.repaired)),
            ("terms_above", json!(raised.map(Term::get))),
        ];
        out.general_object("migrated", fields);
    } else {
        out.say(&match (done.from, done.to) {
            (0, to) => format!("{address} is set up, at version {to}"),
            (from, to) if from > done.known => format!(
                "{address} is at version {to}, newer than the {} that this tenure knows; nothing \
                 was changed",
                done.known
            ),
            (from, to) if from == to => format!("{address} is up to date, at version {to}"),
            (from, to) => format!("{address} was upgraded from version {from} to {to}"),
        });
        for what in &done.repaired {
            out.say(&format!("{what}: put right"));
        }
        if let Some(raised) = raised {
            out.say(&format!("terms that are issued there from now on are above {raised}"));
        }
    }
    Ok(Exit::DONE)
}
