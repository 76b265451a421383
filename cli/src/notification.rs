//! `cronbox notification`: what happened by the rules, and which messages were delivered.

use std::process::ExitCode;

use api_types::notifications::{MessageView, NotificationView};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;
use uuid::Uuid;

use crate::client::Client;
use crate::common::Common;
use crate::listing::{Limit, print_list};
use crate::output::{Cell, Output, Row, View, state, word};

/// What can be done with notifications.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// List notifications, the newest first.
    Ls(List),
    /// Say that you take care of a notification.
    Ack(Ack),
    /// List messages, the newest first; those that failed are the dead letters.
    Messages(Messages),
    /// Deliver a failed message again, under the same id.
    Retry(Retry),
}

/// Which notifications are listed.
#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    common: Common,
    /// Only those that no person takes care of.
    #[arg(long)]
    open: bool,
    /// Only those of this workflow, by id.
    #[arg(long, value_name = "ID")]
    workflow: Option<i64>,
    /// Only those of this event.
    #[arg(long, value_name = "EVENT")]
    event: Option<String>,
    #[command(flatten)]
    limit: Limit<50>,
}

/// A notification.
#[derive(Args)]
pub(crate) struct Ack {
    #[command(flatten)]
    common: Common,
    /// Its id.
    #[arg(value_name = "NOTIFICATION")]
    id: i64,
}

/// Which messages are listed.
#[derive(Args)]
pub(crate) struct Messages {
    #[command(flatten)]
    common: Common,
    /// Only those that were not delivered.
    #[arg(long)]
    failed: bool,
    #[command(flatten)]
    limit: Limit<50>,
}

/// A message.
#[derive(Args)]
pub(crate) struct Retry {
    #[command(flatten)]
    common: Common,
    /// Its id.
    #[arg(value_name = "MESSAGE")]
    id: Uuid,
}

/// Runs the command.
pub(crate) async fn run_notification(verb: &Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Ls(list) => list_notifications(list).await,
        Verb::Ack(ack) => {
            let client = Client::connect(&ack.common.access).await?;
            let path = format!("/notifications/{}:acknowledge", ack.id);
            print_notification(ack.common.output, &client.write(Method::POST, &path, &[], &Value::Null).await?)
        }
        Verb::Messages(messages) => {
            let client = Client::connect(&messages.common.access).await?;
            let query: Vec<_> = messages.failed.then(|| ("state", "failed".to_owned())).into_iter().collect();
            let output = messages.common.output;
            print_list::<MessageView>(&client, output, "/notification-messages", &query, messages.limit.most(output))
                .await
        }
        Verb::Retry(retry) => {
            let client = Client::connect(&retry.common.access).await?;
            let path = format!("/notification-messages/{}:retry", retry.id);
            print_message(retry.common.output, &client.write(Method::POST, &path, &[], &Value::Null).await?)
        }
    }
}

async fn list_notifications(list: &List) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&list.common.access).await?;
    let query: Vec<(&str, String)> = [
        ("acknowledged", list.open.then(|| "false".to_owned())),
        ("workflow_id", list.workflow.map(|workflow| workflow.to_string())),
        ("event", list.event.clone()),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect();
    let output = list.common.output;
    print_list::<NotificationView>(&client, output, "/notifications", &query, list.limit.most(output)).await
}

fn print_notification(output: Output, notification: &NotificationView) -> anyhow::Result<ExitCode> {
    output.print_one(notification, &notification.id.to_string(), |view| {
        let titles = ["notification", "event", "happened", "text", "by", "state", "run", "rule", "team"];
        titles.into_iter().zip(notification.cells(view)).collect()
    })
}

fn print_message(output: Output, message: &MessageView) -> anyhow::Result<ExitCode> {
    output.print_one(message, &message.id.to_string(), |view| {
        let titles = ["message", "channel", "event", "items", "state", "attempts", "due", "error", "created", "sent"];
        titles.into_iter().zip(message.cells(view)).collect()
    })
}

impl Row for NotificationView {
    const COLUMNS: &'static [&'static str] =
        &["ID", "EVENT", "HAPPENED", "TEXT", "TAKEN CARE OF BY", "STATE", "RUN", "RULE", "TEAM"];
    const WIDE_FROM: usize = 5;

    fn handle(&self) -> String {
        self.id.to_string()
    }

    fn cells(&self, view: View) -> Vec<Cell> {
        vec![
            self.id.into(),
            Cell::from(word(&self.event)),
            view.time(Some(self.happened_on)),
            Cell::from(&self.text),
            Cell::optional(self.acknowledged_by.as_deref()),
            Cell::from(word(&self.state)),
            Cell::optional(self.run_id),
            self.rule_id.into(),
            self.team_id.into(),
        ]
    }
}

impl Row for MessageView {
    const COLUMNS: &'static [&'static str] =
        &["ID", "CHANNEL", "EVENT", "ITEMS", "STATE", "ATTEMPTS", "DUE", "ERROR", "CREATED", "SENT"];
    const WIDE_FROM: usize = 8;

    fn handle(&self) -> String {
        self.id.to_string()
    }

    fn cells(&self, view: View) -> Vec<Cell> {
        vec![
            self.id.into(),
            self.channel_id.into(),
            Cell::from(word(&self.event)),
            self.items.into(),
            state(&self.state),
            self.attempt_count.into(),
            view.time(self.due_at),
            Cell::optional(self.last_error.as_deref()),
            view.time(Some(self.created_on)),
            view.time(self.sent_on),
        ]
    }
}
