//! Step 7 of 7: what a message says, for each kind of channel.

use api_types::notifications::NotificationEvent;
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};
use url::Url;

use super::claim::Claimed;
use crate::notification::Notification;
use crate::text;

/// How many notifications a message names; of the others it says how many they are.
pub(super) const NAMED: i64 = 50;

/// What a message says.
pub(crate) struct Content {
    kind: String,
    now: DateTime<Utc>,
    environment: String,
    team_id: i64,
    team_name: Option<String>,
    subject: String,
    advice: String,
    items: Vec<Item>,
    /// How many more notifications it is about.
    more: i64,
}

struct Item {
    text: String,
    link: Option<String>,
    document: Value,
}

impl Content {
    /// The content of a message.
    pub(crate) fn new(
        message: &Claimed,
        items: &[Notification],
        environment: &str,
        public_url: Option<&Url>,
        now: DateTime<Utc>,
    ) -> Self {
        let event = NotificationEvent::parse(&message.event).unwrap_or(NotificationEvent::RunFailed);
        let subject = items.first().map(|first| text::subject(&first.said(), message.items)).unwrap_or_default();
        Self {
            kind: message.event.clone(),
            now,
            environment: environment.to_owned(),
            team_id: message.team_id,
            team_name: message.team_name.clone(),
            subject,
            advice: text::advice(event).to_owned(),
            items: items.iter().map(|one| Item::new(one, public_url)).collect(),
            more: i64::from(message.items) - i64::try_from(items.len()).unwrap_or_default(),
        }
    }

    /// The content of a test of a channel, by its id. Its name is a text of an editor, who may name any recipient of e-mail.
    pub(crate) fn test(channel: i64, team_id: i64, environment: &str, now: DateTime<Utc>) -> Self {
        Self {
            kind: "test".to_owned(),
            now,
            environment: environment.to_owned(),
            team_id,
            team_name: None,
            subject: format!("This is a test of the channel {channel}"),
            advice: "Nothing needs to be done: notifications of cronbox arrive here.".to_owned(),
            items: Vec::new(),
            more: 0,
        }
    }

    /// `cronbox.` and the event.
    pub(crate) fn kind(&self) -> String {
        format!("cronbox.{}", self.kind)
    }

    /// One line.
    pub(crate) fn subject(&self) -> String {
        format!("[cronbox {}] {}", self.environment, self.subject.replace(['\r', '\n'], " "))
    }

    /// The body of a webhook, as Standard Webhooks names its members: `type`, `timestamp`, `data`.
    pub(crate) fn envelope(&self) -> Value {
        let items: Vec<&Value> = self.items.iter().map(|item| &item.document).collect();
        json!({
            "type": self.kind(),
            "timestamp": self.now.to_rfc3339_opts(SecondsFormat::Secs, true),
            "data": {
                "environment": self.environment,
                "team_id": self.team_id,
                "team": self.team_name,
                "text": self.subject,
                "advice": self.advice,
                "notifications": items,
                "more": self.more,
            },
        })
    }

    /// The body for an incoming webhook of Slack.
    pub(crate) fn slack(&self) -> Value {
        let mut lines = vec![format!("*{}*", escape_slack(&self.subject()))];
        if self.items.len() > 1 || self.more > 0 {
            lines.extend(self.items.iter().map(|item| format!("• {}", item.slack_line())));
        } else {
            lines.extend(self.items.iter().filter_map(|item| item.link.as_deref().map(slack_link)));
        }
        lines.extend(self.more_line());
        lines.push(escape_slack(&self.advice));
        json!({ "text": lines.join("\n") })
    }

    /// The text of an e-mail.
    pub(crate) fn mail_text(&self) -> String {
        let mut lines: Vec<String> = match self.items.is_empty() {
            true => vec![self.subject.clone()],
            false => self.items.iter().map(Item::mail_line).collect(),
        };
        lines.extend(self.more_line());
        lines.extend([String::new(), self.advice.clone(), String::new()]);
        let team = self.team_name.as_deref().map_or_else(|| self.team_id.to_string(), str::to_owned);
        lines.push(format!("Team {team}, environment {}", self.environment));
        lines.join("\n") + "\n"
    }

    fn more_line(&self) -> Option<String> {
        (self.more > 0).then(|| format!("and {} more", self.more))
    }
}

impl Item {
    fn new(notification: &Notification, public_url: Option<&Url>) -> Self {
        let text = text::sentence(&notification.said());
        let link = public_url.and_then(|base| link_of(notification, base));
        let document = json!({
            "id": notification.id,
            "event": notification.event(),
            "text": text,
            "workflow_id": notification.workflow_id,
            "workflow": notification.workflow_name,
            "happened_on": notification.happened_on,
            "run_id": notification.run_id,
            "scheduled_time": notification.scheduled_time,
            "facts": notification.facts_for_team(),
            "link": link,
        });
        Self { text, link, document }
    }

    fn slack_line(&self) -> String {
        let link = self.link.as_deref().map(|link| format!(" {}", slack_link(link))).unwrap_or_default();
        format!("{}{link}", escape_slack(&self.text))
    }

    fn mail_line(&self) -> String {
        let link = self.link.as_deref().map(|link| format!("\n  {link}")).unwrap_or_default();
        format!("- {}{link}", self.text.replace(['\r', '\n'], " "))
    }
}

/// Where a person reads more: about the run, or about the workflow.
fn link_of(notification: &Notification, base: &Url) -> Option<String> {
    let path = match (notification.run_id, notification.workflow_id) {
        (Some(run), _) => format!("runs/{run}"),
        (None, Some(workflow)) => format!("workflows/{workflow}"),
        (None, None) => "freezes".to_owned(),
    };
    let base = base.as_str().trim_end_matches('/');
    Some(format!("{base}/api/v1/{path}"))
}

/// Slack gives these three characters a meaning.
fn escape_slack(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn slack_link(link: &str) -> String {
    format!("<{}|details>", escape_slack(link).replace('|', "%7C"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name or an error must not write to `@channel`, nor make a link.
    #[test]
    fn text_of_tenants_controls_no_slack_message() {
        assert_eq!(escape_slack("<!channel> & <http://a|b>"), "&lt;!channel&gt; &amp; &lt;http://a|b&gt;");
    }
}
