//! TLS for the stores of tenure: rustls with the ring provider, certificates from PEM files.
//!
//! A store reads the options of its URL into [`TlsOptions`], builds a [`Tls`] once, and encrypts
//! each connection with it. Files that have changed are read again. No type of rustls appears here,
//! and no provider is installed for the whole process.
//!
//! ```no_run
//! use tenure_tls::{TlsOptions, Verify};
//!
//! # async fn example(stream: tokio::io::DuplexStream) -> Result<(), Box<dyn std::error::Error>> {
//! let options = TlsOptions { root: Some("/etc/ca.pem".to_owned()), ..TlsOptions::default() };
//! let tls = options.build(Verify::Server)?;
//! let encrypted = tls.connect("db.example.org", stream).await?;
//! # Ok(())
//! # }
//! ```

mod anyone;
mod chain;
mod end_point;
mod handshake;
mod options;
mod stream;

pub use handshake::HandshakeFailure;
pub use options::{Tls, TlsOptions, Verify};
pub use stream::TlsStream;
