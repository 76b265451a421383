//! `cronbox schedule`: when workflows run, and which past times are run again.

use std::process::ExitCode;

use api_types::backfills::{BackfillView, DryRunView};
use api_types::previews::{ExplanationView, NextView, TimeView};
use api_types::schedules::ScheduleView;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::json;

use crate::backfill::{print_backfill, wait_for_backfill};
use crate::client::Client;
use crate::common::Common;
use crate::listing::{Limit, print_list};
use crate::named::find_workflow;
use crate::output::{Cell, Form};
use crate::print::print_text;
use crate::times::{Instant, rfc3339};
use crate::watch::{Watch, repeat};

/// What can be done with schedules.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// List schedules, those that run next first.
    Ls(List),
    /// Show the next times of a workflow.
    Next(Next),
    /// Explain a cron by the zone data of the app: its meaning, the expression for EventBridge, and its next times.
    Explain(Explain),
    /// Run past times of a workflow.
    Backfill(Backfill),
}

/// Which schedules are listed.
#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    watch: Watch,
    /// Only schedules of this team, by id.
    #[arg(long, value_name = "ID")]
    team: Option<i64>,
    /// The order: `next_fire_at`, `name` or `updated_on`; with - in front from the last one on.
    #[arg(long, value_name = "FIELD", allow_hyphen_values = true, default_value = "next_fire_at")]
    sort: String,
    #[command(flatten)]
    limit: Limit<200>,
}

/// The next times of a workflow.
#[derive(Args)]
pub(crate) struct Next {
    #[command(flatten)]
    common: Common,
    /// Its id or its name.
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    /// How many times, at most 100.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    count: u32,
}

/// A cron.
#[derive(Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    common: Common,
    /// The cron; its fields may be written without quotes.
    #[arg(value_name = "CRON", required = true, num_args = 1..)]
    cron: Vec<String>,
    /// An IANA name, Europe/Paris.
    #[arg(long, value_name = "NAME", default_value = "UTC")]
    timezone: String,
}

/// Past times to run.
#[derive(Args)]
pub(crate) struct Backfill {
    #[command(flatten)]
    common: Common,
    /// Its id or its name.
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    /// The first time that may run: RFC 3339, yesterday, -24h.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Instant,
    /// No time at or after this one runs; now unless it is set.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, default_value = "now")]
    to: Instant,
    /// Which times: missing, failed or all.
    #[arg(long, value_name = "WHICH", default_value = "missing")]
    only: String,
    /// By which schedule: then (that of each time) or now (the present one).
    #[arg(long, value_name = "WHEN", default_value = "then")]
    timing: String,
    /// Which end runs first: `oldest_first` or `newest_first`.
    #[arg(long, value_name = "ORDER", default_value = "oldest_first")]
    order: String,
    /// How many of its runs may be active at once, 1 to 10.
    #[arg(long, value_name = "N", default_value_t = 1)]
    max_concurrent: i32,
    /// Only show which times would run.
    #[arg(long)]
    dry_run: bool,
    /// Wait until every run of it has ended; exit 1 if one did not succeed.
    #[arg(long, short = 'w')]
    wait: bool,
}

/// Runs the command.
pub(crate) async fn run_schedule(verb: &Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Ls(list) => list_schedules(list).await,
        Verb::Next(next) => list_next(next).await,
        Verb::Explain(explain) => explain_cron(explain).await,
        Verb::Backfill(backfill) => request_backfill(backfill).await,
    }
}

async fn list_schedules(list: &List) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&list.common.access).await?;
    let mut query = vec![("sort", list.sort.clone())];
    query.extend(list.team.map(|team| ("team_id", team.to_string())));
    repeat(list.watch, async || {
        let output = list.common.output;
        print_list::<ScheduleView>(&client, output, "/schedules", &query, list.limit.most(output)).await
    })
    .await
}

async fn list_next(next: &Next) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&next.common.access).await?;
    let workflow = find_workflow(&client, &next.workflow).await?;
    let times: NextView =
        client.read(&format!("/schedules/{}/next", workflow.id), &[("n", next.count.to_string())]).await?;
    if let Some(warning) = &times.warning {
        crate::print::print_error(warning);
    }
    next.common.output.print_rows(&times.items)
}

async fn explain_cron(explain: &Explain) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&explain.common.access).await?;
    let body = json!({"cron": explain.cron.join(" "), "timezone": explain.timezone});
    let explained: ExplanationView = client.write(Method::POST, "/cron:explain", &[], &body).await?;
    let output = explain.common.output;
    output.print_one(&explained, &explained.normalized, |_| {
        vec![
            ("meaning", Cell::from(&explained.description)),
            ("cron", Cell::from(&explained.normalized)),
            ("EventBridge", Cell::from(format!("{} {}", explained.eventbridge, explained.eventbridge_timezone))),
            ("coverage", Cell::from(&explained.coverage)),
            ("zone data", Cell::from(&explained.zone_data)),
        ]
    })?;
    if matches!(output.form, Form::Table | Form::Wide) {
        print_text("\n")?;
        return output.print_rows::<TimeView>(&explained.next);
    }
    Ok(ExitCode::SUCCESS)
}

async fn request_backfill(backfill: &Backfill) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&backfill.common.access).await?;
    let workflow = find_workflow(&client, &backfill.workflow).await?;
    let path = format!("/schedules/{}:backfill", workflow.id);
    let mut body = json!({
        "start": rfc3339(backfill.from.0), "end": rfc3339(backfill.to.0), "only": backfill.only, "timing": backfill.timing,
        "order": backfill.order, "max_concurrent": backfill.max_concurrent,
    });
    if backfill.dry_run {
        body["dry_run"] = json!(true);
        let would: DryRunView = client.write(Method::POST, &path, &[], &body).await?;
        return backfill.common.output.print_object(&would, "", |_| {
            let times: String = would.times.iter().map(|time| format!("  {}\n", rfc3339(*time))).collect();
            format!("{} times would run\n{times}", would.total)
        });
    }
    let created: BackfillView = client.write(Method::POST, &path, &[], &body).await?;
    match backfill.wait {
        true => wait_for_backfill(&client, created, backfill.common.output).await,
        false => print_backfill(backfill.common.output, &created),
    }
}
