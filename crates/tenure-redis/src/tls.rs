//! TLS by rustls with ring. The server is always verified.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tenure_core::Error;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

/// What is to be said of a server that does not speak TLS.
pub(crate) const WITHOUT: &str = "answers without TLS; write redis:// instead of rediss://, or \
                                  name the port that speaks TLS";

/// What a URL says about TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) root: Option<String>,
    pub(crate) certificate: Option<String>,
    pub(crate) key: Option<String>,
}

/// How to encrypt connections, ready for use.
#[derive(Clone)]
pub(crate) struct Tls(TlsConnector);

impl Options {
    /// Reads the files now, so that a wrong path is told before anything is connected.
    pub(crate) fn build(&self) -> Result<Tls, Error> {
        let provider = Arc::new(ring::default_provider());
        let roots = Arc::new(self.roots()?);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
            .build()
            .map_err(|_| {
                Error::config(
                    "there is no certificate to verify the server by; name the file of its CA \
                     with sslrootcert=PATH",
                )
            })?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::config(format!("TLS can't be set up: {error}")))?
            .with_webpki_verifier(verifier);
        let config = match (&self.certificate, &self.key) {
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
        Ok(Tls(TlsConnector::from(Arc::new(config))))
    }

    fn roots(&self) -> Result<RootCertStore, Error> {
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
        Ok(roots)
    }
}

impl Tls {
    /// Encrypts a connection to this host.
    pub(crate) async fn wrap(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        self.0.connect(name, stream).await
    }
}

/// Whether what listens here speaks TLS, whoever it is.
pub(crate) async fn is_spoken(host: &str, stream: TcpStream) -> bool {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions();
    let Ok(config) = config else { return false };
    // No root at all: whoever shows a certificate is refused, and has spoken TLS.
    let config = config.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    match Tls(TlsConnector::from(Arc::new(config))).wrap(host, stream).await {
        Ok(_) => true,
        Err(error) => matches!(cause(&error), Some(rustls::Error::InvalidCertificate(_))),
    }
}

/// Why a handshake failed, as a sentence about the server.
pub(crate) fn advice(error: &io::Error) -> Option<String> {
    use rustls::AlertDescription::{CertificateRequired, HandshakeFailure};
    Some(match cause(error)? {
        rustls::Error::InvalidMessage(_) => WITHOUT.to_owned(),
        rustls::Error::InvalidCertificate(why) => format!(
            "has a certificate that is not to be trusted ({why}); name the file of its CA with \
             sslrootcert=PATH, and the host as the certificate does"
        ),
        rustls::Error::AlertReceived(CertificateRequired | HandshakeFailure) => {
            "wants a certificate of yours; give sslcert=PATH and sslkey=PATH".to_owned()
        }
        rustls::Error::AlertReceived(alert) => {
            format!("refused the handshake ({alert:?}); look at sslcert, sslkey and the CA it has")
        }
        other => format!("and this client do not agree on TLS: {other}; look at both ends"),
    })
}

fn cause(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

fn certificates(option: &str, path: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    CertificateDer::pem_file_iter(Path::new(path))
        .and_then(Iterator::collect)
        .map_err(|error| unreadable(option, path, &error))
}

fn unreadable(option: &str, path: &str, error: &dyn fmt::Display) -> Error {
    Error::config(format!("{option}={path} can't be read: {error}; give a PEM file"))
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}
