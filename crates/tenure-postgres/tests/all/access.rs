//! Ways in: unix sockets, password files, SCRAM, and certificates of clients.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use tenure_core::ErrorKind;
use tenure_postgres::{PostgresConfig, PostgresStore};
use tenure_testbed::certificates::{Authority, Certificate};
use tenure_testbed::postgres::OwnServer;

use crate::common::{self, Player, until};

fn open(url: &str) -> PostgresStore {
    PostgresConfig::from_url(url).unwrap().open()
}

async fn leads(url: &str, election: &str) {
    Player::new(&open(url), "a", 1).takes(election, 1).await;
}

/// Everybody but its superuser needs a password or a certificate.
const HBA: &str = "\
    local all postgres trust\n\
    local all all scram-sha-256\n\
    host all postgres 127.0.0.1/32 trust\n\
    hostssl all certified 127.0.0.1/32 cert\n\
    hostssl all twice 127.0.0.1/32 scram-sha-256 clientcert=verify-full\n\
    host all all 127.0.0.1/32 scram-sha-256\n";

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_unix_sockets_password_files_and_scram_let_us_in() {
    let mut server = OwnServer::new(&["password_encryption=scram-sha-256"]);
    let home = server.home.path().display().to_string();
    server.set(format!("unix_socket_directories={home}"));
    server.put("pg_hba.conf", HBA);
    server.start();
    let port = server.port;
    let admin = open(&server.url("postgres"));
    until("the server is up", || async { admin.migrate().await.is_ok() }).await;
    let session = common::Session::open(&server.url("postgres")).await;
    session.run("CREATE ROLE app LOGIN PASSWORD 'pa:ss\\word'").await;
    session.run("GRANT ALL ON ALL TABLES IN SCHEMA public TO app").await;

    // A socket, named as libpq has it, by whom nothing is asked and who has to say a password.
    let socket = home.replace('/', "%2F");
    leads(&format!("postgres://postgres@{socket}:{port}/postgres"), "socket").await;
    leads(&format!("postgres:///postgres?host={home}&port={port}&user=postgres"), "option").await;
    // A socket is never encrypted, whatever is asked for; as with libpq.
    leads(&format!("postgres://postgres@{socket}:{port}/postgres?sslmode=require"), "tls").await;
    let address = open(&format!("postgres://postgres@{socket}:{port}/postgres")).address();
    assert_eq!(address, format!("postgres://postgres@{home}:{port}/postgres"));

    // SCRAM with a password in the URL, in a file, and with none.
    let app = |options: &str| format!("postgres://app@127.0.0.1:{port}/postgres?{options}");
    let in_url = app("").replace("app@", "app:pa%3Ass%5Cword@");
    leads(&in_url, "scram").await;
    let file = server.home.path().join("passwords");
    let line = format!("127.0.0.1:{port}:*:app:pa\\:ss\\\\word\n*:*:*:postgres:no");
    fs::write(&file, &line).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let named = app(&format!("passfile={}", file.display()));
    leads(&named, "file").await;
    // Passwords change: the file is read at each connection.
    let store = open(&named);
    fs::write(&file, line.replace("ss", "hunter2")).unwrap();
    let wrong = store.check().await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Denied, "{wrong}");
    assert!(wrong.message().contains("fix the password"), "{wrong}");
    assert!(!format!("{wrong:?}").contains("hunter2"), "{wrong:?}");
    fs::write(&file, line.replace("127.0.0.1", "localhost")).unwrap();
    leads(&format!("postgres://app@{socket}:{port}/postgres?passfile={}", file.display()), "s")
        .await;
    let none = open(&app("passfile=")).check().await.unwrap_err();
    assert_eq!(none.kind(), ErrorKind::Denied, "{none}");
    assert!(none.message().contains("passfile=PATH"), "{none}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let open_to_all = open(&named).check().await.unwrap_err();
    assert!(open_to_all.message().contains("chmod 0600"), "{open_to_all}");
    let bound = open(&in_url.replace('?', "?channel_binding=require&")).check().await.unwrap_err();
    assert!(bound.message().contains("it needs TLS"), "{bound}");
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_certificates_of_clients_let_us_in_and_others_do_not() {
    let settings = ["ssl=on", "ssl_ca_file=ca.crt"];
    let mut server = OwnServer::new(&settings);
    let (ours, other) = (Authority::new(), Authority::new());
    let certificate = ours.certify("server", &["localhost"]);
    server.put("server.crt", &certificate.pem);
    server.put("server.key", &certificate.key);
    server.put("ca.crt", &ours.pem());
    server.put("pg_hba.conf", HBA);
    let file = |name: &str, pem: &str| {
        let path = server.home.path().join(name);
        fs::write(&path, pem).unwrap();
        path.display().to_string()
    };
    let root = file("root.pem", &ours.pem());
    let pair = |name: &str, Certificate { pem, key }: Certificate| {
        let certificate = file(&format!("{name}.crt"), &pem);
        format!("sslcert={certificate}&sslkey={}", file(&format!("{name}.key"), &key))
    };
    let certified = pair("certified", ours.certify_client("certified"));
    let both = pair("both", ours.certify_client("twice"));
    let forged = pair("forged", other.certify_client("certified"));
    server.start();
    let admin = open(&format!("{}?sslmode=disable", server.url("postgres")));
    until("the server is up", || async { admin.migrate().await.is_ok() }).await;
    let session = common::Session::open(&server.url("postgres")).await;
    session.run("CREATE ROLE certified LOGIN; CREATE ROLE twice LOGIN PASSWORD 'right'").await;
    session.run("GRANT ALL ON ALL TABLES IN SCHEMA public TO certified, twice").await;

    // Managed services put it into the URL that they hand out.
    session.run("CREATE ROLE bound LOGIN PASSWORD 'right'").await;
    session.run("GRANT ALL ON ALL TABLES IN SCHEMA public TO bound").await;
    let bound = format!("postgres://bound:right@localhost:{}/postgres", server.port);
    leads(&format!("{bound}?sslmode=require&channel_binding=require"), "bound").await;
    let disabled = format!("{bound}?sslmode=disable&channel_binding=require");
    let error = open(&disabled).check().await.unwrap_err();
    assert!(error.message().contains("it needs TLS"), "{error}");

    let verify = format!("sslmode=verify-full&sslrootcert={root}");
    let at = |user: &str, options: &str| {
        format!("postgres://{user}@localhost:{}/postgres?{verify}&{options}", server.port)
    };
    leads(&at("certified", &certified), "cert").await;
    leads(&at("twice:right", &both), "both").await;
    for (user, options, word) in [
        // None; of somebody else; of another authority; without the password.
        ("certified", "", "certificate"),
        ("certified", both.as_str(), "certificate"),
        ("certified", forged.as_str(), "certificate"),
        ("twice:hunter2", both.as_str(), "password"),
        ("twice", both.as_str(), "passfile"),
    ] {
        let error = open(&at(user, options)).check().await.unwrap_err();
        assert!(error.message().contains(word), "{user} {options}: {error}");
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }
    for (options, word) in [
        (format!("sslcert={root}"), "give both or none"),
        (format!("sslcert={root}&sslkey={root}"), "sslkey"),
        (format!("{certified}&sslrootcert=/nonexistent"), "/nonexistent"),
    ] {
        let url = format!("postgres://u:hunter2@localhost/d?sslmode=verify-full&{options}");
        let error = PostgresConfig::from_url(&url).unwrap_err();
        assert!(error.message().contains(word), "{error}");
    }
}

#[needs(postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_server_without_tls_is_told_to_whoever_requires_it() {
    let server = common::server();
    let error = common::config(&server, "sslmode=require").open().check().await.unwrap_err();
    assert!(error.message().contains("turn ssl on there"), "{error}");
}
