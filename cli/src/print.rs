//! Writes to standard output. If the reader has exited, as `head` does, this is no failure.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;

/// One line of JSON.
pub(crate) fn print_json(answer: &(impl Serialize + ?Sized)) -> anyhow::Result<ExitCode> {
    print_text(&format!("{}\n", serde_json::to_string(answer)?))
}

/// Writes the text unchanged.
pub(crate) fn print_text(text: &str) -> anyhow::Result<ExitCode> {
    is_pipe_closed(io::stdout().lock().write_all(text.as_bytes()))?;
    Ok(ExitCode::SUCCESS)
}

/// Whether the reader of standard output has closed it.
pub(crate) fn is_pipe_closed(written: io::Result<()>) -> anyhow::Result<bool> {
    match written {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(true),
        Err(error) => Err(error).context("could not write to standard output"),
    }
}
