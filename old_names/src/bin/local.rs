//! `cronbox-local` by its old name, for one version.

use std::process::ExitCode;

fn main() -> ExitCode {
    old_names::exec_new_program("local")
}
