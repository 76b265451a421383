//! What all commands of the API share: the connection, the output, and dry runs.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use reqwest::Method;
use serde_json::Value;

use crate::client::{Access, Client};
use crate::output::{Output, OutputOrJson};
use crate::print::one_line;

/// The connection and the output.
#[derive(Args)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) access: Access,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The same for a command of operators, which had `--json` before it had `-o`.
#[derive(Args)]
pub(crate) struct OperatorCommon {
    #[command(flatten)]
    pub(crate) access: Access,
    #[command(flatten)]
    output: OutputOrJson,
}

impl OperatorCommon {
    pub(crate) fn output(&self) -> Output {
        self.output.resolve()
    }
}

/// Whether a write only says what it would change.
#[derive(Args)]
pub(crate) struct DryRun {
    /// Only show what would change. It is refused for the same reasons as the change.
    #[arg(long)]
    dry_run: bool,
}

impl DryRun {
    pub(crate) fn is_dry(&self) -> bool {
        self.dry_run
    }
}

/// Asks what a write would change, and prints it.
///
/// # Errors
/// Returns the refusal of the write, or fails if the app cannot be reached.
pub(crate) async fn print_changes(
    client: &Client,
    method: Method,
    path: &str,
    body: &Value,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let answer: Value = client.write(method, path, &dry_run(), body).await?;
    print_dry_run(&answer, output)
}

/// The query of a write that only says what it would change.
pub(crate) fn dry_run() -> [(&'static str, String); 1] {
    [("dry_run", "true".to_owned())]
}

/// Prints the answer to a dry run.
///
/// # Errors
/// Fails if standard output cannot be written.
pub(crate) fn print_dry_run(answer: &Value, output: Output) -> anyhow::Result<ExitCode> {
    let changes = &answer["changes"];
    let subjects: Vec<&str> =
        changes.as_array().into_iter().flatten().filter_map(|change| change["subject"].as_str()).collect();
    output.print_object(changes, &subjects.join("\n"), |_| changes_in_words(changes))
}

/// Changes as lines: `~` changes, `+` is new, `-` is gone.
pub(crate) fn changes_in_words(changes: &Value) -> String {
    let mut text = String::new();
    for change in changes.as_array().into_iter().flatten() {
        let word = |field: &str| one_line(change[field].as_str().unwrap_or_default());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{} {}", word("verb"), word("subject"));
        let (before, after) = (change["before"].as_object(), change["after"].as_object());
        let mut fields: Vec<&String> = before.into_iter().chain(after).flat_map(|object| object.keys()).collect();
        fields.sort_unstable();
        fields.dedup();
        for field in fields {
            let value = |side: &Value| one_line(&side[field.as_str()].to_string());
            let (old, new) = (&change["before"], &change["after"]);
            let _ = match (old[field.as_str()].is_null(), new[field.as_str()].is_null()) {
                (true, true) => Ok(()),
                (true, false) => writeln!(text, "  + {field}: {}", value(new)),
                (false, true) => writeln!(text, "  - {field}: {}", value(old)),
                (false, false) => writeln!(text, "  ~ {field}: {} -> {}", value(old), value(new)),
            };
        }
    }
    if text.is_empty() { "nothing would change\n".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changes_are_read_like_a_plan() {
        let changes = json!([{"verb": "update", "subject": "workflow:1", "before": {"a": 1, "c": 2}, "after": {"a": 3, "b": "x"}}]);
        assert_eq!(changes_in_words(&changes), "update workflow:1\n  ~ a: 1 -> 3\n  + b: \"x\"\n  - c: 2\n");
        assert_eq!(changes_in_words(&json!([])), "nothing would change\n");
    }
}
