//! `tenure migrate`: sets up a database, or prints the SQL that would.

use clap::Args;
use tenure::Term;
use tenure_core::Secret;

use super::terms;
use crate::exit::{Exit, Failure};
use crate::options::names;
use crate::output::Output;
use crate::store::StoreChoice;

/// Create or upgrade what tenure needs in a Postgres database
///
/// Creates the table leader_election and its functions, or upgrades an older one where it stands.
/// It may be run any number of times and by all instances at once; leaders go on leading. Other
/// stores need no migration.
///
/// If the role of the app may not create tables, print the SQL and have the owner run it.
///
/// With --terms-above, terms go on above those of a store that you come from: stop all candidates,
/// read the last terms with `tenure status --json` there, and give the highest here. On Postgres it
/// holds for all elections; on other stores name them. It can be repeated, and never lowers a term.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MigrateArgs {
    /// Print the SQL instead of running it; no database is asked
    #[arg(long)]
    pub(crate) print: bool,

    /// Have all terms from now on be above this one: for moving here from another store
    #[arg(long, value_name = "TERM", value_parser = term)]
    pub(crate) terms_above: Option<Term>,

    /// The elections whose terms are raised, on stores other than Postgres
    #[arg(value_name = "NAME", requires = "terms_above")]
    pub(crate) names: Vec<String>,
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
            "say which database to migrate, with --store postgres://HOST/DATABASE or TENURE_STORE",
        ));
    };
    match of_postgres(url.expose()) {
        Some(_) if !args.names.is_empty() => Err(Failure::usage(
            "on Postgres --terms-above holds for all elections of the schema; leave the names out",
        )),
        Some(url) => migrate(args, &url, out).await,
        None => {
            let choice = StoreChoice::new(Some(url))?;
            if let Some(above) = args.terms_above {
                if args.print {
                    return Err(Failure::usage("there is no SQL for that; leave out --print"));
                }
                return terms::raise(above, &names(&args.names)?, &choice, out).await;
            }
            let address = choice.address();
            out.say(&format!("{address} needs no migration; only Postgres does"));
            Ok(Exit::DONE)
        }
    }
}

/// The URL of the database, whichever store uses it.
fn of_postgres(url: &str) -> Option<String> {
    let (scheme, place) = url.split_once("://")?;
    match scheme {
        "postgres" | "postgresql" => Some(format!("postgres://{place}")),
        "postgres+advisory" | "postgresql+advisory" => {
            // What concerns that store alone makes no difference to the tables.
            let own = |option: &&str| {
                !option.starts_with("term_offset=") && !option.starts_with("frozen_leaders=")
            };
            let (place, options) = place.rsplit_once('?').unwrap_or((place, ""));
            let options: Vec<&str> = options.split('&').filter(own).collect();
            Some(format!("postgres://{place}?{}", options.join("&")))
        }
        _ => None,
    }
}

#[cfg(feature = "postgres")]
async fn migrate(args: &MigrateArgs, url: &str, out: &Output) -> Result<Exit, Failure> {
    use serde_json::json;
    use tenure_postgres::PostgresConfig;

    use crate::output::boot_now;
    use crate::wall;

    let store = PostgresConfig::from_url(url)?.open();
    if args.print {
        let mut sql = store.migration_sql();
        if let Some(above) = args.terms_above {
            sql.push_str(&store.raise_terms_sql(above));
        }
        out.data(sql.trim_end());
        return Ok(Exit::DONE);
    }
    let done = store.migrate().await?;
    let raised = match args.terms_above {
        Some(above) => Some(store.raise_terms(above).await?),
        None => None,
    };
    let address = store.address();
    if out.json {
        let at = boot_now();
        let object = json!({
            "at": wall::rfc3339(wall::at(at)),
            "boot_ns": at.as_nanos(),
            "event": "migrated",
            "store": address,
            "from": done.from,
            "to": done.to,
            "terms_above": raised.map(Term::get),
        });
        out.data(&object.to_string());
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
        if let Some(raised) = raised {
            out.say(&format!("terms that are issued there from now on are above {raised}"));
        }
    }
    Ok(Exit::DONE)
}

#[cfg(not(feature = "postgres"))]
async fn migrate(_args: &MigrateArgs, url: &str, _out: &Output) -> Result<Exit, Failure> {
    // It says what this build knows instead.
    StoreChoice::new(Some(&Secret::new(url))).map(|_| Exit::DONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_stores_of_postgres_use_one_database() {
        for url in ["postgres://h/d?schema=s", "postgresql://h/d?schema=s"] {
            assert_eq!(of_postgres(url).as_deref(), Some("postgres://h/d?schema=s"));
        }
        assert_eq!(of_postgres("postgres+advisory://h/d").as_deref(), Some("postgres://h/d?"));
        let advisory = "postgres+advisory://u:p@h/d?frozen_leaders=stay&schema=s&term_offset=7";
        assert_eq!(of_postgres(advisory).as_deref(), Some("postgres://u:p@h/d?schema=s"));
        for url in ["sqlite:x.db", "redis://h", "", "postgres:x"] {
            assert_eq!(of_postgres(url), None);
        }
    }
}
