//! `cronbox apply`, `diff`, `export` and `delete`: workflows as files, cronbox/v1.
//!
//! The plan is the app's own: each change is sent as a dry run first, so that what is shown is what happens. A change is then sent
//! with the version that the plan saw, so that an edit of another person in between is not overwritten.

mod carry_out;
mod complete;
mod export;
mod files;
mod plan;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use self::carry_out::carry_out;
pub(crate) use self::export::{Export, export_workflows};
use self::files::read_files;
use self::plan::{Adoption, Plan, PlanOptions, archive_plan, make_plan};
use crate::client::Client;
use crate::common::Common;
use crate::output::Output;
use crate::print::print_error;

/// Which files.
#[derive(Args)]
struct Files {
    /// A file, or a folder whose files end with .yaml or .yml; repeat it for further ones; - for standard input.
    #[arg(short = 'f', long = "file", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Also workflows that carry the label of another owner.
    #[arg(long)]
    take_over: bool,
}

impl Files {
    fn adoption(&self) -> Adoption {
        if self.take_over { Adoption::TakenOver } else { Adoption::Refused }
    }

    fn options(&self, prune: bool) -> PlanOptions {
        PlanOptions { prune, adoption: self.adoption() }
    }
}

/// Files to apply.
#[derive(Args)]
pub(crate) struct Apply {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    files: Files,
    /// Also archive workflows that have the owner of the files and are in none of them.
    #[arg(long)]
    prune: bool,
    /// Only show the plan.
    #[arg(long)]
    dry_run: bool,
}

/// Files to compare.
#[derive(Args)]
pub(crate) struct Diff {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    files: Files,
    /// Also show workflows that have the owner of the files and are in none of them.
    #[arg(long)]
    prune: bool,
}

/// Files whose workflows end.
#[derive(Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    files: Files,
    /// Only show the plan.
    #[arg(long)]
    dry_run: bool,
}

/// Creates or changes what the files define; exit 1 if a part failed.
pub(crate) async fn apply_files(apply: &Apply) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&apply.common.access).await?;
    let Some(files) = read_files(&apply.files.files)? else { return Ok(ExitCode::from(2)) };
    let plan = make_plan(&client, files, apply.files.options(apply.prune)).await?;
    print_plan(&plan, apply.common.output)?;
    match apply.dry_run || plan.changes_nothing() {
        true => Ok(verdict_of_refusals(&plan)),
        false => carry_out(&client, plan, apply.common.output).await,
    }
}

/// Shows what the files would change; exit 1 if that is anything, and 2 if a part is refused or could not be compared.
pub(crate) async fn show_difference(diff: &Diff) -> anyhow::Result<ExitCode> {
    compare_files(diff).await.or_else(|error| {
        // A pipeline that permits a difference must not permit this.
        print_error(&format!("{error:#}"));
        Ok(ExitCode::from(2))
    })
}

async fn compare_files(diff: &Diff) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&diff.common.access).await?;
    let Some(files) = read_files(&diff.files.files)? else { return Ok(ExitCode::from(2)) };
    let plan = make_plan(&client, files, diff.files.options(diff.prune)).await?;
    print_plan(&plan, diff.common.output)?;
    Ok(match (plan.refused(), plan.changes_nothing()) {
        (0, true) => ExitCode::SUCCESS,
        (0, false) => ExitCode::FAILURE,
        _ => ExitCode::from(2),
    })
}

/// Archives what the files define; exit 1 if a part failed.
pub(crate) async fn delete_defined(delete: &Delete) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&delete.common.access).await?;
    let Some(files) = read_files(&delete.files.files)? else { return Ok(ExitCode::from(2)) };
    let plan = archive_plan(&client, files, delete.files.adoption()).await?;
    print_plan(&plan, delete.common.output)?;
    match delete.dry_run || plan.changes_nothing() {
        true => Ok(verdict_of_refusals(&plan)),
        false => carry_out(&client, plan, delete.common.output).await,
    }
}

fn verdict_of_refusals(plan: &Plan) -> ExitCode {
    if plan.refused() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_plan(plan: &Plan, output: Output) -> anyhow::Result<ExitCode> {
    // Standard output has only the plan, which programs read.
    if let Some(unpruned) = plan.unpruned_in_words() {
        print_error(&unpruned);
    }
    plan.unrenamed.iter().for_each(|sentence| print_error(sentence));
    output.print_object(&plan.to_json(), &plan.names().join("\n"), |_| plan.in_words())
}
