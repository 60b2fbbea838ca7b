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
        ("localhost", "sslmode=verify-full".to_owned()),
        // The certificate is for another name.
        ("127.0.0.1", verified.clone()),
    ] {
        let error = store(host, &options).check().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{options}: {error}");
        assert!(error.message().contains("certificate"), "{options}: {error}");
    }
}
