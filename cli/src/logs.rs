//! `cronbox logs`: the log lines of a request, of a run or of a workflow, from a log of this machine.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

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
    /// The log, as text or JSON lines; - for standard input.
    #[arg(value_name = "FILE", default_value = "-")]
    file: String,
}

/// Prints the lines that have all that is named; exit 1 if there is none.
pub(crate) fn print_log_lines(logs: &Logs) -> anyhow::Result<ExitCode> {
    let log: Box<dyn BufRead> = match logs.file.as_str() {
        "-" => Box::new(io::stdin().lock()),
        file => Box::new(BufReader::new(File::open(file).with_context(|| format!("cannot read {file}"))?)),
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
