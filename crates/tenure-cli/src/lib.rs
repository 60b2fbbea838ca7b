//! The parts of the `tenure` command that are worth testing on their own.
//!
//! The command runs a program only while this instance leads. [`process`] is the half that
//! starts, signals and ends that program, and sees to it that it never outlives its leadership.

pub mod process;
