//! When to encrypt, as `sslmode` asks for it, and what the driver needs for that.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tenure_core::Error;
use tenure_tls::{TlsOptions, TlsStream, Verify};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};

/// What the connection is for, which servers since PostgreSQL 17 want to know (ALPN).
const PROTOCOL: &str = "postgresql";

/// What a URL says about TLS.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) mode: Option<String>,
    pub(crate) negotiation: Option<String>,
    pub(crate) files: TlsOptions,
}

/// How to encrypt connections, ready for use.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    tls: tenure_tls::Tls,
    /// The server is not asked first whether it speaks TLS, so it must say that it is Postgres.
    direct: bool,
}

impl Options {
    /// When to encrypt, and how. Files are read now.
    pub(crate) fn build(&self) -> Result<(SslMode, SslNegotiation, Tls), Error> {
        let rooted = self.files.root.is_some();
        let (mode, verify) = match self.mode.as_deref().unwrap_or("prefer") {
            "disable" => (SslMode::Disable, Verify::Nothing),
            "prefer" | "allow" => (SslMode::Prefer, Verify::Nothing),
            // As with libpq: a root that is named counts, and the name of the host does not.
            "require" if rooted => (SslMode::Require, Verify::Chain),
            "require" => (SslMode::Require, Verify::Nothing),
            "verify-ca" => (SslMode::Require, Verify::Chain),
            "verify-full" => (SslMode::Require, Verify::Server),
            other => {
                return Err(Error::config(format!(
                    "sslmode={other} is not known; use disable, prefer, require, verify-ca or \
                     verify-full"
                )));
            }
        };
        let negotiation = match (self.negotiation.as_deref(), mode) {
            (None | Some("postgres"), _) => SslNegotiation::Postgres,
            (Some("direct"), SslMode::Require) => SslNegotiation::Direct,
            (Some("direct"), _) => {
                return Err(Error::config(
                    "sslnegotiation=direct needs sslmode=require, verify-ca or verify-full",
                ));
            }
            (Some(other), _) => {
                return Err(Error::config(format!(
                    "sslnegotiation={other} is not known; use postgres or direct"
                )));
            }
        };
        let files = TlsOptions { protocol: Some(PROTOCOL), ..self.files.clone() };
        let direct = negotiation == SslNegotiation::Direct;
        Ok((mode, negotiation, Tls { tls: files.build(verify)?, direct }))
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
        Ok(Handshake { tls: self.clone(), domain: domain.to_owned() })
    }
}

/// One connection about to be encrypted.
pub(crate) struct Handshake {
    tls: Tls,
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
            let stream = self.tls.tls.connect(&self.domain, stream).await?;
            if self.tls.direct && stream.protocol() != Some(PROTOCOL.as_bytes()) {
                let message = "it does not know sslnegotiation=direct, which PostgreSQL 17 does";
                return Err(io::Error::other(message));
            }
            Ok(Stream(stream))
        })
    }
}

/// An encrypted connection, as the driver wants it.
pub(crate) struct Stream<S>(TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> tokio_postgres::tls::TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        let bound = self.0.server_end_point().map(ChannelBinding::tls_server_end_point);
        bound.unwrap_or_else(ChannelBinding::none)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
