//! When to encrypt, as `sslmode` asks for it, and what the driver needs for that.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tenure_core::Error;
use tenure_tls::{TlsOptions, TlsStream, Verify};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};

/// What a URL says about TLS.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) mode: Option<String>,
    pub(crate) files: TlsOptions,
}

/// How to encrypt connections, ready for use.
#[derive(Clone, Debug)]
pub(crate) struct Tls(tenure_tls::Tls);

impl Options {
    /// When to encrypt, and how. Files are read now.
    pub(crate) fn build(&self) -> Result<(SslMode, Tls), Error> {
        let (mode, verify) = match self.mode.as_deref().unwrap_or("prefer") {
            "disable" => (SslMode::Disable, false),
            "prefer" | "allow" => (SslMode::Prefer, false),
            // As with libpq: a root that is named counts.
            "require" => (SslMode::Require, self.files.root.is_some()),
            "verify-full" => (SslMode::Require, true),
            other => {
                return Err(Error::config(format!(
                    "sslmode={other} is not known; use disable, prefer, require or verify-full"
                )));
            }
        };
        let verify = if verify { Verify::Server } else { Verify::Nothing };
        Ok((mode, Tls(self.files.build(verify)?)))
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
        Ok(Handshake { tls: self.0.clone(), domain: domain.to_owned() })
    }
}

/// One connection about to be encrypted.
pub(crate) struct Handshake {
    tls: tenure_tls::Tls,
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
        Box::pin(async move { Ok(Stream(self.tls.connect(&self.domain, stream).await?)) })
    }
}

/// An encrypted connection, as the driver wants it.
pub(crate) struct Stream<S>(TlsStream<S>);

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
