//! `cronbox logs`: the log lines of a request, of a run or of a workflow, from a log of this machine.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;

use crate::config::variable;
use crate::print::{is_pipe_closed, printable_lines};

/// Which lines.
#[derive(Args)]
pub(crate) struct Logs {
    /// The id of a request, as in the header x-request-id and in the message of an error.
    #[arg(long, value_name = "ID", required_unless_present_any = ["run", "workflow"])]
    request: Option<String>,
    /// The id of a run.
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// The id of a workflow.
    #[arg(long, value_name = "ID")]
    workflow: Option<i64>,
    /// The log, as text or JSON lines; - for standard input. If it is not named and nothing is piped, the log of the local
    /// stack, which `CRONBOX_LOG_FILE` names.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Prints the lines that have all that is named; exit 1 if there is none.
pub(crate) fn print_log_lines(logs: &Logs) -> anyhow::Result<ExitCode> {
    let log: Box<dyn BufRead> = match &logs.file {
        Some(file) if file != Path::new("-") => Box::new(open(file)?),
        None if !is_piped()? => open_of_stack()?,
        _ => Box::new(io::stdin().lock()),
    };
    let wanted = logs.wanted();
    let mut found = false;
    for line in log.split(b'\n') {
        let line = String::from_utf8_lossy(&line.context("cannot read the log")?).into_owned();
        if wanted.iter().all(|wanted| wanted.is_in(&line)) {
            found = true;
            let text = printable_lines(&line) + "\n";
            if is_pipe_closed(io::stdout().lock().write_all(text.as_bytes()))? {
                break;
            }
        }
    }
    Ok(if found { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The log of the local stack, after its previous file.
fn open_of_stack() -> anyhow::Result<Box<dyn BufRead>> {
    let Some(file) = variable("CRONBOX_LOG_FILE") else {
        bail!("name the log, or pipe it: `. target/local/env` names that of the local stack");
    };
    let mut previous: OsString = file.clone();
    previous.push(".1");
    let newest = open(Path::new(&file))?;
    Ok(match File::open(previous) {
        Ok(previous) => Box::new(BufReader::new(previous.chain(newest))),
        Err(_) => Box::new(newest),
    })
}

fn open(file: &Path) -> anyhow::Result<BufReader<File>> {
    Ok(BufReader::new(File::open(file).with_context(|| format!("cannot read {}", file.display()))?))
}

/// Whether standard input is a log: a terminal is none, and neither is the null device.
fn is_piped() -> anyhow::Result<bool> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned().context("cannot read standard input")?);
    Ok(!input.metadata().context("cannot read standard input")?.file_type().is_char_device())
}

/// A field and its value.
struct Wanted {
    field: &'static str,
    value: String,
}

impl Logs {
    fn wanted(&self) -> Vec<Wanted> {
        let named = [
            ("request_id", self.request.clone()),
            ("run_id", self.run.clone()),
            ("workflow_id", self.workflow.map(|id| id.to_string())),
        ];
        named.into_iter().filter_map(|(field, value)| Some(Wanted { field, value: value? })).collect()
    }
}

impl Wanted {
    /// As `field=value` of a text line, or as a member of a line of JSON. A longer value is another one.
    fn is_in(&self, line: &str) -> bool {
        let forms = [
            format!("{}={}", self.field, self.value),
            format!("{}=\"{}\"", self.field, self.value),
            format!("\"{}\":\"{}\"", self.field, self.value),
            format!("\"{}\":{}", self.field, self.value),
        ];
        forms.iter().any(|form| {
            line.match_indices(form.as_str()).any(|(at, _)| {
                let after = line[at + form.len()..].chars().next();
                after.is_none_or(|next| !next.is_ascii_alphanumeric() && next != '-')
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_lines_are_found() {
        let wanted = Wanted { field: "workflow_id", value: "12".to_owned() };
        for line in ["edit: paused workflow_id=12", "run workflow_id=12 a=b", "{\"workflow_id\":12,\"a\":1}"] {
            assert!(wanted.is_in(line), "{line}");
        }
        for line in ["workflow_id=123", "{\"workflow_id\":120}", "id=12", "workflow_id=12-a"] {
            assert!(!wanted.is_in(line), "{line}");
        }
    }
}
