//! `cronbox jobs`: the background jobs, and whether they run.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use crate::client::{Access, Client, wait_for};
use crate::print::{one_line, print_json, print_text};

/// The arguments.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    access: Access,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Shows the jobs; exit 1 if the last turn of one failed.
pub(crate) fn show_jobs(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    wait_for(async {
        let jobs = Client::new(&arguments.access)?.get("/jobs", &[]).await?;
        match arguments.json {
            true => print_json(&jobs)?,
            false => print_text(&table(&jobs))?,
        };
        Ok(verdict(&jobs))
    })
}

fn verdict(jobs: &Value) -> ExitCode {
    let has_failed = |job: &Value| job["last_result"] == "failed";
    if items(jobs).iter().any(has_failed) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn table(jobs: &Value) -> String {
    let mut table = format!(
        "{:<12} {:<16} {:<21} {:<21} {:>8} {:>7} {:>7}  {}\n",
        "JOB", "SCHEDULE", "LAST RUN", "NEXT RUN", "TOOK", "RUNS", "FAILED", "LAST RESULT"
    );
    for job in items(jobs) {
        // Writing to a String cannot fail.
        let _written = writeln!(
            table,
            "{:<12} {:<16} {:<21} {:<21} {:>8} {:>7} {:>7}  {}",
            text(&job["name"]),
            text(&job["schedule"]),
            time(&job["last_run"]),
            time(&job["next_run"]),
            job["last_duration_ms"].as_i64().map_or_else(|| "-".to_owned(), |took| format!("{took} ms")),
            job["run_count"],
            job["error_count"],
            result(job),
        );
    }
    table
}

fn result(job: &Value) -> String {
    let result = match job["locked_by"].as_str() {
        Some(instance) => format!("{}, running on: {instance}", text(&job["last_result"])),
        None => text(&job["last_result"]).to_owned(),
    };
    match job["last_error"].as_str() {
        Some(error) => format!("{result}: {}", one_line(error)),
        None => result,
    }
}

fn items(jobs: &Value) -> &[Value] {
    jobs["items"].as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

/// The time without the fraction of a second.
fn time(value: &Value) -> String {
    match value.as_str().and_then(|time| time.get(..19)) {
        Some(time) => format!("{time}Z"),
        None => "-".to_owned(),
    }
}
