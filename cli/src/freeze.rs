//! `cronbox freeze`: stops the schedules of a team, or of all teams, for a time.

use std::process::ExitCode;

use api_types::freezes::FreezeView;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::client::Client;
use crate::common::{Common, DryRun, print_changes};
use crate::listing::{Limit, print_list};
use crate::output::{Cell, Output, state};
use crate::times::{Instant, rfc3339};

/// What can be done with freezes.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Stop schedules, now or over a planned span. Each workflow keeps its own state.
    Start(Start),
    /// List freezes, the newest first.
    Ls(List),
    /// End a freeze.
    Lift(Lift),
}

/// A new freeze.
#[derive(Args)]
pub(crate) struct Start {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    dry_run: DryRun,
    /// Why, for people: every decision of the freeze has it.
    #[arg(value_name = "REASON")]
    reason: String,
    /// The team, by id; needed with an admin key.
    #[arg(long, value_name = "ID", conflicts_with = "all_teams")]
    team: Option<i64>,
    /// Stop the schedules of all teams; only for admins.
    #[arg(long)]
    all_teams: bool,
    /// From when: RFC 3339, monday, +2h; now unless it is set.
    #[arg(long, value_name = "TIME")]
    from: Option<Instant>,
    /// Until when, exclusive; without it until it is lifted.
    #[arg(long, value_name = "TIME")]
    until: Option<Instant>,
}

/// Which freezes are listed.
#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    common: Common,
    /// Only freezes that have not ended.
    #[arg(long)]
    open: bool,
    #[command(flatten)]
    limit: Limit<50>,
}

/// A freeze that ends.
#[derive(Args)]
pub(crate) struct Lift {
    #[command(flatten)]
    common: Common,
    /// Its id.
    #[arg(value_name = "FREEZE")]
    id: Uuid,
}

/// Runs the command.
pub(crate) async fn run_freeze(verb: &Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Start(start) => start_freeze(start).await,
        Verb::Ls(list) => {
            let client = Client::connect(&list.common.access).await?;
            let query: Vec<_> = list.open.then(|| ("open", "true".to_owned())).into_iter().collect();
            let output = list.common.output;
            print_list::<FreezeView>(&client, output, "/freezes", &query, list.limit.most(output)).await
        }
        Verb::Lift(lift) => {
            let client = Client::connect(&lift.common.access).await?;
            let path = format!("/freezes/{}:lift", lift.id);
            print_freeze(lift.common.output, &client.write(Method::POST, &path, &[], &Value::Null).await?)
        }
    }
}

async fn start_freeze(start: &Start) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&start.common.access).await?;
    let mut body = json!({"reason": start.reason, "all_teams": start.all_teams});
    let time = |time: Option<Instant>| time.map(|time| json!(rfc3339(time.0)));
    let named =
        [("team_id", start.team.map(|team| json!(team))), ("from", time(start.from)), ("until", time(start.until))];
    for (name, value) in named {
        if let Some(value) = value {
            body[name] = value;
        }
    }
    if start.dry_run.is_dry() {
        return print_changes(&client, Method::POST, "/freezes", &body, start.common.output).await;
    }
    print_freeze(start.common.output, &client.write(Method::POST, "/freezes", &[], &body).await?)
}

fn print_freeze(output: Output, freeze: &FreezeView) -> anyhow::Result<ExitCode> {
    output.print_one(freeze, &freeze.id.to_string(), |view| {
        vec![
            ("freeze", freeze.id.into()),
            ("team", freeze.team_id.map_or_else(|| Cell::from("all"), Cell::from)),
            ("state", state(&freeze.state)),
            ("reason", Cell::from(&freeze.reason)),
            ("from", view.time(Some(freeze.from))),
            ("until", freeze.until.map_or_else(|| Cell::from("it is lifted"), |until| view.time(Some(until)))),
            ("by", Cell::from(freeze.actor_name.as_deref().unwrap_or(&freeze.actor))),
            ("lifted by", Cell::optional(freeze.lifted_by.as_deref())),
            ("lifted", view.time(freeze.lifted_on)),
        ]
    })
}
