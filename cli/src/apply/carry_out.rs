//! Carries out a plan: each step is tried, and each failure is reported.

use std::process::ExitCode;

use api_types::workflows::WorkflowView;
use reqwest::Method;
use serde_json::Value;

use super::plan::{Kind, Plan, Step};
use crate::client::Client;
use crate::output::Output;
use crate::print::{print_error, print_text};
use crate::progress::Progress;

/// Carries out all steps; exit 1 if one failed. The others are carried out all the same.
///
/// # Errors
/// Fails if standard output cannot be written.
pub(super) async fn carry_out(client: &Client, plan: Plan, output: Output) -> anyhow::Result<ExitCode> {
    let progress = Progress::of_steps(plan.steps.len() as u64);
    let (mut done, mut failed) = (0, plan.refused());
    for (nth, step) in (1..).zip(&plan.steps) {
        match carry_out_step(client, step).await {
            Ok(true) => done += 1,
            Ok(false) => {}
            Err(error) => {
                failed += 1;
                progress.print_beside(|| print_error(&format!("{} ({}): {error:#}", step.name, step.place)));
            }
        }
        progress.show_position(nth);
    }
    progress.end();
    if !output.is_for_programs() {
        print_text(&format!("Applied: {done} done, {failed} failed.\n"))?;
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns whether the step changed something.
async fn carry_out_step(client: &Client, step: &Step) -> anyhow::Result<bool> {
    match &step.kind {
        Kind::Keep | Kind::Refused(_) => return Ok(false),
        Kind::Create { body, .. } => {
            client.write::<WorkflowView>(Method::POST, "/workflows", &[], body).await?;
        }
        Kind::Change { id, version, patch, .. } => {
            client.merge::<WorkflowView>(&format!("/workflows/{id}"), &[], patch, *version).await?;
        }
        Kind::Archive { id, version } => {
            let path = format!("/workflows/{id}:archive");
            client.write_version::<WorkflowView>(Method::POST, &path, &[], &Value::Null, *version).await?;
        }
    }
    Ok(true)
}
