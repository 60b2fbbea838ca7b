//! Every interleaving of the pieces without locks. They are the library's own files, with loom's
//! atomics: they find them as `crate::atomic`, so these tests have a binary of their own.
//! `docs/proof-faults.md` lists what was broken on purpose to see them fail.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![allow(dead_code, reason = "the pieces are included whole")]

mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
}

#[path = "../../src/bell.rs"]
mod bell;
#[path = "../../src/lead_word.rs"]
mod lead_word;
#[path = "../../src/phase.rs"]
mod phase;
#[path = "../../src/reign_words.rs"]
mod reign_words;

mod answering;
mod ending;
mod ringing;
mod working;
