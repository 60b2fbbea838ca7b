//! From the options of a URL to something that encrypts.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use tenure_core::Error;
use tenure_core::sync::lock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::anyone::Anyone;
use crate::chain::Chain;
use crate::stream::TlsStream;

/// What a URL says about TLS: paths of PEM files, in the options `sslrootcert`, `sslcert` and
/// `sslkey`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// The certificates to verify the server by. `None` or `system`: those of the system.
    pub root: Option<String>,
    /// The client's own certificate, with its chain.
    pub certificate: Option<String>,
    /// The key of that certificate.
    pub key: Option<String>,
    /// What the connection is for, for servers that ask (ALPN).
    pub protocol: Option<&'static str>,
}

/// Whom to talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Only to a server whose certificate is trusted and names the host.
    Server,
    /// Only to a server whose certificate is trusted, whichever host it names.
    Chain,
    /// To anyone who answers. This hides the traffic from those who listen, and does not stop
    /// those who answer in the server's place.
    Nothing,
}

/// Encrypts connections. A clone is another handle onto the same settings.
///
/// Certificates are renewed while programs run: files that have changed are read again for the
/// next connection. If they can't be used, perhaps because somebody is writing them, the ones
/// before are, and it is tried again for the connection after that.
#[derive(Clone)]
pub struct Tls(Arc<Source>);

struct Source {
    options: TlsOptions,
    verify: Verify,
    read: Mutex<(Vec<Stamp>, TlsConnector)>,
}

/// By what a file that has changed is told: when it was written, its length, and its number.
type Stamp = Option<(SystemTime, u64, u64)>;

impl TlsOptions {
    /// Reads the files now, so that a wrong path is reported before anything is connected.
    ///
    /// # Errors
    /// `Config` if a file can't be read, a certificate and its key do not go together, or there is
    /// no root to verify the server by.
    pub fn build(&self, verify: Verify) -> Result<Tls, Error> {
        let read = Mutex::new((self.stamps(), self.read(verify)?));
        Ok(Tls(Arc::new(Source { options: self.clone(), verify, read })))
    }

    fn stamps(&self) -> Vec<Stamp> {
        let stamp = |path: &String| {
            let meta = std::fs::metadata(path).ok()?;
            Some((meta.modified().ok()?, meta.len(), meta.ino()))
        };
        [&self.root, &self.certificate, &self.key].into_iter().flatten().map(stamp).collect()
    }

    fn read(&self, verify: Verify) -> Result<TlsConnector, Error> {
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::config(format!("TLS can't be set up: {error}")))?;
        let config = match verify {
            Verify::Server => config.with_webpki_verifier(self.verifier(provider)?),
            Verify::Chain => {
                let verifier = Arc::new(Chain(self.verifier(provider)?));
                config.dangerous().with_custom_certificate_verifier(verifier)
            }
            Verify::Nothing => {
                config.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(provider)))
            }
        };
        let mut config = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                let key = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| unreadable("sslkey", key, &error))?;
                let chain = certificates("sslcert", certificate)?;
                config.with_client_auth_cert(chain, key).map_err(|error| {
                    Error::config(format!("sslcert and sslkey do not go together: {error}"))
                })?
            }
            (None, None) => config.with_no_client_auth(),
            _ => return Err(Error::config("sslcert and sslkey go together; give both or none")),
        };
        config.alpn_protocols = self.protocol.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(TlsConnector::from(Arc::new(config)))
    }

    fn verifier(&self, provider: Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, Error> {
        let mut roots = RootCertStore::empty();
        match self.root.as_deref() {
            None | Some("system") => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
            Some(path) => {
                for root in certificates("sslrootcert", path)? {
                    roots.add(root).map_err(|error| unreadable("sslrootcert", path, &error))?;
                }
            }
        }
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().map_err(
            |_| {
                Error::config(
                    "there is no certificate to verify the server by; name the file of its CA \
                     with sslrootcert=PATH",
                )
            },
        )
    }
}

impl Tls {
    /// Encrypts a connection to this host.
    ///
    /// # Cancel safety
    /// Cancel safe: the connection is closed.
    ///
    /// # Errors
    /// What went wrong in the handshake;
    /// [`HandshakeFailure::of`](crate::HandshakeFailure::of) tells what it was.
    pub async fn connect<S>(&self, host: &str, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connector = self.connector();
        Ok(TlsStream(Box::new(connector.connect(name, stream).await?)))
    }

    fn connector(&self) -> TlsConnector {
        let Source { options, verify, read } = &*self.0;
        let mut read = lock(read);
        let stamps = options.stamps();
        // What can't be used now is tried again with the next connection.
        if stamps != read.0
            && let Ok(connector) = options.read(*verify)
        {
            *read = (stamps, connector);
        }
        read.1.clone()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

fn certificates(option: &str, path: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    CertificateDer::pem_file_iter(Path::new(path))
        .and_then(Iterator::collect)
        .map_err(|error| unreadable(option, path, &error))
}

fn unreadable(option: &str, path: &str, error: &dyn fmt::Display) -> Error {
    Error::config(format!("{option}={path} can't be read: {error}; give a PEM file"))
}

#[cfg(test)]
mod tests {
    use rcgen::generate_simple_self_signed;

    use super::*;

    /// The files of a certificate and of its key.
    fn files(home: &Path) -> (String, String) {
        let made = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let write = |name: &str, pem: String| {
            let path = home.join(name);
            std::fs::write(&path, pem).unwrap();
            path.display().to_string()
        };
        (write("c.pem", made.cert.pem()), write("k.pem", made.signing_key.serialize_pem()))
    }

    #[test]
    fn files_that_are_missing_or_no_pem_are_named() {
        let home = tempfile::tempdir().unwrap();
        let (certificate, key) = files(home.path());
        let none = TlsOptions::default();
        let says = |options: TlsOptions| options.build(Verify::Server).unwrap_err().to_string();
        let wrong = Some("/no/such/file".to_owned());
        let text = says(TlsOptions { root: wrong.clone(), ..none.clone() });
        assert!(text.contains("sslrootcert=/no/such/file can't be read"), "{text}");
        let root = Some(certificate.clone());
        let text = says(TlsOptions { root: root.clone(), key: Some(key.clone()), ..none.clone() });
        assert!(text.contains("give both or none"), "{text}");
        let (certificate, key) = (Some(certificate), Some(key));
        let all = TlsOptions { root, certificate, key, protocol: None };
        let text = says(TlsOptions { certificate: wrong.clone(), ..all.clone() });
        assert!(text.contains("sslcert=/no/such/file"), "{text}");
        let text = says(TlsOptions { key: wrong, ..all.clone() });
        assert!(text.contains("sslkey=/no/such/file"), "{text}");
        assert!(all.build(Verify::Server).is_ok() && none.build(Verify::Nothing).is_ok());
    }
}
