//! Several servers that belong together: with TLS and ACL users, under Sentinel, a Cluster.

use tenure_redis::RedisConfig;
use tenure_testbed::certificates::Authority;
pub(crate) use tenure_testbed::redis_sets::{ClusterSet, SentinelSet};

use super::{Server, Stores, free_port};

/// A server with TLS on a port of its own, client certificates, and the documented ACL user.
pub(crate) struct Secured {
    /// It runs for as long as this lives.
    _server: Server,
    pub(crate) tls_port: u16,
    pub(crate) authority: Authority,
}

/// The password of the ACL user.
pub(crate) const PASSWORD: &str = "geheim-4711";

impl Secured {
    pub(crate) fn start() -> Secured {
        Secured::start_as(&["localhost", "127.0.0.1"])
    }

    /// With a certificate for these hosts.
    pub(crate) fn start_as(hosts: &[&str]) -> Secured {
        let (authority, tls_port) = (Authority::new(), free_port());
        authority.issue("client", &["client"]);
        let settings = tls_settings(&authority, tls_port, "yes", hosts);
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let server = Server::start_with(&settings);
        let acl = documented_acl("*");
        let acl: Vec<&str> = acl.iter().map(String::as_str).collect();
        assert_eq!(server.run(&acl), "+OK");
        Secured { _server: server, tls_port, authority }
    }

    /// A URL with the ACL user, TLS and a client certificate.
    pub(crate) fn url(&self) -> String {
        let file = |name: &str| self.authority.path(name).display().to_string();
        format!(
            "rediss://tenure:{PASSWORD}@127.0.0.1:{}/0?sslrootcert={}&sslcert={}&sslkey={}",
            self.tls_port,
            file("ca.pem"),
            file("client.pem"),
            file("client.key")
        )
    }
}

/// What a server needs on its command line to speak TLS on this port.
pub(crate) fn tls_settings(
    authority: &Authority,
    port: u16,
    clients: &str,
    hosts: &[&str],
) -> Vec<String> {
    let (certificate, key) = authority.issue("server", hosts);
    let words = ["--tls-port", &port.to_string(), "--tls-auth-clients", clients];
    let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    for (name, path) in [
        ("--tls-cert-file", certificate),
        ("--tls-key-file", key),
        ("--tls-ca-cert-file", authority.path("ca.pem")),
    ] {
        words.extend([name.to_owned(), path.display().to_string()]);
    }
    words
}

/// The words of the command in the README that makes an ACL user, for keys under this prefix.
pub(crate) fn documented_acl(prefix: &str) -> Vec<String> {
    let readme = include_str!("../../../README.md");
    let (_, command) = readme.split_once("```text\nACL").unwrap();
    let (command, _) = command.split_once("```").unwrap();
    let words = std::iter::once("ACL").chain(command.split_whitespace());
    let replaced = |word: &str| {
        let word = word.replace("PASSWORD", PASSWORD);
        match (prefix, word.as_str()) {
            ("*", "~app:*") => "~*".to_owned(),
            ("*", "&app:tenure:hints*") => "&*".to_owned(),
            _ => word,
        }
    };
    words.map(replaced).collect()
}

impl Stores for SentinelSet {
    fn config(&self) -> RedisConfig {
        RedisConfig::from_url(&self.url()).unwrap()
    }
}

impl Stores for ClusterSet {
    fn config(&self) -> RedisConfig {
        RedisConfig::from_url(&self.url()).unwrap()
    }
}
