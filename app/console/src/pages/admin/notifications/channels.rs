//! `/admin/notifications/channels`: where messages go.

use api_types::notifications::{ChannelKind, ChannelView, TestResultView};
use api_types::page::Page;
use askama::Template;
use axum::Router;
use axum::extract::{Path, Query};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};

use super::parts::Part;
use super::words;
use crate::act::{self, Act};
use crate::answer::show_page;
use crate::api::{Api, Console, Write, etag_of};
use crate::failure::Failure;
use crate::form::{Sent, filled, lines, object, whole_number};
use crate::frame::{Frame, Menu};
use crate::pages::admin::shown::{ROWS, Shown};
use crate::pages::admin::tabs::{self, Tab};
use crate::path::PathId;
use crate::query::with_query;
use crate::teams::Teams;

const PAGE: &str = "/admin/notifications/channels";

pub(super) fn routes() -> Router<Console> {
    Router::new()
        .route(PAGE, get(list).post(create))
        .route("/admin/notifications/channels/new", get(show_new))
        .route("/admin/notifications/channels/{id}", get(show_existing).post(save))
        .route("/admin/notifications/channels/{id}/test", post(test))
        .route("/admin/notifications/channels/{id}/enabled", post(set_enabled))
        .route("/admin/notifications/channels/{id}/delete", post(delete))
}

#[derive(Template)]
#[template(path = "admin/channels.html")]
struct ChannelsPage {
    frame: Frame,
    tab: Tab,
    part: Part,
    channels: Vec<ChannelView>,
    teams: Teams,
    is_first: bool,
    next: Option<String>,
}

async fn list(api: Api, Query(shown): Query<Shown>) -> Result<Response, Failure> {
    let frame = Frame::read(&api, Menu::Admin, "Channels", shown.done.as_deref()).await?;
    let path = with_query("/notification-channels", [("cursor", Some(&*shown.cursor)), ("limit", Some(ROWS))]);
    let page: Page<ChannelView> = api.get(&path).await?;
    let next = page.next_cursor.as_deref().map(|cursor| with_query(PAGE, [("cursor", Some(cursor))]));
    let (channels, teams) = (page.items, Teams::read(&api).await?);
    let is_first = shown.cursor.is_empty();
    show_page(&ChannelsPage { frame, tab: Tab::Notifications, part: Part::Channels, channels, teams, is_first, next })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NewKind {
    kind: String,
}

/// The form of a new channel, or of one that exists.
#[derive(Template)]
#[template(path = "admin/channel_form.html")]
struct ChannelFormPage {
    frame: Frame,
    tab: Tab,
    part: Part,
    /// The channel that it changes; None: it creates one.
    id: Option<i64>,
    kind: ChannelKind,
    fields: ChannelFields,
    teams: Teams,
    may_choose_all: bool,
}

async fn show_new(api: Api, Query(NewKind { kind }): Query<NewKind>) -> Result<Response, Failure> {
    let kind = serde_json::from_value(json!(kind)).unwrap_or(ChannelKind::Webhook);
    let title = match kind {
        ChannelKind::Webhook => "Notify a webhook",
        ChannelKind::Slack => "Notify a channel of Slack",
        ChannelKind::Email => "Notify by e-mail",
        ChannelKind::Aws => "Notify an event bus or topic of AWS",
    };
    let frame = Frame::read(&api, Menu::Admin, title, None).await?;
    let fields = ChannelFields { max_per_hour: "60".into(), quiet_timezone: "UTC".into(), ..ChannelFields::default() };
    show_form(&api, frame, None, kind, fields).await
}

async fn show_existing(api: Api, PathId(id): PathId<i64>) -> Result<Response, Failure> {
    let channel: ChannelView = api.get(&format!("/notification-channels/{id}")).await?;
    let frame = Frame::read(&api, Menu::Admin, format!("Channel {}", channel.name), None).await?;
    show_form(&api, frame, Some(id), channel.kind, ChannelFields::from(&channel)).await
}

async fn show_form(
    api: &Api,
    frame: Frame,
    id: Option<i64>,
    kind: ChannelKind,
    fields: ChannelFields,
) -> Result<Response, Failure> {
    let (tab, part, teams) = (Tab::Notifications, Part::Channels, Teams::read(api).await?);
    show_page(&ChannelFormPage { frame, tab, part, id, kind, fields, teams, may_choose_all: false })
}

/// The fields of the form.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ChannelFields {
    /// The version that the visitor has seen; empty in a new one.
    version: String,
    team_id: String,
    name: String,
    kind: String,
    url: String,
    recipients: String,
    target_arn: String,
    max_per_hour: String,
    #[serde(rename = "quiet.from")]
    quiet_from: String,
    #[serde(rename = "quiet.to")]
    quiet_to: String,
    #[serde(rename = "quiet.timezone")]
    quiet_timezone: String,
    default_rules: bool,
}

async fn create(api: Api, Sent(form): Sent<ChannelFields>) -> Act {
    let of_new = [
        ("team_id", json!(whole_number::<i64>("team_id", &form.team_id)?)),
        ("kind", json!(form.kind)),
        ("default_rules", json!(form.default_rules)),
    ];
    api.post_json("/notification-channels", object(form.members()?.into_iter().chain(of_new))).await?;
    Ok(act::show_next(PAGE, "channel-saved"))
}

async fn save(api: Api, Path(id): Path<i64>, Sent(form): Sent<ChannelFields>) -> Act {
    let path = format!("/notification-channels/{id}");
    let present: ChannelView = api.get(&path).await?;
    let seen = etag_of(&form.version);
    let kept = [("kind", json!(present.kind)), ("enabled", json!(present.enabled))];
    let body = object(form.members()?.into_iter().chain(kept));
    api.send(Method::PUT, &path, Write { body: Some(body), if_match: Some(&seen), ..Write::default() }).await?;
    Ok(act::show_next(PAGE, "channel-saved"))
}

impl ChannelFields {
    /// What a client may set in a channel that exists. An empty URL is left out: the channel keeps its own.
    fn members(&self) -> Result<Vec<(&'static str, Value)>, Failure> {
        Ok(vec![
            ("name", json!(self.name)),
            ("url", json!(filled(&self.url))),
            ("recipients", json!(lines(&self.recipients))),
            ("target_arn", json!(filled(&self.target_arn))),
            ("max_per_hour", json!(whole_number::<i32>("max_per_hour", &self.max_per_hour)?)),
            ("quiet", self.quiet()),
        ])
    }

    /// The quiet hours; null: messages are sent at all times.
    fn quiet(&self) -> Value {
        match (filled(&self.quiet_from), filled(&self.quiet_to)) {
            (None, None) => Value::Null,
            (from, to) => {
                let timezone = filled(&self.quiet_timezone).unwrap_or("UTC");
                json!({ "from": from.unwrap_or_default(), "to": to.unwrap_or_default(), "timezone": timezone })
            }
        }
    }
}

impl From<&ChannelView> for ChannelFields {
    fn from(channel: &ChannelView) -> Self {
        let quiet = channel.quiet.clone();
        Self {
            version: channel.version.to_string(),
            name: channel.name.clone(),
            recipients: channel.recipients.join("\n"),
            target_arn: channel.target_arn.clone().unwrap_or_default(),
            max_per_hour: channel.max_per_hour.to_string(),
            quiet_timezone: quiet.as_ref().map_or_else(|| "UTC".to_owned(), |quiet| quiet.timezone.clone()),
            quiet_from: quiet.as_ref().map(|quiet| quiet.from.clone()).unwrap_or_default(),
            quiet_to: quiet.map(|quiet| quiet.to).unwrap_or_default(),
            ..Self::default()
        }
    }
}

async fn test(api: Api, Path(id): Path<i64>) -> Act {
    let result: TestResultView = api.post(&format!("/notification-channels/{id}:test")).await?.json()?;
    if result.delivered {
        return Ok(act::show_next(PAGE, "tested"));
    }
    if result.message_id.is_some() {
        return Ok(act::show_next("/admin/notifications/messages", "test-waits"));
    }
    let reason = result.error.as_deref().unwrap_or("the receiver did not accept it");
    Err(not_delivered(&format!("The test message was not delivered: {reason}")).into())
}

/// The refusal that a test shows; no field is wrong.
fn not_delivered(detail: &str) -> Failure {
    match Failure::of_field("", detail) {
        Failure::Refused(_, mut problem) => {
            problem.field = None;
            problem.code = "not_delivered".to_owned();
            Failure::Refused(StatusCode::BAD_GATEWAY, problem)
        }
        other => other,
    }
}

#[derive(Deserialize)]
struct Enabled {
    enabled: bool,
}

async fn set_enabled(api: Api, Path(id): Path<i64>, Sent(form): Sent<Enabled>) -> Act {
    let path = format!("/notification-channels/{id}");
    let mut channel: ChannelView = api.get(&path).await?;
    let seen = etag_of(&channel.version);
    channel.enabled = form.enabled;
    // The API accepts what it has shown; without a url the channel keeps its own.
    let write = Write { body: Some(json!(channel)), if_match: Some(&seen), ..Write::default() };
    api.send(Method::PUT, &path, write).await?;
    Ok(act::show_next(PAGE, "channel-saved"))
}

async fn delete(api: Api, Path(id): Path<i64>) -> Act {
    api.send(Method::DELETE, &format!("/notification-channels/{id}"), Write::default()).await?;
    Ok(act::show_next(PAGE, "channel-deleted"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_hours_are_sent_only_if_filled() {
        let mut form = ChannelFields::default();
        assert_eq!(form.quiet(), Value::Null);
        form.quiet_from = "22:00".into();
        form.quiet_to = "07:00".into();
        assert_eq!(form.quiet(), json!({ "from": "22:00", "to": "07:00", "timezone": "UTC" }));
    }

    #[test]
    fn an_unchanged_form_changes_nothing() {
        let channel: ChannelView = serde_json::from_value(json!({
            "id": 1, "team_id": 2, "name": "on call", "kind": "email", "origin": null,
            "recipients": ["a@example.com", "b@example.com"], "target_arn": null, "max_per_hour": 7,
            "quiet": { "from": "22:00", "to": "07:00", "timezone": "Europe/Paris" }, "enabled": true, "version": 3,
            "created_on": "2026-03-02T08:00:00Z", "updated_on": "2026-03-02T08:00:00Z",
        }))
        .unwrap();
        let sent = object(ChannelFields::from(&channel).members().unwrap());
        let quiet = json!({ "from": "22:00", "to": "07:00", "timezone": "Europe/Paris" });
        let recipients = ["a@example.com", "b@example.com"];
        assert_eq!(sent, json!({ "name": "on call", "recipients": recipients, "max_per_hour": 7, "quiet": quiet }));
    }
}
