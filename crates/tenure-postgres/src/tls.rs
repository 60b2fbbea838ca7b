//! TLS by rustls with ring, as the options of libpq ask for it.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tenure_core::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
};

/// What a URL says about TLS.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) mode: Option<String>,
    pub(crate) root: Option<String>,
    pub(crate) certificate: Option<String>,
    pub(crate) key: Option<String>,
}

/// How to encrypt connections, ready for use.
#[derive(Clone)]
pub(crate) struct Tls(TlsConnector);

impl Options {
    /// When to encrypt, and how. Files are read now.
    pub(crate) fn build(&self) -> Result<(SslMode, Tls), Error> {
        let (mode, verify) = match self.mode.as_deref().unwrap_or("prefer") {
            "disable" => (SslMode::Disable, false),
            "prefer" | "allow" => (SslMode::Prefer, false),
            // As with libpq: whoever names a root wants it to count.
            "require" => (SslMode::Require, self.root.is_some()),
            "verify-full" => (SslMode::Require, true),
            other => {
                return Err(Error::config(format!(
                    "sslmode={other} is not known; use disable, prefer, require or verify-full"
                )));
            }
        };
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::config(format!("TLS can't be set up: {error}")))?;
        let config = if verify {
            config.with_webpki_verifier(self.verifier(provider)?)
        } else {
            config.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        };
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
        Ok((mode, Tls(TlsConnector::from(Arc::new(config)))))
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

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Stream<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> io::Result<Handshake> {
        Ok(Handshake { connector: self.0.clone(), domain: domain.to_owned() })
    }
}

/// One connection about to be encrypted.
pub(crate) struct Handshake {
    connector: TlsConnector,
    /// Empty for a unix socket, which is never encrypted.
    domain: String,
}

impl<S> TlsConnect<S> for Handshake
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from(self.domain).map_err(io::Error::other)?;
            Ok(Stream(Box::new(self.connector.connect(name, stream).await?)))
        })
    }
}

/// An encrypted connection.
pub(crate) struct Stream<S>(Box<TlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> tokio_postgres::tls::TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}

/// Takes whoever answers, as `prefer` and `require` do: encrypted against those who listen, open
/// to those who answer in the server's stead.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let known = &self.0.signature_verification_algorithms;
        tokio_rustls::rustls::crypto::verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let known = &self.0.signature_verification_algorithms;
        tokio_rustls::rustls::crypto::verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
