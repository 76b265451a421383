//! Carries out a plan: each step is tried, and each failure is reported. What is in no file is archived last, if nothing failed.

use std::process::ExitCode;

use api_types::workflows::WorkflowView;
use reqwest::Method;
use serde_json::{Value, json};

use super::plan::{Kind, Plan, Step, list_names};
use crate::client::Client;
use crate::output::Output;
use crate::print::{print_error, print_text};
use crate::progress::Progress;

/// What became of the steps so far.
#[derive(Default)]
struct Tally {
    tried: u64,
    done: usize,
    failed: usize,
}

/// Carries out all steps; exit 1 if one failed. The others are carried out all the same, except that nothing is pruned then.
///
/// # Errors
/// Fails if standard output cannot be written.
pub(super) async fn carry_out(client: &Client, plan: Plan, output: Output) -> anyhow::Result<ExitCode> {
    let progress = Progress::of_steps((plan.steps.len() + plan.surplus.len()) as u64);
    let mut tally = Tally { failed: plan.refused(), ..Tally::default() };
    carry_out_steps(client, &plan.steps, &progress, &mut tally).await;
    let is_pruned = tally.failed == 0;
    if is_pruned {
        carry_out_steps(client, &plan.surplus, &progress, &mut tally).await;
    }
    progress.end();
    if !is_pruned && !plan.surplus.is_empty() {
        print_error(&format!("nothing was pruned, because a part failed: {}", list_names(&plan.surplus)));
    }
    let Tally { done, failed, .. } = tally;
    if !output.is_for_programs() {
        print_text(&format!("Applied: {done} done, {failed} failed.\n"))?;
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn carry_out_steps(client: &Client, steps: &[Step], progress: &Progress, tally: &mut Tally) {
    for step in steps {
        match carry_out_step(client, step).await {
            Ok(is_changed) => tally.done += usize::from(is_changed),
            Err(error) => {
                tally.failed += 1;
                progress.print_beside(|| print_error(&format!("{} ({}): {error:#}", step.name, step.place)));
            }
        }
        tally.tried += 1;
        progress.show_position(tally.tried);
    }
}

/// Returns whether the step changed something.
async fn carry_out_step(client: &Client, step: &Step) -> anyhow::Result<bool> {
    match &step.kind {
        Kind::Keep | Kind::Refused(_) => return Ok(false),
        Kind::Create { body, is_paused: true, .. } => create_paused(client, body).await?,
        Kind::Create { body, .. } => {
            client.write::<WorkflowView>(Method::POST, "/workflows", &[], body).await?;
        }
        Kind::Change { id, version, patch, is_paused, .. } => {
            let version = if *is_paused { pause(client, *id, *version).await? } else { *version };
            client.merge::<WorkflowView>(&format!("/workflows/{id}"), &[], patch, version).await?;
        }
        Kind::Archive { id, version } => {
            let path = format!("/workflows/{id}:archive");
            client.write_version::<WorkflowView>(Method::POST, &path, &[], &Value::Null, *version).await?;
        }
    }
    Ok(true)
}

/// Creates a workflow without its schedule, pauses it and then adds the schedule, so that no time of it is ever due.
///
/// If it ends in between, the next `apply` finds a workflow that lacks its schedule, and goes on in the same order. A workflow
/// without any then stays active: nothing of it is due.
async fn create_paused(client: &Client, body: &Value) -> anyhow::Result<()> {
    let mut bare = body.clone();
    let cron = bare.as_object_mut().and_then(|members| members.remove("cron_schedule"));
    let created: WorkflowView = client.write(Method::POST, "/workflows", &[], &bare).await?;
    let version = pause(client, created.id, created.version).await?;
    if let Some(cron) = cron.filter(|cron| !cron.is_null()) {
        let patch = json!({ "cron_schedule": cron });
        client.merge::<WorkflowView>(&format!("/workflows/{}", created.id), &[], &patch, version).await?;
    }
    Ok(())
}

/// Pauses a workflow, and returns its version after that.
async fn pause(client: &Client, id: i64, version: i64) -> anyhow::Result<i64> {
    let (path, body) = (format!("/workflows/{id}:pause"), json!({"reason": "paused in the file"}));
    let paused: WorkflowView = client.write_version(Method::POST, &path, &[], &body, version).await?;
    Ok(paused.version)
}
