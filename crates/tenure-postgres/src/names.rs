//! Where things are in the database, and how their names get into SQL.

use tenure_core::Error;

/// The longest name that Postgres keeps whole, in bytes.
const IDENTIFIER_MAX: usize = 63;

/// What is put behind the name of the table for the names of its companions.
const RELEASED: &str = "_released";
const RELEASED_AT: &str = "_released_at";

/// The schema and the table of one deployment. Functions have fixed names in the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    schema: String,
    table: String,
}

impl Names {
    pub(crate) fn new(schema: &str, table: &str) -> Result<Names, Error> {
        check("schema", schema, IDENTIFIER_MAX)?;
        check("table", table, IDENTIFIER_MAX - RELEASED_AT.len())?;
        Ok(Names { schema: schema.to_owned(), table: table.to_owned() })
    }

    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    /// The table that remembers releases.
    pub(crate) fn released(&self) -> String {
        format!("{}{RELEASED}", self.table)
    }

    /// A statement of ours with the names in it. What comes from users is bound, never put in
    /// here.
    pub(crate) fn render(&self, template: &str) -> String {
        let table = &self.table;
        let qualified = format!("{}.{}", identifier(&self.schema), identifier(table));
        let words = [
            ("@schema@", identifier(&self.schema)),
            ("@table@", identifier(table)),
            ("@released@", identifier(&self.released())),
            ("@released_at@", identifier(&format!("{table}{RELEASED_AT}"))),
            ("@schema_literal@", literal(&self.schema)),
            ("@table_literal@", literal(&qualified)),
            ("@channel_literal@", literal(&self.channel())),
            ("@channel@", identifier(&self.channel())),
            ("@posts_literal@", literal(&self.posts_channel())),
        ];
        // One pass, so that a name with such a word in it stays as it is.
        let mut sql = String::with_capacity(template.len() * 2);
        let mut rest = template;
        while let Some(at) = rest.find('@') {
            let (before, from) = rest.split_at(at);
            sql.push_str(before);
            match words.iter().find(|(word, _)| from.starts_with(word)) {
                Some((word, value)) => {
                    sql.push_str(value);
                    rest = &from[word.len()..];
                }
                None => {
                    sql.push('@');
                    rest = &from[1..];
                }
            }
        }
        sql + rest
    }

    /// The channel on which hints travel. Processes of different versions meet there: never
    /// change it.
    pub(crate) fn channel(&self) -> String {
        format!("tenure:{:016x}", fnv1a(&format!("{}.{}", self.schema, self.table)))
    }

    /// The channel on which leaders are told that something was posted. Never change it.
    pub(crate) fn posts_channel(&self) -> String {
        format!("tenure-posts:{:016x}", fnv1a(&format!("{}.{}", self.schema, self.table)))
    }

    /// The number of the lock that migrations of this schema take turns by.
    pub(crate) fn migration_key(&self) -> i64 {
        fnv1a(&format!("tenure migrates {}", self.schema)).cast_signed()
    }
}

fn check(what: &str, name: &str, max: usize) -> Result<(), Error> {
    if name.is_empty() || name.len() > max {
        return Err(Error::config(format!(
            "the {what} {name:?} has {} bytes; give it 1 to {max}",
            name.len()
        )));
    }
    // A dollar could end the text of a function early.
    match name.chars().find(|letter| letter.is_control() || *letter == '$') {
        Some(letter) => Err(Error::config(format!(
            "the {what} {name:?} has {letter:?} in it; choose a name without"
        ))),
        None => Ok(()),
    }
}

/// A name as an identifier in SQL, whatever is in it.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn literal(text: &str) -> String {
    // Postgres takes backslashes as they are, unless an old setting says otherwise.
    if text.contains('\\') {
        format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
    } else {
        format!("'{}'", text.replace('\'', "''"))
    }
}

fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_wherever_they_go() {
        let names = Names::new("my \"schema\"", "it's @schema@").unwrap();
        assert_eq!(
            names.render("SELECT FROM @schema@.@table@ WHERE x = @table_literal@ -- a@b"),
            "SELECT FROM \"my \"\"schema\"\"\".\"it's @schema@\" \
             WHERE x = '\"my \"\"schema\"\"\".\"it''s @schema@\"' -- a@b"
        );
    }

    #[test]
    fn names_that_could_not_be_kept_are_refused_with_a_sentence() {
        for (schema, table, word) in [
            ("", "t", "1 to 63"),
            ("s", "", "1 to 51"),
            ("s", &"x".repeat(52), "52 bytes"),
            ("a$b", "t", "'$'"),
            ("a\0b", "t", "'\\0'"),
        ] {
            let error = Names::new(schema, table).unwrap_err();
            assert!(error.message().contains(word), "{error}");
        }
    }

    #[test]
    fn the_channel_of_hints_is_pinned() {
        let names = Names::new("public", "leader_election").unwrap();
        assert_eq!(names.channel(), "tenure:4ba695012b6c1077");
    }
}
