//! The native part of the Node package `tenure`: a small surface, with everything pleasant in
//! TypeScript over it.
//!
//! What goes on in Rust is an `Op`: a future that the event loop of the caller polls, on its own
//! thread. What wakes it calls one weak thread-safe function, which makes the loop poll. So no
//! thread of tenure ever runs JavaScript, and a loop that is blocked answers no bell.

mod call;
mod candidate;
mod cron;
mod election;
mod environment;
mod error;
mod log;
mod meter;
mod op;
mod port;
mod reign;
mod values;
