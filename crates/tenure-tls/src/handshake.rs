//! Why a handshake failed.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, AlertDescription, ClientConfig, RootCertStore};

use crate::options::Tls;

/// Why a handshake failed. Each store has its own sentence for it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeFailure {
    /// What answers there does not speak TLS.
    NoTls,
    /// The server's certificate is not to be trusted, for this reason.
    Untrusted(String),
    /// The server wants a certificate of the client.
    WantsCertificate,
    /// The server refused, with this alert.
    Refused(String),
    /// Anything else.
    Other(String),
}

impl HandshakeFailure {
    /// What [`Tls::connect`] failed with; `None` if it was not about TLS.
    pub fn of(error: &io::Error) -> Option<HandshakeFailure> {
        use AlertDescription::{CertificateRequired, HandshakeFailure as Handshake};
        Some(match error.get_ref()?.downcast_ref()? {
            rustls::Error::InvalidMessage(_) => HandshakeFailure::NoTls,
            rustls::Error::InvalidCertificate(why) => HandshakeFailure::Untrusted(why.to_string()),
            rustls::Error::AlertReceived(CertificateRequired | Handshake) => {
                HandshakeFailure::WantsCertificate
            }
            rustls::Error::AlertReceived(alert) => HandshakeFailure::Refused(format!("{alert:?}")),
            other => HandshakeFailure::Other(other.to_string()),
        })
    }
}

impl Tls {
    /// Whether what answers on this connection speaks TLS at all.
    ///
    /// # Cancel safety
    /// Cancel safe: the connection is closed.
    pub async fn is_spoken<S>(host: &str, stream: S) -> bool
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions();
        let Ok(config) = config else { return false };
        // No root at all: any certificate is refused, and the server has shown that it has one.
        let config = config.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let Ok(name) = ServerName::try_from(host.to_owned()) else { return false };
        match TlsConnector::from(Arc::new(config)).connect(name, stream).await {
            Ok(_) => true,
            Err(error) => {
                matches!(HandshakeFailure::of(&error), Some(HandshakeFailure::Untrusted(_)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::{TlsOptions, Verify};

    /// Answers whatever comes with this.
    async fn server(mut stream: tokio::io::DuplexStream, answer: &'static [u8]) {
        stream.write_all(answer).await.unwrap();
        stream.shutdown().await.unwrap();
    }

    #[tokio::test]
    async fn a_server_without_tls_is_told_from_one_that_is_gone() {
        let tls = TlsOptions::default().build(Verify::Nothing).unwrap();
        let (near, far) = tokio::io::duplex(4096);
        let (answered, ()) = tokio::join!(tls.connect("h", near), server(far, b"-ERR what?\r\n"));
        let failure = HandshakeFailure::of(&answered.map(|_| ()).unwrap_err());
        assert_eq!(failure, Some(HandshakeFailure::NoTls));
        let (near, far) = tokio::io::duplex(4096);
        let (spoken, ()) = tokio::join!(Tls::is_spoken("h", near), server(far, b"-ERR what?\r\n"));
        assert!(!spoken);
        let (near, far) = tokio::io::duplex(4096);
        drop(far);
        let gone = tls.connect("h", near).await.map(|_| ()).unwrap_err();
        assert_eq!(HandshakeFailure::of(&gone), None);
    }
}
