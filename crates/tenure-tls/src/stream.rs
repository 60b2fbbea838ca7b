//! An encrypted connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::client::TlsStream as RustlsStream;

use crate::end_point;

/// An encrypted connection, made by [`Tls::connect`](crate::Tls::connect).
#[derive(Debug)]
pub struct TlsStream<S>(pub(crate) Box<RustlsStream<S>>);

impl<S> TlsStream<S> {
    /// The connection underneath, to set options of the socket for example.
    pub fn get_ref(&self) -> &S {
        self.0.get_ref().0
    }

    /// The protocol that the server has agreed to, of what was offered (ALPN).
    pub fn protocol(&self) -> Option<&[u8]> {
        self.0.get_ref().1.alpn_protocol()
    }

    /// What a password can be bound to (`tls-server-end-point`), if the server's certificate is of
    /// a kind for which that is defined.
    pub fn server_end_point(&self) -> Option<Vec<u8>> {
        end_point::hash(self.0.get_ref().1.peer_certificates()?.first()?)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<S> {
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
