//! Certificates of our own.

use std::fs;
use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use tempfile::TempDir;

/// A certificate authority, and a directory with what it issued.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: TempDir,
}

/// A certificate and its key, as PEM.
pub struct Certificate {
    /// The certificate.
    pub pem: String,
    /// The private key.
    pub key: String,
}

impl Authority {
    /// An authority that nobody trusts yet. Its own certificate is in the file `ca.pem`.
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "an authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Self { issuer, directory: tempfile::tempdir().unwrap() };
        fs::write(authority.path("ca.pem"), authority.pem()).unwrap();
        authority
    }

    /// Its own certificate.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate for these hosts.
    pub fn certify(&self, name: &str, hosts: &[&str]) -> Certificate {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        self.sign(name, CertificateParams::new(hosts).unwrap())
    }

    /// A certificate for a client of this name.
    pub fn certify_client(&self, name: &str) -> Certificate {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(name, params)
    }

    fn sign(&self, name: &str, mut params: CertificateParams) -> Certificate {
        let key = KeyPair::generate().unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        Certificate { pem, key: key.serialize_pem() }
    }

    /// Writes `NAME.pem` and `NAME.key` for these hosts.
    pub fn issue(&self, name: &str, hosts: &[&str]) -> (PathBuf, PathBuf) {
        let certificate = self.certify(name, hosts);
        let (pem, key) = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        fs::write(&pem, certificate.pem).unwrap();
        fs::write(&key, certificate.key).unwrap();
        (pem, key)
    }

    /// Where a file of this name is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}
