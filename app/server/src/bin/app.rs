//! `cronbox-app` by its old name, for one version.

use std::process::ExitCode;

#[path = "../main.rs"]
mod program;

fn main() -> ExitCode {
    old_names::warn_of_program("app", "cronbox-app");
    program::main()
}
