//! The tests of the words and the machine from outside, in one binary.

mod fuzz;
