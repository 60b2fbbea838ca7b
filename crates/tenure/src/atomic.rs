//! The atomics of the pieces that loom checks: `tests/loom.rs` includes those pieces with loom's
//! own in their place.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
