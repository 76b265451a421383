//! Lists: people read the first objects, and programs all of them. No list is cut without a word.

use std::process::ExitCode;

use clap::Args;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::output::{Form, Output, Row};
use crate::print::print_error;

/// The objects that programs get at most without `--limit`, because the command holds them in its memory.
const MOST_FOR_PROGRAMS: usize = 100_000;

/// How many objects a list shows: `SHOWN` of them without the option, if people read it.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Limit<const SHOWN: usize> {
    #[arg(long, value_name = "N",
        help = format!("Show at most this many; without it {SHOWN}, and with `-o json`, `yaml` or `name` all"))]
    limit: Option<usize>,
}

impl<const SHOWN: usize> Limit<SHOWN> {
    /// How many objects are shown in this form at most.
    pub(crate) fn most(self, output: Output) -> usize {
        self.limit.unwrap_or(match output.form {
            Form::Json | Form::Yaml | Form::Name => MOST_FOR_PROGRAMS,
            // Scripts that use `--json` get what they have always got.
            Form::Table | Form::Wide | Form::Lines => SHOWN,
        })
    }
}

/// Reads a list and prints it. If it has more than `most` objects, standard error says so.
///
/// # Errors
/// Returns a refusal of the app, or fails if the app cannot be reached or standard output cannot be written.
pub(crate) async fn print_list<R: Row + DeserializeOwned>(
    client: &Client,
    output: Output,
    path: &str,
    query: &[(&str, String)],
    most: usize,
) -> anyhow::Result<ExitCode> {
    // One more than is shown, which says that the list goes on.
    let rows: Vec<R> = client.read_list(path, query, most.saturating_add(1)).await?;
    print_first(output, rows, most)
}

/// Prints the first objects. If there are more than `most`, standard error says so.
///
/// # Errors
/// Fails if standard output cannot be written.
pub(crate) fn print_first<R: Row>(output: Output, mut rows: Vec<R>, most: usize) -> anyhow::Result<ExitCode> {
    let is_cut = rows.len() > most;
    rows.truncate(most);
    let shown = output.print_rows(&rows)?;
    if is_cut {
        print_error(&format!("only the first {most} are shown: --limit shows more"));
    }
    Ok(shown)
}
