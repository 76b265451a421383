//! `/admin/notifications/rules`: which events become notifications.

use api_types::notifications::{ChannelView, NotificationEvent, RuleView};
use api_types::page::Page;
use askama::Template;
use axum::Router;
use axum::extract::{Path, Query};
use axum::http::Method;
use axum::response::Response;
use axum::routing::{get, post};
use chrono::TimeDelta;
use serde::Deserialize;
use serde_json::{Value, json};

use super::parts::{Channels, Part};
use super::words;
use crate::act::{self, Act};
use crate::answer::show_page;
use crate::api::{Api, Console, Write, etag_of};
use crate::failure::Failure;
use crate::form::{Sent, object, whole_number};
use crate::frame::{Frame, Menu};
use crate::pages::admin::shown::{ROWS, Shown};
use crate::pages::admin::tabs::{self, Tab};
use crate::path::PathId;
use crate::query::with_query;
use crate::teams::Teams;
use crate::times;

const PAGE: &str = "/admin/notifications/rules";
/// For how long a rule is snoozed at most: a month.
const LONGEST_SNOOZE_HOURS: i64 = 744;

pub(super) fn routes() -> Router<Console> {
    Router::new()
        .route(PAGE, get(list).post(create))
        .route("/admin/notifications/rules/{id}", get(show_existing).post(save))
        .route("/admin/notifications/rules/{id}/snooze", post(snooze))
        .route("/admin/notifications/rules/{id}/enabled", post(set_enabled))
        .route("/admin/notifications/rules/{id}/delete", post(delete))
}

#[derive(Template)]
#[template(path = "admin/rules.html")]
struct RulesPage {
    frame: Frame,
    tab: Tab,
    part: Part,
    rules: Vec<RuleView>,
    /// Those of a new rule.
    fields: RuleFields,
    channels: Channels,
    teams: Teams,
    is_first: bool,
    next: Option<String>,
}

async fn list(api: Api, Query(shown): Query<Shown>) -> Result<Response, Failure> {
    let frame = Frame::read(&api, Menu::Admin, "Rules", shown.done.as_deref()).await?;
    let path = with_query("/notification-rules", [("cursor", Some(&*shown.cursor)), ("limit", Some(ROWS))]);
    let page: Page<RuleView> = api.get(&path).await?;
    let next = page.next_cursor.as_deref().map(|cursor| with_query(PAGE, [("cursor", Some(cursor))]));
    let (channels, teams) = (Channels::read(&api).await?, Teams::read(&api).await?);
    show_page(&RulesPage {
        frame,
        tab: Tab::Notifications,
        part: Part::Rules,
        rules: page.items,
        fields: RuleFields::default(),
        channels,
        teams,
        is_first: shown.cursor.is_empty(),
        next,
    })
}

impl RulesPage {
    /// The end of the snooze, while it lasts.
    fn snoozed_until(&self, rule: &RuleView) -> Option<String> {
        rule.snoozed_until.filter(|until| *until > self.frame.now).map(|until| times::in_utc(&until))
    }
}

/// The form of a rule that exists.
#[derive(Template)]
#[template(path = "admin/rule_form.html")]
struct RuleFormPage {
    frame: Frame,
    tab: Tab,
    part: Part,
    id: i64,
    fields: RuleFields,
    channels: Channels,
    teams: Teams,
}

async fn show_existing(api: Api, PathId(id): PathId<i64>) -> Result<Response, Failure> {
    let rule: RuleView = api.get(&format!("/notification-rules/{id}")).await?;
    let frame = Frame::read(&api, Menu::Admin, format!("Rule {id}"), None).await?;
    let (fields, channels) = (RuleFields::from(&rule), Channels::read_of_team(&api, rule.team_id).await?);
    let (tab, part, teams) = (Tab::Notifications, Part::Rules, Teams::read(&api).await?);
    show_page(&RuleFormPage { frame, tab, part, id, fields, channels, teams })
}

/// The fields of the form.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RuleFields {
    /// The version that the visitor has seen; empty in a new one.
    version: String,
    event: String,
    threshold: String,
    after_secs: String,
    group_secs: String,
    workflow_id: String,
    channel_ids: Vec<i64>,
}

impl RuleFields {
    /// What a client may set in a rule that exists.
    fn members(&self) -> Result<Vec<(&'static str, Value)>, Failure> {
        Ok(vec![
            ("event", json!(self.event)),
            ("threshold", json!(whole_number::<i32>("threshold", &self.threshold)?)),
            ("after_secs", json!(whole_number::<i32>("after_secs", &self.after_secs)?)),
            ("group_secs", json!(whole_number::<i32>("group_secs", &self.group_secs)?)),
            ("workflow_id", json!(whole_number::<i64>("workflow_id", &self.workflow_id)?)),
            ("channel_ids", json!(self.channel_ids)),
        ])
    }
}

impl From<&RuleView> for RuleFields {
    fn from(rule: &RuleView) -> Self {
        let shown = |number: Option<i32>| number.map(|number| number.to_string()).unwrap_or_default();
        Self {
            version: rule.version.to_string(),
            event: rule.event.as_str().to_owned(),
            threshold: shown(rule.threshold),
            after_secs: shown(rule.after_secs),
            group_secs: rule.group_secs.to_string(),
            workflow_id: rule.workflow_id.map(|id| id.to_string()).unwrap_or_default(),
            channel_ids: rule.channel_ids.clone(),
        }
    }
}

async fn create(api: Api, Sent(form): Sent<RuleFields>) -> Act {
    let Some(first) = form.channel_ids.first() else {
        return Err(Failure::of_field("channel_ids", "choose at least one channel").into());
    };
    // A rule and its channels have the same team.
    let channel: ChannelView = api.get(&format!("/notification-channels/{first}")).await?;
    let body = object(form.members()?.into_iter().chain([("team_id", json!(channel.team_id))]));
    api.post_json("/notification-rules", body).await?;
    Ok(act::show_next(PAGE, "rule-saved"))
}

async fn save(api: Api, Path(id): Path<i64>, Sent(form): Sent<RuleFields>) -> Act {
    let path = format!("/notification-rules/{id}");
    let present: RuleView = api.get(&path).await?;
    let seen = etag_of(&form.version);
    let body = object(form.members()?.into_iter().chain([("enabled", json!(present.enabled))]));
    api.send(Method::PUT, &path, Write { body: Some(body), if_match: Some(&seen), ..Write::default() }).await?;
    Ok(act::show_next(PAGE, "rule-saved"))
}

#[derive(Deserialize)]
struct Snooze {
    /// Empty: the snooze ends now.
    #[serde(default)]
    hours: String,
}

async fn snooze(api: Api, Path(id): Path<i64>, Sent(form): Sent<Snooze>) -> Act {
    let path = format!("/notification-rules/{id}:snooze");
    let Some(hours) = whole_number::<i64>("hours", &form.hours)? else {
        api.post(&path).await?;
        return Ok(act::show_next(PAGE, "rule-saved"));
    };
    if !(1..=LONGEST_SNOOZE_HOURS).contains(&hours) {
        let detail = format!("hours must be from 1 to {LONGEST_SNOOZE_HOURS}");
        return Err(Failure::of_field("hours", &detail).into());
    }
    let until = api.now() + TimeDelta::hours(hours);
    api.post_json(&path, json!({ "until": times::for_machines(&until) })).await?;
    Ok(act::show_next(PAGE, "snoozed"))
}

#[derive(Deserialize)]
struct Enabled {
    enabled: bool,
}

async fn set_enabled(api: Api, Path(id): Path<i64>, Sent(form): Sent<Enabled>) -> Act {
    let path = format!("/notification-rules/{id}");
    let mut rule: RuleView = api.get(&path).await?;
    let seen = etag_of(&rule.version);
    rule.enabled = form.enabled;
    // The API accepts what it has shown.
    api.send(Method::PUT, &path, Write { body: Some(json!(rule)), if_match: Some(&seen), ..Write::default() }).await?;
    Ok(act::show_next(PAGE, "rule-saved"))
}

async fn delete(api: Api, Path(id): Path<i64>) -> Act {
    api.send(Method::DELETE, &format!("/notification-rules/{id}"), Write::default()).await?;
    Ok(act::show_next(PAGE, "rule-deleted"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unchanged_form_changes_nothing() {
        let rule: RuleView = serde_json::from_value(json!({
            "id": 1, "team_id": 2, "workflow_id": 3, "event": "failures_in_a_row", "threshold": 5, "after_secs": null,
            "group_secs": 60, "channel_ids": [4, 6], "snoozed_until": null, "enabled": true, "version": 3,
            "created_on": "2026-03-02T08:00:00Z", "updated_on": "2026-03-02T08:00:00Z",
        }))
        .unwrap();
        let sent = object(RuleFields::from(&rule).members().unwrap());
        let expected = json!({
            "workflow_id": 3, "event": "failures_in_a_row", "threshold": 5, "group_secs": 60, "channel_ids": [4, 6],
        });
        assert_eq!(sent, expected);
    }
}
