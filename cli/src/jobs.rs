//! `cronbox jobs`: the background jobs, and whether they run.

use std::process::ExitCode;

use api_types::jobs::{JobView, JobsView, LastResult};
use clap::Args;

use crate::client::{Client, wait_for};
use crate::common::OperatorCommon;
use crate::output::{Cell, Form, Look, Row, View, word};
use crate::print::print_json;
use crate::times::duration;

/// The arguments.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: OperatorCommon,
}

/// Shows the jobs; exit 1 if the last turn of one failed.
pub(crate) fn show_jobs(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    wait_for(async {
        let jobs: JobsView = Client::connect(&arguments.common.access).await?.read("/jobs", &[]).await?;
        match arguments.common.output() {
            // Its `--json` has always been the document of the API.
            output if output.form == Form::Lines => print_json(&jobs)?,
            output => output.print_rows(&jobs.items)?,
        };
        let has_failed = jobs.items.iter().any(|job| job.last_result == Some(LastResult::Failed));
        Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    })
}

impl Row for JobView {
    const COLUMNS: &'static [&'static str] =
        &["JOB", "SCHEDULE", "LAST RUN", "NEXT RUN", "TOOK", "RUNS", "FAILED", "LAST RESULT"];
    const WIDE_FROM: usize = 8;

    fn handle(&self) -> String {
        self.name.clone()
    }

    fn cells(&self, view: View) -> Vec<Cell> {
        vec![
            Cell::from(&self.name),
            Cell::optional(self.schedule.as_deref()),
            view.time(self.last_run),
            view.time(Some(self.next_run)),
            Cell::from(duration(self.last_duration_ms)),
            self.run_count.into(),
            self.error_count.into(),
            result(self),
        ]
    }
}

fn result(job: &JobView) -> Cell {
    let mut text = job.last_result.map_or_else(|| "none yet".to_owned(), |result| word(&result));
    if let Some(instance) = job.locked_by {
        text = format!("{text}, running on: {instance}");
    }
    if let Some(error) = &job.last_error {
        text = format!("{text}: {error}");
    }
    let look = if job.last_result == Some(LastResult::Failed) { Look::Bad } else { Look::Plain };
    Cell::with_look(text, look)
}
