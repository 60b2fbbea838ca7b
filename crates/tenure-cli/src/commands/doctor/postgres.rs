//! PostgreSQL: the server, what stands before it, and what this role may do.

use std::time::Duration;

use tenure_postgres::{PostgresConfig, PostgresStore};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::Report;
use super::finding::{Finding, Level};
use crate::commands::in_time;

/// The first version that ends idle sessions, which the advisory store needs.
const IDLE_SESSION_TIMEOUT: i32 = 14_00_00;

/// Looks at the server through a session of its own. What can't be found out is a finding, too.
pub(super) async fn examine(url: &str, ttl: Duration, report: &mut Report) {
    let advisory = url.starts_with("postgres+advisory");
    let plain = url.replacen("postgres+advisory://", "postgres://", 1);
    let config = match PostgresConfig::from_url(&plain) {
        Ok(config) => config,
        Err(error) => return report.find(unusable(&error.to_string())),
    };
    let client = match in_time(config.connect()).await {
        Ok(Ok(client)) => client,
        Ok(Err(error)) | Err(error) => return report.find(unusable(&error.to_string())),
    };
    let Some(version) = number(&client, "server_version_num").await else {
        return report.find(unusable("the server does not tell its version"));
    };
    let shown = setting(&client, "server_version").await.unwrap_or_default();
    report.fact("PostgreSQL", shown);
    standby(&client, report).await;
    durability(&client, report).await;
    lifetimes(&client, ttl, report).await;
    pooler(&client, advisory, report).await;
    if advisory && version < IDLE_SESSION_TIMEOUT {
        report.find(
            Finding::new(Level::Safety, "this server does not know idle_session_timeout")
                .because("a leader that hangs keeps its lock for ever")
                .so("use PostgreSQL 14 or later, or the lease in a table (postgres://)"),
        );
    }
    if !advisory {
        migrations(config.open(), report).await;
    }
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
                .so("name the primary, or list all hosts with target_session_attrs=read-write"),
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

/// A pooler that gives each transaction another server session shows other sessions to the same
/// client.
async fn pooler(client: &Client, advisory: bool, report: &mut Report) {
    let mut sessions = Vec::new();
    for _ in 0..5 {
        let told = client.simple_query("SELECT pg_backend_pid()").await.unwrap_or_default();
        let pid = told.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        sessions.extend(pid);
    }
    sessions.dedup();
    if sessions.len() > 1 {
        let level = if advisory { Level::Safety } else { Level::Advice };
        report.fact("pooler", "transactions share sessions");
        report.find(
            Finding::new(level, "a pooler in transaction mode stands before the server")
                .because("locks and LISTEN belong to a session, and here nobody keeps one")
                .so("connect to the server itself, or use the pool in session mode"),
        );
    }
}

async fn migrations(store: PostgresStore, report: &mut Report) {
    match in_time(store.check()).await {
        Ok(Ok(())) => report.fact("migrations", "all applied"),
        Ok(Err(error)) | Err(error) => report.find(
            Finding::new(Level::Safety, error.to_string())
                .because("without its tables and functions nobody can lead")
                .so("run `tenure migrate` as the owner of the database"),
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
