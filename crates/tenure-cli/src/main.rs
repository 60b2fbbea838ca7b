//! The `tenure` command.

use std::process::ExitCode;

use tenure_cli::Registry;

fn main() -> ExitCode {
    tenure_cli::run(Registry::built_in())
}
