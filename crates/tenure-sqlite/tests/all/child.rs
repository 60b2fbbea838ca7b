//! What the other processes of these tests do, each by its role.

use std::path::Path;
use std::time::Duration;

use tenure_core::Reply;
use tenure_sqlite::{Host, SqliteConfig, SqliteStore};

use crate::common::*;

/// Long enough that nothing runs out while a test is played.
const LONG: Duration = Duration::from_secs(600);

/// As a test of its own it does nothing.
#[tokio::test]
async fn plays_its_role() {
    let Some((role, path)) = role() else { return };
    match role.as_str() {
        "open" => open(&path),
        _ => elect(&role, &path).await,
    }
    while listen().is_some() {}
}

/// Opens the store and says how that went.
fn open(path: &Path) {
    match SqliteStore::open(path) {
        Ok(_) => say("opened"),
        Err(error) => say(format!("{:?} {error}", error.kind())),
    }
}

async fn elect(role: &str, path: &Path) {
    let mut config = SqliteConfig::new(path);
    if !role.starts_with("undeclared") {
        config = config.childless();
    }
    let store = config.open().unwrap();
    let mut me = Player::new(&store, "child", u128::from(std::process::id()));
    me.ttl = LONG;
    let (role, argument) = role.split_once(' ').unwrap_or((role, ""));
    match role {
        "campaign" => {
            // Another process may be writing for longer than we wait: then we ask again.
            let said = loop {
                match me.acquire("e", 1).await {
                    Reply::Granted(grant) => break format!("granted {}", grant.term),
                    Reply::Refused(_) => break "refused".to_owned(),
                    Reply::Unknown(error) if error.is_retryable() => {}
                    other => break format!("{other:?}"),
                }
            };
            say(said);
        }
        "hold" | "undeclared" => {
            if let Ok(ms) = argument.parse() {
                me.ttl = Duration::from_millis(ms);
            }
            say(format!("{} {}", Host::detect().unwrap().now_ns(), {
                granted(me.acquire("e", 1).await).term
            }));
        }
        other => panic!("no role {other}"),
    }
}
