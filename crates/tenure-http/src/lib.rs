//! Who leads, over HTTP: for programs in any language, load balancers, Prometheus and people.
//!
//! [`Sidecar`] watches elections and makes routes of what it sees. They stand alone behind the
//! [`Server`] of this crate, which has limits, or are merged into a service of one's own:
//!
//! ```
//! use std::sync::Arc;
//! use tenure::{Election, MemoryStore};
//! use tenure_http::Sidecar;
//!
//! # #[tokio::main] async fn main() -> Result<(), tenure::Error> {
//! let store = Arc::new(MemoryStore::new());
//! let election = Election::builder("invoices", store).start().await?;
//! let sidecar = Sidecar::builder().election(election).build()?;
//! let service: axum::Router = axum::Router::new().merge(sidecar.routes());
//! # let _ = service;
//! # Ok(()) }
//! ```
//!
//! # Routes
//! | route | what it answers |
//! |---|---|
//! | `GET /leader[/NAME]` | 200 if this instance leads, else 503; the body names who does |
//! | `GET /leader[/NAME]?redirect=KEY` | 307 to the URL that the leader published under this key |
//! | `GET /elections`, `/elections/NAME` | all elections; one, with its last changes of hands |
//! | `GET /events` | what happens, live, as server-sent events that can be resumed |
//! | `GET /healthz`, `/readyz` | for supervisors and load balancers |
//! | `GET /metrics` | for Prometheus, if the program renders them |
//! | `POST /elections/NAME/resign` | asks the leader to resign |
//! | `POST /elections/NAME/notify/CHANNEL` | sends a message to the leader |
//! | `GET /`, `/openapi.json` | a page for people, a description for programs |
//!
//! # Guarantees
//! `/leader` answers 200 only while this instance leads, by its own clock, without asking anybody.
//! Errors are problem details (RFC 9457). Calls that change something need the token, always.
//!
//! # Non-guarantees
//! A 200 was true when it was sent. What reads it acts later: fence the writes by the term.

mod api;
mod events;
mod gate;
mod history;
mod hub;
mod listen;
mod openapi;
mod page;
mod problem;
mod reply;
mod roll;
mod room;
mod server;
mod sidecar;
mod stream;
mod token;
mod wall;

pub use listen::{Listen, Listener};
pub use server::{Limits, Server};
pub use sidecar::{Sidecar, SidecarBuilder};
pub use token::Token;
