//! Certificates of our own.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// A certificate authority, and the directory with all that it issued.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: tempfile::TempDir,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "an authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Authority { issuer, directory: tempfile::tempdir().unwrap() };
        std::fs::write(authority.path("ca.pem"), authority.issuer.pem()).unwrap();
        authority
    }

    /// Writes `NAME.pem` and `NAME.key` for these hosts.
    pub(crate) fn issue(&self, name: &str, hosts: &[&str]) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let (pem, secret) = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        std::fs::write(&pem, certificate.pem()).unwrap();
        std::fs::write(&secret, key.serialize_pem()).unwrap();
        (pem, secret)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What a server needs on its command line to speak TLS on this port.
    pub(crate) fn settings(&self, port: u16, clients: &str, hosts: &[&str]) -> Vec<String> {
        let (certificate, key) = self.issue("server", hosts);
        let words = ["--tls-port", &port.to_string(), "--tls-auth-clients", clients];
        let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        for (name, path) in [
            ("--tls-cert-file", certificate),
            ("--tls-key-file", key),
            ("--tls-ca-cert-file", self.path("ca.pem")),
        ] {
            words.extend([name.to_owned(), path.display().to_string()]);
        }
        words
    }
}
