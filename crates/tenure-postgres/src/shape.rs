//! What a schema should look like, and what of it does not (P8).
//!
//! The bodies of functions are those of the migrations; how everything is declared is in
//! `shape.txt`, which a test compares with what a fresh migration makes.

use std::collections::BTreeMap;

use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use crate::names::Names;

/// What there should be: a line for each thing, of what it is, how it is declared, and the rest.
const SHAPE: &str = include_str!("shape.txt");

/// The functions that clients of the older design call, and how many commas their parameters have.
const OLDER: [(&str, usize); 3] =
    [("try_become_leader", 2), ("leader_heartbeat", 1), ("step_down", 1)];

/// Things by what they are: how each is declared, and its body or the rest.
type Things = BTreeMap<String, (String, String)>;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// As it is in `shape.txt`.
    what: String,
    wrong: Wrong,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Wrong {
    Missing,
    Body,
    /// How it should be declared, and how it is.
    Declared(String, String),
    /// It should not be there: it hides a function of ours, or makes calls ambiguous.
    TooMany,
}

impl Difference {
    /// In words, for people.
    pub(crate) fn says(&self, names: &Names) -> String {
        let what = words(&self.what, names);
        match &self.wrong {
            Wrong::Missing => format!("the {what} is missing"),
            Wrong::Body => format!("the {what} has another body"),
            Wrong::Declared(should, is) => format!("the {what} is {is:?}, not {should:?}"),
            Wrong::TooMany => format!("the {what} is in the way of tenure's"),
        }
    }

    /// What has to be done before the migrations run once more.
    pub(crate) fn before(&self, names: &Names) -> Option<String> {
        let (kind, rest) = self.what.split_once(' ')?;
        let (name, of) = rest.split_once(" of ").unwrap_or((rest, ""));
        match (kind, &self.wrong) {
            ("trigger", Wrong::Declared(..)) => {
                Some(format!("DROP TRIGGER {name} ON @schema@.{};\n", table(of)))
            }
            ("index", Wrong::Declared(..)) => Some(format!("DROP INDEX @schema@.{name};\n")),
            _ => None,
        }
        .map(|sql| names.render(&sql))
    }

    /// What the migrations do not do by themselves.
    pub(crate) fn after(&self, names: &Names) -> Option<String> {
        let (kind, rest) = self.what.split_once(' ')?;
        let things = expected(names);
        let (declared, more) = things.get(&self.what)?;
        let sql = match kind {
            "column" => {
                let (of, column) = rest.split_once('.')?;
                let alter = format!("ALTER TABLE @schema@.{}", table(of));
                if more.contains("IDENTITY") {
                    return None;
                }
                match self.wrong {
                    Wrong::Missing => {
                        format!("{alter} ADD COLUMN IF NOT EXISTS {column} {declared} {more};\n")
                    }
                    _ => {
                        let null = if more.starts_with("NOT NULL") { "SET" } else { "DROP" };
                        let default = match more.split_once("DEFAULT ") {
                            Some((_, value)) => format!("SET DEFAULT {value}"),
                            None => "DROP DEFAULT".to_owned(),
                        };
                        format!(
                            "{alter} ALTER COLUMN {column} TYPE {declared}, \
                             ALTER COLUMN {column} {null} NOT NULL, \
                             ALTER COLUMN {column} {default};\n"
                        )
                    }
                }
            }
            "constraint" => {
                let (of, definition) = rest.split_once(": ")?;
                let table = table(of);
                format!(
                    "DO $tenure$ BEGIN IF NOT EXISTS (SELECT FROM pg_catalog.pg_constraint \
                     WHERE conrelid = '@schema@.{table}'::regclass \
                     AND pg_get_constraintdef(oid, true) = $it${definition}$it$) THEN \
                     ALTER TABLE @schema@.{table} ADD {definition}; END IF; END $tenure$;\n"
                )
            }
            "table" if !declared.is_empty() => {
                format!("ALTER TABLE @schema@.{} SET ({declared});\n", table(rest))
            }
            _ => return None,
        };
        Some(names.render(&sql))
    }
}

/// The name of a table in a statement, before the words are put in.
fn table(name: &str) -> String {
    if name.starts_with('@') { name.to_owned() } else { format!("\"{name}\"") }
}

fn words(text: &str, names: &Names) -> String {
    text.replace("@table@", names.table())
        .replace("@released@", &names.released())
        .replace("@released_at@", &format!("{}_at", names.released()))
}

/// What is not as it should be. The session must be in no transaction, or `inside` one.
///
/// # Cancel safety
/// Cancel safe: nothing is changed.
pub(crate) async fn differences(
    client: &Client,
    names: &Names,
    inside: bool,
) -> Result<Vec<Difference>, tokio_postgres::Error> {
    let found = found(client, names, inside).await?;
    Ok(compare(&expected(names), &found))
}

async fn found(
    client: &Client,
    names: &Names,
    inside: bool,
) -> Result<Things, tokio_postgres::Error> {
    // Names in the schema are shown without it then.
    let begin = if inside { "" } else { "BEGIN READ ONLY; " };
    let path = names.render("SET LOCAL search_path = @schema@, pg_catalog, pg_temp");
    client.batch_execute(&format!("{begin}{path}")).await?;
    let (schema, table, released) = (names.schema(), names.table(), names.released());
    let values: [(&(dyn ToSql + Sync), Type); 3] =
        [(&schema, Type::TEXT), (&table, Type::TEXT), (&released, Type::TEXT)];
    let rows = client.query_typed(include_str!("sql/shape.sql"), &values).await;
    if !inside {
        client.batch_execute("COMMIT").await?;
    }
    let text = |row: &tokio_postgres::Row, column| {
        row.try_get::<_, Option<String>>(column).map(Option::unwrap_or_default)
    };
    rows?.iter().map(|row| Ok((text(row, 0)?, (text(row, 1)?, text(row, 2)?)))).collect()
}

/// What the migrations of this version make.
fn expected(names: &Names) -> Things {
    let mut things = Things::new();
    for line in SHAPE.lines() {
        let mut fields = line.split('\t');
        let mut next = || fields.next().unwrap_or_default().to_owned();
        let (what, declared, rest) = (next(), next(), next());
        things.insert(what, (names.render(&declared), rest));
    }
    for (name, body) in crate::migrate::bodies() {
        let is_it = |what: &&String| what.starts_with(&format!("function {name}("));
        if let Some(what) = things.keys().find(is_it).cloned() {
            things.entry(what).and_modify(|(_, rest)| *rest = names.render(body));
        }
    }
    things
}

fn compare(expected: &Things, found: &Things) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut note = |what: &str, wrong| {
        differences.push(Difference { what: what.to_owned(), wrong });
    };
    // A table that is not there is one thing, not many.
    let is_there = |what: &str| {
        let of = what.split_once(' ').map_or("", |(kind, rest)| match kind {
            "column" => rest.split('.').next().unwrap_or_default(),
            "constraint" => rest.split(':').next().unwrap_or_default(),
            _ => rest.split_once(" of ").map_or("", |(_, of)| of),
        });
        of.is_empty() || found.contains_key(&format!("table {of}"))
    };
    for (what, (declared, body)) in expected.iter().filter(|(what, _)| is_there(what)) {
        match found.get(what) {
            None => note(what, Wrong::Missing),
            Some((is, rest)) if is != declared || rest != body && !what.starts_with("function") => {
                let both = |declared: &str, rest: &str| format!("{declared} {rest}");
                let (should, is) = match what.starts_with("function") {
                    true => (declared.clone(), is.clone()),
                    false => (both(declared, body), both(is, rest)),
                };
                note(what, Wrong::Declared(should.trim().to_owned(), is.trim().to_owned()));
            }
            Some((_, is)) if is != body => note(what, Wrong::Body),
            Some(_) => {}
        }
    }
    // Others may have functions, tables and triggers whose names begin as ours do.
    for what in found.keys().filter(|what| !expected.contains_key(*what)) {
        let like = |(name, commas): &(&str, usize)| {
            what.starts_with(&format!("function {name}(")) && what.matches(',').count() == *commas
        };
        if OLDER.iter().any(like) {
            note(what, Wrong::TooMany);
        }
    }
    differences
}

#[cfg(test)]
mod tests {
    use tenure_needs::needs;

    use super::*;

    /// With `TENURE_WRITE_SHAPE=1` it writes the file anew.
    #[needs(postgres)]
    #[tokio::test(flavor = "multi_thread")]
    async fn needs_postgres_the_shape_is_that_of_a_fresh_migration() {
        let schema = format!("shape_{}", std::process::id());
        let url = tenure_testbed::postgres::server();
        let sign = if url.contains('?') { '&' } else { '?' };
        let config = crate::PostgresConfig::from_url(&format!("{url}{sign}schema={schema}"));
        let config = config.unwrap();
        let (client, _task) = crate::connection::connect(&config).await.unwrap();
        client.batch_execute(&crate::migrate::script(&config)).await.unwrap();
        let found = found(&client, &config.names, false).await.unwrap();
        let literal = config.names.render("@table_literal@");
        let line = |(what, (declared, rest)): (&String, &(String, String))| {
            let rest = if what.starts_with("function") { "" } else { rest };
            let declared = declared.replace(&literal, "@table_literal@");
            format!("{what}\t{declared}\t{rest}").trim_end().to_owned() + "\n"
        };
        let text: String = found.iter().map(line).collect();
        if std::env::var_os("TENURE_WRITE_SHAPE").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/shape.txt"), text).unwrap();
            return;
        }
        assert_eq!(text, SHAPE, "a migration changed: run this again with TENURE_WRITE_SHAPE=1");
        assert_eq!(compare(&expected(&config.names), &found), []);
        client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.unwrap();
    }

    #[test]
    fn every_function_is_known_with_its_body() {
        let things = expected(&Names::new("s", "t").unwrap());
        let bare = |(what, (declared, body)): (&String, &(String, String))| {
            let returns = declared.contains(" RETURN ");
            (what.starts_with("function") && body.is_empty() != returns).then(|| what.clone())
        };
        let bare: Vec<String> = things.iter().filter_map(bare).collect();
        assert_eq!(bare, [""; 0], "add them to shape.txt");
    }
}
