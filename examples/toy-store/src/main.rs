//! The whole command of tenure, on the toy store.

use std::process::ExitCode;

use tenure_cli::Registry;
use toy_store::{GROUND, TOY};

fn main() -> ExitCode {
    tenure_cli::run(Registry::built_in().with_store(TOY).with_ground(GROUND))
}
