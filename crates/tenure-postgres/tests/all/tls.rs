//! Encrypted connections, and servers that are not who they should be.

use std::fs;

use tenure_core::ErrorKind;
use tenure_postgres::{PostgresConfig, PostgresStore};
use tenure_testbed::certificates::Authority;
use tenure_testbed::postgres::OwnServer;

use crate::common::{Player, Session, until};

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_connections_are_encrypted_and_servers_verified_as_asked() {
    let mut server = OwnServer::new(&["ssl=on"]);
    let (ours, other) = (Authority::new(), Authority::new());
    let certificate = ours.certify("server", &["localhost"]);
    server.put("server.crt", &certificate.pem);
    server.put("server.key", &certificate.key);
    let root = |name: &str, pem: String| {
        let path = server.home.path().join(name);
        fs::write(&path, pem).unwrap();
        path.display().to_string()
    };
    let (ours, other) = (root("ours.pem", ours.pem()), root("other.pem", other.pem()));
    server.start();
    let place = |host: &str| format!("postgres://postgres@{host}:{}/postgres", server.port);
    let store = |host: &str, options: &str| -> PostgresStore {
        let name = options.replace(['/', '&', '='], " ").chars().take(40).collect::<String>();
        let url = format!("{}?application_name={}&{options}", place(host), name.replace(' ', "-"));
        PostgresConfig::from_url(&url).unwrap().open()
    };
    let first = store("localhost", "sslmode=disable");
    until("the server is up", || async { first.migrate().await.is_ok() }).await;
    let admin = Session::open(&place("127.0.0.1")).await;
    let encrypted = "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE query LIKE '%.tenure\\_%' AND pid <> pg_backend_pid() \
                     ORDER BY query_start DESC LIMIT 1";
    let verified = format!("sslmode=verify-full&sslrootcert={ours}");
    // The name of the host does not matter to these, as with libpq.
    for (number, options) in ["verify-ca", "require"].into_iter().enumerate() {
        let store = store("127.0.0.1", &format!("sslmode={options}&sslrootcert={ours}"));
        Player::new(&store, "a", 1).takes(&format!("ca{number}"), 1).await;
        assert!(admin.truth(encrypted).await);
    }
    for (number, (options, expected)) in [
        ("sslmode=disable", false),
        ("sslmode=prefer", true),
        ("", true),
        ("sslmode=require", true),
        (verified.as_str(), true),
    ]
    .into_iter()
    .enumerate()
    {
        let store = store("localhost", options);
        Player::new(&store, "a", 1).takes(&format!("e{number}"), 1).await;
        assert_eq!(admin.truth(encrypted).await, expected, "{options:?}");
    }
    for (host, options) in [
        ("localhost", format!("sslmode=verify-full&sslrootcert={other}")),
        ("localhost", format!("sslmode=require&sslrootcert={other}")),
        ("localhost", format!("sslmode=verify-ca&sslrootcert={other}")),
        ("localhost", "sslmode=verify-full".to_owned()),
        // The certificate is for another name.
        ("127.0.0.1", verified.clone()),
    ] {
        let error = store(host, &options).check().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{options}: {error}");
        assert!(error.message().contains("certificate"), "{options}: {error}");
    }
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_certificates_that_changed_are_read_again_and_direct_tls_is_spoken() {
    let mut server = OwnServer::new(&["ssl=on"]);
    let (ours, other) = (Authority::new(), Authority::new());
    let certificate = ours.certify("server", &["localhost"]);
    server.put("server.crt", &certificate.pem);
    server.put("server.key", &certificate.key);
    let root = server.home.path().join("root.pem");
    fs::write(&root, ours.pem()).unwrap();
    server.start();
    let url = format!("postgres://postgres@localhost:{}/postgres", server.port);
    let open =
        |options: &str| PostgresConfig::from_url(&format!("{url}?{options}")).unwrap().open();
    let plain = open("sslmode=disable");
    until("the server is up", || async { plain.migrate().await.is_ok() }).await;
    let admin = Session::open(&server.url("postgres")).await;
    let verify = format!("sslmode=verify-full&sslrootcert={}", root.display());
    let store = open(&format!("{verify}&application_name=rereads"));
    store.check().await.unwrap();
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE application_name = 'rereads'";
    let garbage = "-----BEGIN CERTIFICATE-----\nhalf".to_owned();
    // What is half written is not used, and what was there before is.
    for (pem, works) in [
        (other.pem(), false),
        (ours.pem(), true),
        (garbage, true),
        (other.pem(), false),
        (ours.pem(), true),
    ] {
        fs::write(&root, &pem).unwrap();
        admin.number(cut).await;
        until("the new certificate counts", || async {
            match store.check().await {
                Ok(()) => works,
                Err(error) => !works && error.message().contains("certificate"),
            }
        })
        .await;
    }

    let knows =
        admin.number("SELECT current_setting('server_version_num')::bigint").await >= 170_000;
    match open(&format!("{verify}&sslnegotiation=direct")).check().await {
        Ok(()) => assert!(knows, "it can't have been direct"),
        Err(error) => {
            assert!(!knows, "{error}");
            assert!(error.message().contains("PostgreSQL 17"), "{error}");
        }
    }
    for (options, word) in [
        ("sslmode=prefer&sslnegotiation=direct", "needs sslmode=require"),
        ("sslmode=require&sslnegotiation=odd", "is not known"),
    ] {
        let error = PostgresConfig::from_url(&format!("{url}?{options}")).unwrap_err();
        assert!(error.message().contains(word), "{error}");
    }
}
