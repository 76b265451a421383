//! `cronbox channel`: where a team wants notifications.

use std::process::ExitCode;

use api_types::notifications::{ChannelView, TestResultView};
use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::Client;
use crate::common::{Common, DryRun, print_changes};
use crate::listing::{Limit, print_list};
use crate::output::{Cell, Look, Output, Row, View, word};

/// What can be done with channels.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// List channels, the newest first.
    Ls(List),
    /// Create a channel.
    Create(Create),
    /// Send a test message now; exit 1 if it is not accepted.
    Test(Named),
    /// Delete a channel that no rule has.
    Delete(Named),
}

/// Which channels are listed.
#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    common: Common,
    /// Only channels of this team, by id.
    #[arg(long, value_name = "ID")]
    team: Option<i64>,
    #[command(flatten)]
    limit: Limit<50>,
}

/// A new channel.
#[derive(Args)]
pub(crate) struct Create {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    dry_run: DryRun,
    /// Its name, unique in the team.
    #[arg(value_name = "NAME")]
    name: String,
    /// How messages are sent.
    #[arg(long)]
    kind: KindArgument,
    /// Where they are posted, for webhook and slack; the ARN of an event bus or an SNS topic, for aws.
    #[arg(long, value_name = "URL|ARN")]
    target: Option<String>,
    /// An address, for email; repeat it for further ones.
    #[arg(long, value_name = "ADDRESS")]
    to: Vec<String>,
    /// Messages in an hour at most.
    #[arg(long, value_name = "N")]
    max_per_hour: Option<i32>,
    /// Also create the rules that most teams want.
    #[arg(long)]
    default_rules: bool,
    /// The team, by id; needed with an admin key.
    #[arg(long, value_name = "ID")]
    team: Option<i64>,
}

/// A channel.
#[derive(Args)]
pub(crate) struct Named {
    #[command(flatten)]
    common: Common,
    /// Its id.
    #[arg(value_name = "CHANNEL")]
    id: i64,
}

/// How messages are sent.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum KindArgument {
    Webhook,
    Slack,
    Email,
    Aws,
}

/// Runs the command.
pub(crate) async fn run_channel(verb: &Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Ls(list) => {
            let client = Client::connect(&list.common.access).await?;
            let query: Vec<_> = list.team.map(|team| ("team_id", team.to_string())).into_iter().collect();
            let output = list.common.output;
            print_list::<ChannelView>(&client, output, "/notification-channels", &query, list.limit.most(output)).await
        }
        Verb::Create(create) => create_channel(create).await,
        Verb::Test(named) => test_channel(named).await,
        Verb::Delete(named) => {
            let client = Client::connect(&named.common.access).await?;
            client.delete(&format!("/notification-channels/{}", named.id)).await?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn create_channel(create: &Create) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&create.common.access).await?;
    let kind = create.kind.to_possible_value().map(|value| value.get_name().to_owned());
    let mut body =
        json!({"name": create.name, "kind": kind, "recipients": create.to, "default_rules": create.default_rules});
    let target = if matches!(create.kind, KindArgument::Aws) { "target_arn" } else { "url" };
    let named = [
        (target, create.target.as_ref().map(|value| json!(value))),
        ("max_per_hour", create.max_per_hour.map(|most| json!(most))),
        ("team_id", create.team.map(|team| json!(team))),
    ];
    for (name, value) in named {
        if let Some(value) = value {
            body[name] = value;
        }
    }
    let path = "/notification-channels";
    if create.dry_run.is_dry() {
        return print_changes(&client, Method::POST, path, &body, create.common.output).await;
    }
    print_channel(create.common.output, &client.write(Method::POST, path, &[], &body).await?)
}

async fn test_channel(named: &Named) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&named.common.access).await?;
    let path = format!("/notification-channels/{}:test", named.id);
    let result: TestResultView = client.write(Method::POST, &path, &[], &Value::Null).await?;
    named.common.output.print_one(&result, &named.id.to_string(), |_| {
        let (text, look) = match (result.delivered, result.message_id) {
            (true, _) => ("accepted", Look::Good),
            (false, Some(_)) => ("the Lambda notifier sends it", Look::Waiting),
            (false, None) => ("not accepted", Look::Bad),
        };
        vec![
            ("message", Cell::with_look(text, look)),
            ("id", Cell::optional(result.message_id)),
            ("error", Cell::optional(result.error.as_deref())),
        ]
    })?;
    Ok(if result.delivered || result.message_id.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_channel(output: Output, channel: &ChannelView) -> anyhow::Result<ExitCode> {
    output.print_one(channel, &channel.id.to_string(), |view| {
        let titles = ["channel", "name", "kind", "target", "enabled", "max per hour", "quiet", "team"];
        titles.into_iter().zip(channel.cells(view)).collect()
    })
}

/// Where its messages go, as far as that may be shown.
fn target_of(channel: &ChannelView) -> String {
    let named = channel.origin.clone().or_else(|| channel.target_arn.clone());
    named.unwrap_or_else(|| channel.recipients.join(","))
}

impl Row for ChannelView {
    const COLUMNS: &'static [&'static str] =
        &["ID", "NAME", "KIND", "TARGET", "ENABLED", "MAX PER HOUR", "QUIET", "TEAM"];
    const WIDE_FROM: usize = 8;

    fn handle(&self) -> String {
        self.id.to_string()
    }

    fn cells(&self, _: View) -> Vec<Cell> {
        let quiet = self.quiet.as_ref();
        vec![
            self.id.into(),
            Cell::from(&self.name),
            Cell::from(word(&self.kind)),
            Cell::from(target_of(self)),
            Cell::from(if self.enabled { "yes" } else { "no" }),
            self.max_per_hour.into(),
            Cell::optional(quiet.map(|quiet| format!("{} to {} {}", quiet.from, quiet.to, quiet.timezone))),
            self.team_id.into(),
        ]
    }
}
