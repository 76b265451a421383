//! Shows one workflow.

use std::process::ExitCode;

use api_types::workflows::WorkflowView;
use serde_json::Value;

use crate::output::{Cell, Output, state, word};
use crate::rows::strip;
use crate::times::duration;

/// Prints a workflow.
pub(super) fn print_workflow(output: Output, workflow: &WorkflowView) -> anyhow::Result<ExitCode> {
    output.print_one(workflow, &workflow.id.to_string(), |view| {
        let results = workflow.results.as_ref();
        let last = results.and_then(|results| results.last_run.as_ref());
        let labels: Vec<String> = workflow.labels.iter().map(|(key, value)| format!("{key}:{value}")).collect();
        let action = &workflow.action;
        let action = match action["type"].as_str() {
            Some("http") => format!("{} {}", text(action, "method"), text(action, "url")),
            _ => format!("log {}", text(action, "message")),
        };
        vec![
            ("id", workflow.id.into()),
            ("name", Cell::from(&workflow.name)),
            ("description", Cell::optional(workflow.description.as_deref())),
            ("team", workflow.team_id.into()),
            ("labels", Cell::from(labels.join(", "))),
            ("state", state(&workflow.state)),
            ("pause reason", Cell::optional(workflow.pause_reason.as_deref())),
            ("paused until", view.time(workflow.pause_until)),
            ("cron", Cell::from(workflow.cron_schedule.as_deref().unwrap_or("none"))),
            ("timezone", Cell::from(workflow.timezone.as_deref().unwrap_or("UTC"))),
            ("next", view.time(workflow.next_fire_at)),
            ("action", Cell::from(action)),
            ("overlap", Cell::from(word(&workflow.overlap_policy))),
            (
                "catch up",
                Cell::from(format!("{}, {} s", word(&workflow.catch_up_policy), workflow.catch_up_window_secs)),
            ),
            ("attempts", workflow.max_attempts.into()),
            ("timeout", Cell::from(format!("{} s", workflow.timeout_secs))),
            ("EventBridge", state(&workflow.sync.status)),
            ("sync error", Cell::optional(workflow.sync.last_error.as_deref())),
            (
                "last run",
                last.map_or_else(|| Cell::from(""), |run| Cell::from(format!("{} {}", word(&run.state), run.id))),
            ),
            ("last error", Cell::optional(last.and_then(|run| run.error.as_deref()))),
            ("recent", Cell::from(results.map(|results| strip(&results.recent)).unwrap_or_default())),
            ("p95 of a week", Cell::from(duration(results.and_then(|results| results.week.p95_duration_ms)))),
            ("managed by", Cell::optional(workflow.managed_by.as_deref())),
            ("version", workflow.version.into()),
            ("updated", view.time(Some(workflow.updated_on))),
        ]
    })
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}
