//! What is not in a URL: a service file and variables of the environment, as libpq has them. The
//! URL comes first, then the service, then the variables.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use tenure_core::Error;

/// Where Debian and others keep the service file of the whole machine.
const SYSTEM: &str = "/etc/postgresql-common";

/// The options that variables stand for. Of the driver's, those that a URL has before its options
/// come first.
const VARIABLES: [(&str, &str); 18] = [
    ("host", "PGHOST"),
    ("port", "PGPORT"),
    ("user", "PGUSER"),
    ("password", "PGPASSWORD"),
    ("dbname", "PGDATABASE"),
    ("application_name", "PGAPPNAME"),
    ("channel_binding", "PGCHANNELBINDING"),
    ("connect_timeout", "PGCONNECT_TIMEOUT"),
    ("gssencmode", "PGGSSENCMODE"),
    ("load_balance_hosts", "PGLOADBALANCEHOSTS"),
    ("options", "PGOPTIONS"),
    ("passfile", "PGPASSFILE"),
    ("sslcert", "PGSSLCERT"),
    ("sslkey", "PGSSLKEY"),
    ("sslmode", "PGSSLMODE"),
    ("sslnegotiation", "PGSSLNEGOTIATION"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("target_session_attrs", "PGTARGETSESSIONATTRS"),
];

/// How a variable is looked up.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The environment of this process.
pub(crate) fn of_process(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// What the service and the variables say, by the names of options.
pub(crate) fn settings(
    service: Option<String>,
    lookup: Lookup<'_>,
) -> Result<HashMap<String, String>, Error> {
    let mut settings: HashMap<String, String> = VARIABLES
        .iter()
        .filter_map(|(option, name)| Some(((*option).to_owned(), lookup(name)?)))
        .collect();
    if let Some(service) = service.or_else(|| lookup("PGSERVICE")) {
        settings.extend(of_service(&service, lookup)?);
    }
    Ok(settings)
}

/// A file that libpq uses without being told, if it is there.
pub(crate) fn usual_file(name: &str, lookup: Lookup<'_>) -> Option<String> {
    let path = PathBuf::from(lookup("HOME")?).join(".postgresql").join(name);
    path.is_file().then(|| path.display().to_string())
}

/// The settings of a service, from the first file that has it.
fn of_service(service: &str, lookup: Lookup<'_>) -> Result<HashMap<String, String>, Error> {
    let own = match (lookup("PGSERVICEFILE"), lookup("HOME")) {
        (Some(path), _) => Some(PathBuf::from(path)),
        (None, Some(home)) => Some(Path::new(&home).join(".pg_service.conf")),
        (None, None) => None,
    };
    let system = lookup("PGSYSCONFDIR").unwrap_or_else(|| SYSTEM.to_owned());
    let files = own.into_iter().chain([Path::new(&system).join("pg_service.conf")]);
    for text in files.filter_map(|path| fs::read_to_string(path).ok()) {
        if let Some(settings) = section(&text, service) {
            return Ok(settings);
        }
    }
    Err(Error::config(format!(
        "there is no service {service:?} in PGSERVICEFILE, ~/.pg_service.conf or \
         {system}/pg_service.conf; add it, or unset PGSERVICE"
    )))
}

/// The lines `OPTION=VALUE` under `[SERVICE]`.
fn section(text: &str, service: &str) -> Option<HashMap<String, String>> {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) == Some(service))?;
    let own = lines.take_while(|line| !line.starts_with('['));
    let pairs = own.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
    Some(pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_comes_before_variables_and_is_told_if_it_is_not_there() {
        let home = tempfile::tempdir().unwrap();
        let file =
            "# ours\n[other]\nhost=no\n\n[shop]\nhost = db \n#user=no\nport=5433\n[z]\nuser=no";
        fs::write(home.path().join(".pg_service.conf"), file).unwrap();
        let place = home.path().display().to_string();
        let lookup = |name: &str| match name {
            "HOME" => Some(place.clone()),
            "PGHOST" => Some("variable".to_owned()),
            "PGUSER" => Some("app".to_owned()),
            _ => None,
        };
        let found = settings(Some("shop".to_owned()), &lookup).unwrap();
        let of = |name: &str| found.get(name).map(String::as_str);
        assert_eq!((of("host"), of("port"), of("user")), (Some("db"), Some("5433"), Some("app")));
        assert_eq!(settings(None, &lookup).unwrap()["host"], "variable");
        // By the variable; what a URL names comes before it.
        let named =
            |name: &str| if name == "PGSERVICE" { Some("shop".into()) } else { lookup(name) };
        assert_eq!(settings(None, &named).unwrap()["host"], "db");
        assert_eq!(settings(Some("other".to_owned()), &named).unwrap()["host"], "no");
        let error = settings(Some("absent".to_owned()), &lookup).unwrap_err();
        assert!(error.message().contains("no service \"absent\""), "{error}");
    }
}
