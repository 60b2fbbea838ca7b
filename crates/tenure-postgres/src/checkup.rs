//! What a doctor looks at: the server, what stands before it, and what this role may do.

use std::time::Duration;

use tenure_core::{BoxFuture, Checkup, CheckupReport as Report, Error, ErrorKind, Finding, Level};
use tokio::time::timeout;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::{AdvisoryStore, PostgresStore};

/// The first version that ends idle sessions, which the advisory store needs.
const IDLE_SESSION_TIMEOUT: i32 = 14_00_00;

/// How long a plain question may wait while a transaction is open elsewhere.
const POOLER_WITHIN: Duration = Duration::from_secs(2);

impl Checkup for PostgresStore {
    fn examine(&self, ttl: Duration) -> BoxFuture<'_, Report> {
        Box::pin(examine(Server { tables: self, advisory: None }, ttl))
    }
}

impl Checkup for AdvisoryStore {
    fn examine(&self, ttl: Duration) -> BoxFuture<'_, Report> {
        Box::pin(examine(Server { tables: self.tables(), advisory: Some(self) }, ttl))
    }
}

/// The same server, for both kinds of stores.
#[derive(Clone, Copy)]
struct Server<'a> {
    tables: &'a PostgresStore,
    advisory: Option<&'a AdvisoryStore>,
}

impl Server<'_> {
    async fn connect(&self) -> Result<Client, Error> {
        self.tables.config().connect().await
    }
}

async fn examine(server: Server<'_>, ttl: Duration) -> Report {
    let mut report = Report::new();
    look(server, ttl, &mut report).await;
    report
}

/// Looks at the server through a session of its own.
async fn look(server: Server<'_>, ttl: Duration, report: &mut Report) {
    let unusable = |reason: &str| Finding::unusable("the server", reason);
    let client = match server.connect().await {
        Ok(client) => client,
        Err(error) => return report.find(unusable(&error.to_string())),
    };
    let Some(version) = number(&client, "server_version_num").await else {
        return report.find(unusable("it does not tell its version"));
    };
    let shown = setting(&client, "server_version").await.unwrap_or_default();
    report.fact("PostgreSQL", shown);
    standby(&client, report).await;
    durability(&client, report).await;
    lifetimes(&client, ttl, report).await;
    pooler(&client, server, report).await;
    if let Some(store) = server.advisory {
        idle_sessions(version, store, report);
        campaign(store, report).await;
    }
    let essential = server.advisory.is_none();
    let denied = privileges(server.tables, essential, report).await;
    migrations(server.tables, essential, denied, report).await;
}

/// Whether a candidate for advisory locks would be refused, because others use the tables.
async fn campaign(store: &AdvisoryStore, report: &mut Report) {
    match store.check().await {
        Err(error) if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Config) => report.find(
            Finding::new(Level::Safety, error.to_string())
                .because("a candidate without the tables would take over past a fence")
                .so("use the schema of the others, with the rights that roles.sql grants"),
        ),
        _ => {}
    }
}

/// Whether the server ends sessions that fell silent, which makes a lease of an advisory lock.
fn idle_sessions(version: i32, store: &AdvisoryStore, report: &mut Report) {
    let knows = version >= IDLE_SESSION_TIMEOUT;
    report.fact("idle sessions", if knows { "can be ended" } else { "stay for ever" });
    if knows {
        return;
    }
    report.find(
        Finding::new(
            if store.frozen_may_stay() { Level::Advice } else { Level::Safety },
            "this server does not know idle_session_timeout",
        )
        .because("a leader that hangs keeps its lock for ever")
        .so("use PostgreSQL 14 or later, or the lease in a table (postgres://)"),
    );
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
    let away =
        "SELECT count(*) = 0 FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')";
    if !names.is_empty() && truth(client, away).await.unwrap_or(false) {
        report.find(
            Finding::new(Level::Safety, "no synchronous standby is connected")
                .because(
                    "every grant and renewal waits for one without end, and no timeout of the \
                     server's ends that: nobody can lead",
                )
                .so(format!(
                    "bring it back, or take it out of synchronous_standby_names ({names})"
                )),
        );
    }
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
    for name in
        ["statement_timeout", "transaction_timeout", "idle_session_timeout", "tcp_user_timeout"]
    {
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
async fn pooler(client: &Client, server: Server<'_>, report: &mut Report) {
    let Some(before) = session(client).await else { return };
    let Ok(other) = server.connect().await else { return };
    if other.batch_execute("BEGIN").await.is_err() {
        return;
    }
    let mut shared = session(&other).await.as_ref() == Some(&before);
    for _ in 0..2 {
        // One that has no session left keeps us waiting, which a server never does.
        let now = timeout(POOLER_WITHIN, session(client)).await.ok().flatten();
        shared |= now != Some(before.clone());
        if shared {
            break;
        }
    }
    let _ended = other.batch_execute("ROLLBACK").await;
    report.fact("pooler", if shared { "transactions share sessions" } else { "none to be seen" });
    if shared {
        let level = if server.advisory.is_some() { Level::Safety } else { Level::Advice };
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
    let Ok(missing) = tables.missing_privileges().await else { return false };
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
    match tables.check().await {
        Ok(()) => {
            report.fact("migrations", "all applied");
            // Without the rights names are shown in another way.
            if !denied {
                differences(tables, report).await;
            }
        }
        // It was said what is missing, and that is not the migrations.
        Err(error) if denied && error.kind() == ErrorKind::Denied => {
            report.fact("migrations", "this role may not see them");
        }
        Err(error) if essential => report.find(
            Finding::new(Level::Safety, error.to_string())
                .because("without its tables and functions nobody can lead")
                .so("run `tenure migrate` as the owner of the database"),
        ),
        Err(_) => report.fact(
            "migrations",
            "not applied; elections work without, the fence, durable messages and cron don't",
        ),
    }
}

/// What others have changed of it since (P8).
async fn differences(tables: &PostgresStore, report: &mut Report) {
    let Ok(differs) = tables.differences().await else { return };
    report.fact("shape", if differs.is_empty() { "as tenure made it" } else { "changed since" });
    if !differs.is_empty() {
        report.find(
            Finding::new(Level::Safety, differs.join("; "))
                .because("the rules of leases and terms are kept by these")
                .so("run `tenure migrate` as the owner of the database"),
        );
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
