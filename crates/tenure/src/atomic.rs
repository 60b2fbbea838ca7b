//! The atomics of the pieces that loom checks: `tests/loom` includes those pieces with loom's
//! own in their place.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
