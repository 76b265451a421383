//! Programs by their old names: each warns, and then executes the program with the new name.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

/// Replaces this process, which has an old name, with the program `cronbox-<old>` in the same folder.
///
/// Process id, arguments, environment and open files stay. The warning is on stderr, because scripts read stdout. Returns
/// only if the new program cannot be executed.
pub fn exec_new_program(old: &str) -> ExitCode {
    let new = format!("cronbox-{old}");
    eprintln!("{old}: this program is now {new}; the next version has no {old}");
    let path = match std::env::current_exe() {
        Ok(path) => path.with_file_name(&new),
        Err(error) => {
            eprintln!("{old}: cannot find its own folder: {error}: start {new} instead");
            return ExitCode::FAILURE;
        }
    };
    let error = Command::new(&path).args(std::env::args_os().skip(1)).exec();
    eprintln!("{old}: cannot execute {}: {error}: put {new} beside {old}, or start {new} instead", path.display());
    ExitCode::FAILURE
}
