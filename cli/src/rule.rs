//! `cronbox rule`: which events become notifications.

use std::process::ExitCode;

use api_types::notifications::{NotificationEvent, RuleView};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::json;

use crate::client::Client;
use crate::common::{Common, DryRun, print_changes};
use crate::listing::{Limit, print_list};
use crate::output::{Cell, Output, Row, View, word};
use crate::times::{Instant, Span, rfc3339};

/// What can be done with rules.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// List rules, the newest first.
    Ls(List),
    /// Create a rule.
    Create(Create),
    /// Record notifications of a rule without sending them, until a time; without a time the rule sends again.
    Snooze(Snooze),
    /// Delete a rule.
    Delete(Named),
}

/// Which rules are listed.
#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    common: Common,
    /// Only rules of this team, by id.
    #[arg(long, value_name = "ID")]
    team: Option<i64>,
    #[command(flatten)]
    limit: Limit<50>,
}

/// A new rule.
#[derive(Args)]
pub(crate) struct Create {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    dry_run: DryRun,
    /// What happens, for example missed or recovered; a wrong word lists all of them.
    #[arg(value_name = "EVENT", value_parser = parse_event)]
    event: NotificationEvent,
    /// A channel that gets it, by id; repeat it for further ones.
    #[arg(long, value_name = "ID", required = true)]
    channel: Vec<i64>,
    /// Only this workflow, by id.
    #[arg(long, value_name = "ID")]
    workflow: Option<i64>,
    /// How often in a row.
    #[arg(long, value_name = "N")]
    threshold: Option<i32>,
    /// How long it lasts: 90m, 24h, 7d.
    #[arg(long, value_name = "SPAN")]
    after: Option<Span>,
    /// The team, by id; needed with an admin key.
    #[arg(long, value_name = "ID")]
    team: Option<i64>,
}

/// A rule that is snoozed.
#[derive(Args)]
pub(crate) struct Snooze {
    #[command(flatten)]
    common: Common,
    /// Its id.
    #[arg(value_name = "RULE")]
    id: i64,
    /// Until when: RFC 3339, monday, +2h.
    #[arg(long, value_name = "TIME")]
    until: Option<Instant>,
}

/// A rule.
#[derive(Args)]
pub(crate) struct Named {
    #[command(flatten)]
    common: Common,
    /// Its id.
    #[arg(value_name = "RULE")]
    id: i64,
}

fn parse_event(text: &str) -> Result<NotificationEvent, String> {
    let known: Vec<_> = NotificationEvent::ALL.into_iter().map(NotificationEvent::as_str).collect();
    NotificationEvent::parse(text).ok_or_else(|| format!("the events are {}", known.join(", ")))
}

/// Runs the command.
pub(crate) async fn run_rule(verb: &Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Ls(list) => {
            let client = Client::connect(&list.common.access).await?;
            let query: Vec<_> = list.team.map(|team| ("team_id", team.to_string())).into_iter().collect();
            let output = list.common.output;
            print_list::<RuleView>(&client, output, "/notification-rules", &query, list.limit.most(output)).await
        }
        Verb::Create(create) => create_rule(create).await,
        Verb::Snooze(snooze) => {
            let client = Client::connect(&snooze.common.access).await?;
            let path = format!("/notification-rules/{}:snooze", snooze.id);
            let body = json!({"until": snooze.until.map(|until| rfc3339(until.0))});
            print_rule(snooze.common.output, &client.write(Method::POST, &path, &[], &body).await?)
        }
        Verb::Delete(named) => {
            let client = Client::connect(&named.common.access).await?;
            client.delete(&format!("/notification-rules/{}", named.id)).await?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn create_rule(create: &Create) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&create.common.access).await?;
    let mut body = json!({"event": create.event, "channel_ids": create.channel});
    let named = [
        ("workflow_id", create.workflow.map(|workflow| json!(workflow))),
        ("threshold", create.threshold.map(|threshold| json!(threshold))),
        ("after_secs", create.after.map(|after| json!(after.0.num_seconds()))),
        ("team_id", create.team.map(|team| json!(team))),
    ];
    for (name, value) in named {
        if let Some(value) = value {
            body[name] = value;
        }
    }
    let path = "/notification-rules";
    if create.dry_run.is_dry() {
        return print_changes(&client, Method::POST, path, &body, create.common.output).await;
    }
    print_rule(create.common.output, &client.write(Method::POST, path, &[], &body).await?)
}

fn print_rule(output: Output, rule: &RuleView) -> anyhow::Result<ExitCode> {
    output.print_one(rule, &rule.id.to_string(), |view| {
        let titles = ["rule", "event", "workflow", "condition", "channels", "enabled", "snoozed until", "team"];
        titles.into_iter().zip(rule.cells(view)).collect()
    })
}

impl Row for RuleView {
    const COLUMNS: &'static [&'static str] =
        &["ID", "EVENT", "WORKFLOW", "CONDITION", "CHANNELS", "ENABLED", "SNOOZED UNTIL", "TEAM"];
    const WIDE_FROM: usize = 8;

    fn handle(&self) -> String {
        self.id.to_string()
    }

    fn cells(&self, view: View) -> Vec<Cell> {
        let condition = match (self.threshold, self.after_secs) {
            (Some(threshold), _) => format!("{threshold} in a row"),
            (None, Some(secs)) => format!("after {secs} s"),
            (None, None) => String::new(),
        };
        let channels: Vec<String> = self.channel_ids.iter().map(ToString::to_string).collect();
        vec![
            self.id.into(),
            Cell::from(word(&self.event)),
            self.workflow_id.map_or_else(|| Cell::from("all"), Cell::from),
            Cell::from(condition),
            Cell::from(channels.join(",")),
            Cell::from(if self.enabled { "yes" } else { "no" }),
            view.time(self.snoozed_until),
            self.team_id.into(),
        ]
    }
}
