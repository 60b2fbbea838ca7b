//! PostgreSQL: the server, what stands before it, and what this role may do.

use std::time::Duration;

use tenure::{Error, ErrorKind};
use tenure_postgres::{AdvisoryConfig, PostgresConfig, PostgresStore};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::Report;
use super::finding::{Finding, Level};
use crate::commands::{in_time, pause};

/// The first version that ends idle sessions, which the advisory store needs.
const IDLE_SESSION_TIMEOUT: i32 = 14_00_00;

/// How long a plain question may wait while a transaction is open elsewhere.
const POOLER_WITHIN: Duration = Duration::from_secs(2);

/// The same server, whichever store uses it.
enum Server {
    Lease(PostgresConfig),
    Advisory(AdvisoryConfig),
}

impl Server {
    fn from_url(url: &str) -> Result<Server, Error> {
        match url.split_once("://") {
            Some((scheme, _)) if scheme.ends_with("+advisory") => {
                AdvisoryConfig::from_url(url).map(Server::Advisory)
            }
            _ => PostgresConfig::from_url(url).map(Server::Lease),
        }
    }

    fn is_advisory(&self) -> bool {
        matches!(self, Server::Advisory(_))
    }

    async fn connect(&self) -> Result<Client, Error> {
        let connected = match self {
            Server::Lease(config) => in_time(config.connect()).await,
            Server::Advisory(config) => in_time(config.connect()).await,
        };
        connected?
    }

    fn tables(&self) -> PostgresStore {
        match self {
            Server::Lease(config) => config.clone().open(),
            Server::Advisory(config) => config.tables(),
        }
    }
}

/// Looks at the server through a session of its own. What can't be found out is a finding, too.
pub(super) async fn examine(url: &str, ttl: Duration, report: &mut Report) {
    let server = match Server::from_url(url) {
        Ok(server) => server,
        Err(error) => return report.find(unusable(&error.to_string())),
    };
    let client = match server.connect().await {
        Ok(client) => client,
        Err(error) => return report.find(unusable(&error.to_string())),
    };
    let Some(version) = number(&client, "server_version_num").await else {
        return report.find(unusable("the server does not tell its version"));
    };
    let shown = setting(&client, "server_version").await.unwrap_or_default();
    report.fact("PostgreSQL", shown);
    standby(&client, report).await;
    durability(&client, report).await;
    lifetimes(&client, ttl, report).await;
    pooler(&client, &server, report).await;
    idle_sessions(version, url, &server, report);
    campaign(&server, report).await;
    let tables = server.tables();
    let essential = !server.is_advisory();
    let denied = privileges(&tables, essential, report).await;
    migrations(&tables, essential, denied, report).await;
}

/// Whether a candidate for advisory locks would be refused, because others use the tables.
async fn campaign(server: &Server, report: &mut Report) {
    let Server::Advisory(config) = server else { return };
    match in_time(config.clone().open().check()).await {
        Ok(Err(error)) if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Config) => report
            .find(
                Finding::new(Level::Safety, error.to_string())
                    .because("a candidate without the tables would take over past a fence")
                    .so("use the schema of the others, with the rights that roles.sql grants"),
            ),
        _ => {}
    }
}

/// Whether the server ends sessions that fell silent, which makes a lease of an advisory lock.
fn idle_sessions(version: i32, url: &str, server: &Server, report: &mut Report) {
    let knows = version >= IDLE_SESSION_TIMEOUT;
    report.fact("idle sessions", if knows { "can be ended" } else { "stay for ever" });
    if knows || !server.is_advisory() {
        return;
    }
    let accepted = url.contains("frozen_leaders=stay");
    report.find(
        Finding::new(
            if accepted { Level::Advice } else { Level::Safety },
            "this server does not know idle_session_timeout",
        )
        .because("a leader that hangs keeps its lock for ever")
        .so("use PostgreSQL 14 or later, or the lease in a table (postgres://)"),
    );
}

fn unusable(why: &str) -> Finding {
    Finding::new(Level::Safety, format!("the server can't be used: {why}"))
        .because("nobody can lead without it")
        .so("mend that first, then ask the doctor again")
}

async fn standby(client: &Client, report: &mut Report) {
    let standby = truth(client, "SELECT pg_is_in_recovery()").await.unwrap_or(false);
    report.fact("server", if standby { "a standby" } else { "the primary" });
    if standby {
        report.find(
            Finding::new(Level::Safety, "this server is a standby")
                .because("it takes no writes, so nobody can lead here")
                .so("name the primary, or list all hosts"),
        );
    }
    let replicas = "SELECT count(*) > 0 FROM pg_stat_replication";
    let has_replicas = truth(client, replicas).await.unwrap_or(false);
    let names = setting(client, "synchronous_standby_names").await.unwrap_or_default();
    if has_replicas && names.is_empty() {
        report.find(
            Finding::new(Level::Safety, "the standbys of this server are not synchronous")
                .because("a failover may forget the last grants: a term is issued twice")
                .so("set synchronous_standby_names, or never fail over while leases are held"),
        );
    }
}

async fn durability(client: &Client, report: &mut Report) {
    for (name, wanted, why) in [
        ("fsync", "on", "a crash of the machine may lose grants, and terms fall"),
        ("full_page_writes", "on", "a crash may leave pages torn, and leases unreadable"),
    ] {
        let is = setting(client, name).await.unwrap_or_default();
        if is != wanted {
            report.find(
                Finding::new(Level::Safety, format!("{name} is {is}"))
                    .because(why)
                    .so(format!("set {name} = {wanted}")),
            );
        }
    }
}

/// Anything that ends sessions or statements sooner than a lease.
async fn lifetimes(client: &Client, ttl: Duration, report: &mut Report) {
    for name in ["statement_timeout", "idle_session_timeout", "tcp_user_timeout"] {
        let Some(millis) = number(client, name).await.filter(|millis| *millis > 0) else {
            continue;
        };
        report.fact(name, format!("{millis} ms"));
        let span = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        if name != "tcp_user_timeout" && span < ttl / 3 {
            report.find(
                Finding::new(
                    Level::Advice,
                    format!("{name} is {millis} ms, shorter than a third of the ttl"),
                )
                .because("the server ends what renews the lease; it is then made anew each time")
                .so(format!("ALTER ROLE ... SET {name} to more than the ttl, for this role")),
            );
        }
    }
}

/// A pooler that lends a server session per transaction: while one of ours is taken, another
/// client gets the session that we had, or we get another one.
async fn pooler(client: &Client, server: &Server, report: &mut Report) {
    let Some(before) = session(client).await else { return };
    let Ok(other) = server.connect().await else { return };
    if other.batch_execute("BEGIN").await.is_err() {
        return;
    }
    let mut shared = session(&other).await.as_ref() == Some(&before);
    for _ in 0..2 {
        // One that has no session left keeps us waiting, which a server never does.
        let now = tokio::select! {
            now = session(client) => now,
            () = pause(POOLER_WITHIN) => None,
        };
        shared |= now != Some(before.clone());
        if shared {
            break;
        }
    }
    let _ended = other.batch_execute("ROLLBACK").await;
    report.fact("pooler", if shared { "transactions share sessions" } else { "none to be seen" });
    if shared {
        let level = if server.is_advisory() { Level::Safety } else { Level::Advice };
        report.find(
            Finding::new(level, "a pooler in transaction mode stands before the server")
                .because("locks and LISTEN belong to a session, and here nobody keeps one")
                .so("connect to the server itself, or use the pool in session mode"),
        );
    }
}

/// The server session that answers.
async fn session(client: &Client) -> Option<String> {
    let told = client.simple_query("SELECT pg_catalog.pg_backend_pid()").await.ok()?;
    told.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    })
}

/// What this role may not do; tells whether there is anything that nobody can lead without.
/// Elections by advisory locks do without all of it.
async fn privileges(tables: &PostgresStore, essential: bool, report: &mut Report) -> bool {
    let Ok(Ok(missing)) = in_time(tables.missing_privileges()).await else { return false };
    let (to_lead, others): (Vec<_>, Vec<_>) =
        missing.into_iter().partition(|missing| missing.to_lead && essential);
    let denied = !to_lead.is_empty();
    for (level, missing, why) in [
        (Level::Safety, to_lead, "without it nobody can lead with this role"),
        (Level::Advice, others, "the fence, messages and cron don't work with this role"),
    ] {
        if missing.is_empty() {
            continue;
        }
        let what: Vec<String> = missing.into_iter().map(|missing| missing.what).collect();
        report.find(
            Finding::new(level, format!("this role lacks {}", what.join("; ")))
                .because(why)
                .so("have the owner of the tables GRANT that, or run roles.sql for this role"),
        );
    }
    denied
}

async fn migrations(tables: &PostgresStore, essential: bool, denied: bool, report: &mut Report) {
    match in_time(tables.check()).await {
        Ok(Ok(())) => report.fact("migrations", "all applied"),
        // It was said what is missing, and that is not the migrations.
        Ok(Err(error)) | Err(error) if denied && error.kind() == ErrorKind::Denied => {
            report.fact("migrations", "this role may not see them");
        }
        Ok(Err(error)) | Err(error) if essential => report.find(
            Finding::new(Level::Safety, error.to_string())
                .because("without its tables and functions nobody can lead")
                .so("run `tenure migrate` as the owner of the database"),
        ),
        Ok(Err(_)) | Err(_) => report.fact(
            "migrations",
            "not applied; elections work without, the fence, durable messages and cron don't",
        ),
    }
}

async fn setting(client: &Client, name: &str) -> Option<String> {
    let sql = "SELECT current_setting($1, true)";
    let rows = client.query_typed(sql, &[(&name, Type::TEXT)]).await.ok()?;
    rows.first()?.try_get(0).ok()
}

/// A setting in the unit that it is kept in.
async fn number(client: &Client, name: &str) -> Option<i32> {
    let sql = "SELECT setting FROM pg_settings WHERE name = $1";
    let rows = client.query_typed(sql, &[(&name, Type::TEXT)]).await.ok()?;
    rows.first()?.try_get::<_, String>(0).ok()?.parse().ok()
}

async fn truth(client: &Client, sql: &str) -> Option<bool> {
    client.query_typed(sql, &[]).await.ok()?.first()?.try_get(0).ok()
}
