//! The three functions and a fenced write over HTTP, through a real PostgREST, as docs/supabase.md
//! has them.

use std::env;
use std::net::SocketAddr;
use std::process::Command;

use serde_json::{Value, json};
use tenure_testbed::http;
use tenure_testbed::process::{Process, Watched, free_port};

use crate::common::{self, Place, Player, granted, refused, until};
use crate::rpc::{guide, supabase, worker};

const SECRET: &str = "a-secret-of-the-tests-alone-0123456789";
/// `{"role":"service_role"}`, signed with the secret.
const SERVICE_ROLE: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJyb2xlIjoic2VydmljZV9yb2xlIn0.\
    gZB4oMwtEE72qlaZKpTEfPf4MM2joJQTViW5PH7SwxI";

/// As in Supabase: it has no rights but to become the others. One test at a time makes it.
const AUTHENTICATOR: &str = "DO $$ BEGIN \
    PERFORM pg_advisory_xact_lock(20261118, 15); \
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'authenticator') THEN \
        CREATE ROLE authenticator LOGIN NOINHERIT PASSWORD 'authenticator'; \
        GRANT anon, authenticated, service_role TO authenticator; \
    END IF; END $$";

/// A PostgREST before one schema. Dropping it ends it.
struct PostgRest {
    _process: Process,
    at: SocketAddr,
}

impl PostgRest {
    async fn start(place: &Place) -> PostgRest {
        place.session().await.run(AUTHENTICATOR).await;
        for _ in 0..5 {
            // Somebody else may take a port in between: then it ends.
            let (port, admin) = (free_port(), free_port());
            let process = Process::new(&mut command(place, port, admin));
            let alive = Watched::new(process.pid());
            let admin = SocketAddr::from(([127, 0, 0, 1], admin));
            let ready = || http::get(admin, "/ready").is_ok_and(|answer| answer.status == 200);
            until("PostgREST is ready", || async { ready() || !alive.is_alive() }).await;
            if alive.is_alive() {
                let at = SocketAddr::from(([127, 0, 0, 1], port));
                return PostgRest { _process: process, at };
            }
        }
        panic!("PostgREST did not start");
    }

    /// A call of a function: the status and what it answers.
    fn rpc(&self, function: &str, arguments: Value) -> (u16, Value) {
        self.call("POST", function, &format!("authorization: Bearer {SERVICE_ROLE}\r\n"), arguments)
    }

    fn call(&self, method: &str, function: &str, who: &str, arguments: Value) -> (u16, Value) {
        let headers = format!("{who}content-type: application/json\r\n");
        let body = if method == "GET" { String::new() } else { arguments.to_string() };
        let path = format!("/rpc/{function}");
        let answer = http::request(self.at, method, &path, &headers, &body).unwrap();
        let value = serde_json::from_str(&answer.body).unwrap_or(Value::Null);
        (answer.status, value)
    }

    /// The same for functions that answer one row.
    fn row(&self, function: &str, arguments: Value) -> Value {
        let (status, value) = self.rpc(function, arguments);
        assert_eq!(status, 200, "{value}");
        assert_eq!(value.as_array().map(Vec::len), Some(1), "{value}");
        value[0].clone()
    }
}

fn command(place: &Place, port: u16, admin: u16) -> Command {
    let program = env::var_os("TENURE_TEST_POSTGREST")
        .expect("TENURE_TEST_POSTGREST is not set: `cargo xtask test --only postgres` installs it");
    let (_, host) = place.server.split_once('@').unwrap();
    let mut command = Command::new(program);
    command.env("PGRST_DB_URI", format!("postgres://authenticator:authenticator@{host}"));
    command.env("PGRST_DB_SCHEMAS", &place.schema).env("PGRST_DB_ANON_ROLE", "anon");
    command.env("PGRST_DB_EXTRA_SEARCH_PATH", "").env("PGRST_DB_POOL", "3");
    command.env("PGRST_JWT_SECRET", SECRET).env("PGRST_SERVER_HOST", "127.0.0.1");
    command.env("PGRST_SERVER_PORT", port.to_string());
    command.env("PGRST_ADMIN_SERVER_PORT", admin.to_string());
    command
}

fn by(candidate: &str) -> Value {
    json!({ "service": "invoices", "candidate": candidate, "ttl_ms": 30_000 })
}

#[needs(postgrest)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgrest_a_client_over_http_leads_renews_and_releases() {
    let server = common::server();
    let (place, _) = supabase(&server).await;
    worker(&place).await;
    let api = PostgRest::start(&place).await;

    let lead = api.row("tenure_try_lead", by("web-1#9f2c"));
    let yes = json!({ "granted": true, "term": 1, "remaining_ms": 30_000, "holder": "web-1#9f2c" });
    assert_eq!(lead, yes);
    let no = api.row("tenure_try_lead", by("web-2#01ab"));
    assert_eq!((&no["granted"], &no["term"]), (&json!(false), &json!(1)));
    assert_eq!(no["holder"], "web-1#9f2c");
    assert!((1..=30_000).contains(&no["remaining_ms"].as_i64().unwrap()), "{no}");
    // A candidate of tenure competes in the same election.
    let ours = Player::new(&place.store(), "ours", 1);
    let lease = refused(ours.acquire("invoices", 1).await).lease.unwrap();
    assert_eq!((lease.holder.as_str(), lease.term), ("web-1#9f2c", Some(common::term(1))));

    let mut renewal = by("web-1#9f2c");
    renewal["term"] = json!(1);
    assert_eq!(api.row("tenure_renew", renewal.clone()), yes);
    renewal["term"] = json!(2);
    assert_eq!(api.row("tenure_renew", renewal)["granted"], false);

    // Unknown is no refusal: another transaction is at the row, and nothing waits.
    let other = place.session().await;
    let lock = "BEGIN; SELECT FROM leader_election WHERE service_name = 'invoices' FOR UPDATE";
    other.run(lock).await;
    let release = json!({ "service": "invoices", "candidate": "web-1#9f2c", "term": 1, "seq": 1 });
    let (status, unknown) = api.rpc("tenure_release", release.clone());
    assert_eq!((status, &unknown["code"]), (500, &json!("55P03")), "{unknown}");
    other.run("ROLLBACK").await;

    assert_eq!(api.rpc("tenure_release", release.clone()), (200, json!(true)));
    assert_eq!(api.rpc("tenure_release", release), (200, json!(false)));
    assert_eq!(granted(ours.acquire("invoices", 2).await).term, common::term(2));
}

#[needs(postgrest)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgrest_a_write_over_http_is_fenced_and_nobody_else_may_call() {
    let server = common::server();
    let (place, admin) = supabase(&server).await;
    admin.run("CREATE TABLE invoice (id bigint, sent boolean)").await;
    admin.run("INSERT INTO invoice VALUES (7, false)").await;
    admin.run(&guide(&place)[0]).await;
    worker(&place).await;
    let api = PostgRest::start(&place).await;

    assert_eq!(api.row("tenure_try_lead", by("a"))["term"], 1);
    let write = |term: i64| api.rpc("send_invoice", json!({ "invoice_id": 7, "term": term }));
    assert_eq!(write(1), (204, Value::Null));
    assert!(admin.truth("SELECT sent FROM invoice").await);
    // Another leads: what comes late is refused, and writes nothing.
    admin.run("UPDATE invoice SET sent = false").await;
    let release = json!({ "service": "invoices", "candidate": "a" });
    assert_eq!(api.rpc("tenure_release", release), (200, json!(true)));
    assert_eq!(api.row("tenure_try_lead", by("b"))["term"], 2);
    let (_, stale) = write(1);
    assert_eq!(stale["code"], "TN001", "{stale}");
    assert!(!admin.truth("SELECT sent FROM invoice").await);
    assert_eq!(write(2), (204, Value::Null));

    // What the guide says of others, of wrong values, and of GET.
    let (status, denied) = api.call("POST", "tenure_try_lead", "", by("thief"));
    assert_eq!((status, &denied["code"]), (401, &json!("42501")), "{denied}");
    let (_, odd) =
        api.rpc("tenure_try_lead", json!({ "service": "", "candidate": "a", "ttl_ms": 1 }));
    assert_eq!(odd["code"], "22023", "{odd}");
    let who = format!("authorization: Bearer {SERVICE_ROLE}\r\n");
    let get = "tenure_try_lead?service=invoices&candidate=b&ttl_ms=30000";
    let (_, read_only) = api.call("GET", get, &who, Value::Null);
    assert_eq!(read_only["code"], "25006", "{read_only}");
}
