//! The tests of the words and the machine from outside, in one binary.

#[macro_use]
extern crate tenure_needs;

mod fuzz;
