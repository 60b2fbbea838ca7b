//! Encrypted connections: who is let in, who is trusted, and what is said if not.

use tenure_core::ErrorKind;
use tenure_redis::{RedisConfig, RedisStore};
use tenure_testbed::certificates::Authority;

use crate::common::fleet::{PASSWORD, Secured, tls_settings};
use crate::common::{self, Server, granted, ms, player};

fn store(url: &str) -> RedisStore {
    RedisConfig::from_url(url).unwrap().open().unwrap()
}

/// Why a server can't be used.
async fn refusal(url: &str) -> (ErrorKind, String) {
    let error = store(url).check().await.unwrap_err();
    assert!(!format!("{error:?}").contains(PASSWORD), "{error:?}");
    (error.kind(), error.message().to_owned())
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_an_encrypted_connection_carries_leases_and_hints() {
    let secured = Secured::start();
    let store = store(&format!("{}&settle=off", secured.url()));
    store.check().await.unwrap();
    assert!(store.address().starts_with("rediss://tenure@127.0.0.1"), "{}", store.address());
    let a = player("jobs", "a", ms(3_000));
    let term = a.takes(&store, 1).await.term;
    let mut hints = tenure_core::Store::hints(&store);
    let mut next = async || std::future::poll_fn(|cx| hints.poll_next(cx)).await.unwrap();
    assert_eq!(next().await, tenure_core::Hint::Any);
    granted(a.release(&store, Some(term), 1).await);
    assert_eq!(next().await, tenure_core::Hint::Election(a.election.clone()));
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_server_that_is_not_who_it_should_be_is_refused() {
    let secured = Secured::start();
    let (port, other) = (secured.tls_port, Authority::new());
    let elsewhere = Secured::start_as(&["elsewhere"]);
    let ours = secured.authority.path("ca.pem").display().to_string();
    let others = other.path("ca.pem").display().to_string();
    let at = |host: &str, options: &str| format!("rediss://u:{PASSWORD}@{host}:{port}/0?{options}");
    for (url, word) in [
        (at("127.0.0.1", &format!("sslrootcert={others}")), "sslrootcert=PATH"),
        (at("127.0.0.1", ""), "sslrootcert=PATH"),
        (Secured::url(&elsewhere), "as the certificate does"),
    ] {
        let (_, message) = refusal(&url).await;
        assert!(message.contains(word), "{message}");
    }
    let (kind, message) = refusal(&at("127.0.0.1", &format!("sslrootcert={ours}"))).await;
    assert_eq!(kind, ErrorKind::Config);
    assert!(message.contains("sslcert=PATH"), "it wants one of ours: {message}");
    let (certificate, key) = other.issue("stranger", &["stranger"]);
    let (certificate, key) = (certificate.display(), key.display());
    let stranger = format!("sslrootcert={ours}&sslcert={certificate}&sslkey={key}");
    let (kind, message) = refusal(&at("127.0.0.1", &stranger)).await;
    assert_eq!(kind, ErrorKind::Denied, "{message}");
    assert!(message.contains("look at sslcert"), "{message}");
}

#[needs(redis)]
#[tokio::test]
async fn needs_redis_tls_to_a_plain_port_and_the_reverse_are_told_apart() {
    let secured = Secured::start();
    let plain = format!("redis://:{PASSWORD}@127.0.0.1:{}", secured.tls_port);
    let (kind, message) = refusal(&plain).await;
    assert_eq!(kind, ErrorKind::Config, "{message}");
    assert!(message.contains("speaks TLS; write rediss://"), "{message}");

    let server = Server::start();
    let ours = secured.authority.path("ca.pem").display().to_string();
    let encrypted = format!("rediss://127.0.0.1:{}?sslrootcert={ours}", server.port);
    let (kind, message) = refusal(&encrypted).await;
    assert_eq!(kind, ErrorKind::Config, "{message}");
    assert!(message.contains("answers without TLS; write redis://"), "{message}");
}

/// The user's own client brings its own way of connecting.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_store_from_the_user_s_own_client_works() {
    let server = Server::start();
    let client = redis::Client::open(server.url()).unwrap();
    let config = RedisConfig::from_client(&client).with_settle(tenure_redis::Settle::Off);
    assert_eq!(config.address(), server.url());
    let store = config.open().unwrap();
    let a = player("jobs", "a", ms(3_000));
    let term = a.takes(&store, 1).await.term;
    let mut hints = tenure_core::Store::hints(&store);
    let mut next = async || std::future::poll_fn(|cx| hints.poll_next(cx)).await.unwrap();
    assert_eq!(next().await, tenure_core::Hint::Any);
    granted(a.release(&store, Some(term), 1).await);
    assert_eq!(next().await, tenure_core::Hint::Election(a.election.clone()));
}

/// TLS everywhere, to a Cluster of one.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_a_cluster_speaks_tls() {
    let (authority, tls_port) = (Authority::new(), common::free_port());
    let mut settings = tls_settings(&authority, tls_port, "no", &["127.0.0.1"]);
    let bus = common::free_port().to_string();
    let more = ["--cluster-enabled", "yes", "--cluster-port", &bus, "--tls-cluster", "yes"];
    settings.extend(more.map(str::to_owned));
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let server = Server::start_with(&settings);
    assert_eq!(server.run(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]), "+OK");
    server.until(&["CLUSTER", "INFO"], "cluster_state:ok");
    let root = authority.path("ca.pem").display().to_string();
    let url = format!("rediss+cluster://127.0.0.1:{tls_port}?sslrootcert={root}&settle=off");
    let store = store(&url);
    store.check().await.unwrap();
    player("jobs", "a", ms(3_000)).takes(&store, 1).await;
    let clients = server.run(&["CLUSTER", "SLOTS"]);
    assert!(clients.starts_with("*1"), "{clients}");
}

/// TLS everywhere, to the sentinel and to the server that it names.
#[needs(redis)]
#[tokio::test]
async fn needs_redis_sentinels_speak_tls() {
    let (authority, tls_port) = (Authority::new(), common::free_port());
    let settings = tls_settings(&authority, tls_port, "no", &["127.0.0.1"]);
    let words: Vec<&str> = settings.iter().map(String::as_str).collect();
    let _server = Server::start_with(&words);
    let sentinel_port = common::free_port();
    let settings = tls_settings(&authority, sentinel_port, "no", &["127.0.0.1"]);
    let mut lines = format!("tls-replication yes\nsentinel monitor main 127.0.0.1 {tls_port} 1\n");
    for pair in settings.chunks(2) {
        lines += &format!("{} {}\n", pair[0].trim_start_matches('-'), pair[1]);
    }
    let sentinel = Server::start_sentinel(&lines);
    let root = authority.path("ca.pem").display().to_string();
    let url = |scheme: &str, port: u16| {
        format!("{scheme}://127.0.0.1:{port}/main?settle=off&sslrootcert={root}")
    };
    let store = store(&url("rediss+sentinel", sentinel_port));
    store.check().await.unwrap();
    player("jobs", "a", ms(3_000)).takes(&store, 1).await;
    let (_, message) = refusal(&url("rediss+sentinel", sentinel.port)).await;
    assert!(message.contains("answers without TLS"), "{message}");
    let plain = format!("redis+sentinel://127.0.0.1:{sentinel_port}/main");
    let (_, message) = refusal(&plain).await;
    assert!(message.contains("speaks TLS"), "{message}");
}
