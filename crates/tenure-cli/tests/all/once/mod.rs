//! `tenure once` and `run --no-wait` with real processes: what they tell, and that each key has one
//! run at a time and one success while instances are killed.
#![cfg(all(feature = "sqlite", feature = "postgres", feature = "redis"))]

mod kills;
mod words;
