//! Passwords from a file, as libpq keeps them: `HOST:PORT:DATABASE:USER:PASSWORD` in each line.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use tenure_core::{Error, Secret};

/// Which file, and whether somebody asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Passfile {
    /// Named in the URL or in `PGPASSFILE`: it has to be there.
    Named(PathBuf),
    /// `~/.pgpass`: used if it is there.
    Usual(PathBuf),
    Nowhere,
}

/// Whom a password is for.
pub(crate) struct Login<'a> {
    /// All names that a line may know the server by.
    pub(crate) hosts: Vec<&'a str>,
    pub(crate) port: u16,
    pub(crate) database: &'a str,
    pub(crate) user: &'a str,
}

impl Passfile {
    /// The URL before the environment before the usual place.
    pub(crate) fn choose(
        named: Option<String>,
        variable: Option<OsString>,
        home: Option<OsString>,
    ) -> Passfile {
        let named = named.map(OsString::from).or(variable).filter(|path| !path.is_empty());
        match (named, home) {
            (Some(path), _) => Passfile::Named(path.into()),
            (None, Some(home)) => Passfile::Usual(PathBuf::from(home).join(".pgpass")),
            (None, None) => Passfile::Nowhere,
        }
    }

    /// The password for this login, read anew each time: it may have changed.
    pub(crate) fn password(&self, login: &Login<'_>) -> Result<Option<Secret>, Error> {
        let (path, named) = match self {
            Passfile::Named(path) => (path, true),
            Passfile::Usual(path) => (path, false),
            Passfile::Nowhere => return Ok(None),
        };
        let shown = path.display();
        match read(path) {
            Ok((text, 0)) => {
                Ok(text.lines().find_map(|line| matching(line, login)).map(Secret::new))
            }
            Ok(_) if named => Err(Error::config(format!(
                "others may read the password file {shown}; run chmod 0600 on it"
            ))),
            Ok(_) => {
                tracing::warn!(path = %shown, "a password file that others may read is not used");
                Ok(None)
            }
            Err(error) if named => Err(Error::config(format!(
                "the password file {shown} can't be read: {error}; fix its path or its owner"
            ))),
            Err(_) => Ok(None),
        }
    }
}

/// The text, and what others than its owner may do with the file.
fn read(path: &PathBuf) -> io::Result<(String, u32)> {
    let meta = fs::metadata(path)?;
    if !meta.is_file() {
        return Err(io::Error::other("it is no plain file"));
    }
    Ok((fs::read_to_string(path)?, meta.permissions().mode() & 0o077))
}

/// The password of a line, if the line is about this login.
fn matching(line: &str, login: &Login<'_>) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut fields = split(line).into_iter();
    let mut next = || fields.next();
    let (host, port, database, user) = (next()?, next()?, next()?, next()?);
    let password = next()?;
    let is = |field: &str, value: &str| field == "*" || field == value;
    (login.hosts.iter().any(|known| is(&host, known))
        && is(&port, &login.port.to_string())
        && is(&database, login.database)
        && is(&user, login.user))
    .then_some(password)
}

/// The fields between colons; a backslash takes the letter behind it as it is.
fn split(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        let letter = match letter {
            ':' => {
                fields.push(String::new());
                continue;
            }
            '\\' => letters.next().unwrap_or('\\'),
            letter => letter,
        };
        if let Some(field) = fields.last_mut() {
            field.push(letter);
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login<'a>() -> Login<'a> {
        Login { hosts: vec!["db"], port: 5433, database: "shop", user: "app" }
    }

    fn file(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        for (text, password) in [
            ("db:5433:shop:app:right", Some("right")),
            ("*:*:*:*:right", Some("right")),
            (
                "# db:5433:shop:app:no\n\nother:*:*:*:no\ndb:*:*:app:right\n*:*:*:*:no",
                Some("right"),
            ),
            (r"db:5433:shop:app:a\:b\\c", Some(r"a:b\c")),
            ("db:5432:shop:app:no", None),
            ("db:5433:shop:root:no\ndb:5433:other:app:no\ndb:5433:shop", None),
            ("", None),
        ] {
            let file = file(text, 0o600);
            let found = Passfile::Named(file.path().to_owned()).password(&login()).unwrap();
            assert_eq!(found.as_ref().map(Secret::expose), password, "{text}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_or_that_is_not_there_is_told_if_it_was_asked_for() {
        let open = file("*:*:*:*:hunter2", 0o640);
        let path = open.path().to_owned();
        let error = Passfile::Named(path.clone()).password(&login()).unwrap_err();
        assert!(error.message().contains("chmod 0600"), "{error}");
        assert!(!format!("{error:?}").contains("hunter2"));
        assert_eq!(Passfile::Usual(path).password(&login()).unwrap(), None);
        let error = Passfile::Named("/nonexistent/x".into()).password(&login()).unwrap_err();
        assert!(error.message().contains("/nonexistent/x can't be read"), "{error}");
        assert_eq!(Passfile::Usual("/nonexistent/x".into()).password(&login()).unwrap(), None);
        assert_eq!(Passfile::Nowhere.password(&login()).unwrap(), None);
    }

    #[test]
    fn the_url_comes_before_the_environment_and_that_before_the_usual_place() {
        let some = |text: &str| Some(OsString::from(text));
        let named = Passfile::choose(Some("a".into()), some("b"), some("/home/u"));
        assert_eq!(named, Passfile::Named("a".into()));
        assert_eq!(Passfile::choose(None, some("b"), None), Passfile::Named("b".into()));
        let usual = Passfile::Usual("/home/u/.pgpass".into());
        assert_eq!(Passfile::choose(None, some(""), some("/home/u")), usual);
        assert_eq!(Passfile::choose(None, None, None), Passfile::Nowhere);
    }

    #[test]
    fn lines_of_any_content_have_a_password_or_none() {
        const PIECES: [&str; 10] = ["*", ":", "\\", "#", "db", "5433", "shop", "app", " ", "é"];
        let check = bolero::check!().with_test_time(std::time::Duration::from_millis(300));
        check.with_type::<(Vec<u8>, String)>().for_each(|(picks, free)| {
            let pick = |pick: &u8| PIECES[usize::from(*pick) % PIECES.len()];
            let picked: String = picks.iter().take(16).map(pick).collect();
            for line in [picked, free.clone(), format!("*:*:*:*:{free}")] {
                let Some(password) = matching(&line, &login()) else { continue };
                assert!(password.chars().all(|letter| line.contains(letter)), "{line:?}");
                assert!(line.matches(':').count() >= 4, "{line:?}");
            }
        });
    }
}
