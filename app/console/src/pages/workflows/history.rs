//! `/workflows/{id}/history`: the versions of its schedule: who changed what, and a way back.

use api_types::page::Page;
use api_types::versions::VersionView;
use askama::Template;
use axum::Router;
use axum::extract::{Path, Query};
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;

use super::head::{Head, Tab};
use crate::act::{self, Act};
use crate::answer::show_page;
use crate::api::{Api, Console, Write};
use crate::failure::Failure;
use crate::form::Sent;
use crate::frame::{Frame, Menu};
use crate::path::PathId;
use crate::query::with_query;
use crate::{times, words};

pub(super) fn routes() -> Router<Console> {
    Router::new()
        .route("/workflows/{id}/history", get(show))
        .route("/workflows/{id}/history/{revision}/restore", post(restore))
}

/// Versions in an answer of the API. The last one is only compared with.
const READ: usize = 51;

#[derive(Deserialize)]
struct Shown {
    cursor: Option<String>,
    done: Option<String>,
}

/// A version, and how it differs from the one before.
struct Row {
    version: VersionView,
    changes: Vec<String>,
    /// Whether a return to it changes the schedule.
    differs_from_now: bool,
}

#[derive(Template)]
#[template(path = "workflow_history.html")]
struct HistoryPage {
    frame: Frame,
    head: Head,
    rows: Vec<Row>,
    is_first: bool,
    next: Option<String>,
}

async fn show(api: Api, PathId(id): PathId<i64>, Query(query): Query<Shown>) -> Result<Response, Failure> {
    let head = Head::read(&api, id, Tab::History).await?;
    let frame = Frame::read(&api, Menu::Workflows, head.workflow.name.clone(), query.done.as_deref()).await?;
    let limit = READ.to_string();
    let parameters = [("limit", Some(&*limit)), ("cursor", query.cursor.as_deref())];
    let page: Page<VersionView> = api.get(&with_query(&format!("/workflows/{id}/versions"), parameters)).await?;
    let has_more = page.next_cursor.is_some();
    let rows = rows(&head, page.items, has_more);
    // A cursor is the last revision of a page.
    let last = rows.last().map(|row| row.version.revision.to_string()).filter(|_| has_more);
    let next = last.map(|last| with_query(&format!("/workflows/{id}/history"), [("cursor", Some(&*last))]));
    show_page(&HistoryPage { frame, head, rows, is_first: query.cursor.is_none(), next })
}

fn rows(head: &Head, versions: Vec<VersionView>, has_more: bool) -> Vec<Row> {
    let shown = if has_more { versions.len().saturating_sub(1) } else { versions.len() };
    let row = |nth: usize, version: &VersionView| Row {
        changes: changes(version, versions.get(nth + 1)),
        differs_from_now: timing(version) != now(head),
        version: version.clone(),
    };
    versions.iter().take(shown).enumerate().map(|(nth, version)| row(nth, version)).collect()
}

/// Cron, timezone, first and last time, in words.
fn timing(version: &VersionView) -> [(&'static str, String); 4] {
    let none = || "none".to_owned();
    [
        ("cron", version.cron_schedule.clone().unwrap_or_else(none)),
        ("timezone", version.timezone.clone().unwrap_or_else(|| "UTC".to_owned())),
        ("first time", version.starts_at.map_or_else(none, |time| times::in_utc_to_the_second(&time))),
        ("last time", version.ends_at.map_or_else(none, |time| times::in_utc_to_the_second(&time))),
    ]
}

fn now(head: &Head) -> [(&'static str, String); 4] {
    let workflow = &head.workflow;
    timing(&VersionView {
        revision: workflow.revision,
        valid_from: workflow.updated_on,
        valid_until: None,
        cron_schedule: workflow.cron_schedule.clone(),
        timezone: workflow.timezone.clone(),
        starts_at: workflow.starts_at,
        ends_at: workflow.ends_at,
        state: workflow.state,
        actor: None,
        actor_name: None,
        verb: None,
    })
}

/// What a version changed; the first one has all its values.
fn changes(version: &VersionView, before: Option<&VersionView>) -> Vec<String> {
    let Some(before) = before else {
        return timing(version)
            .into_iter()
            .filter(|(_, value)| value != "none")
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
    };
    let mut changes: Vec<_> = timing(version)
        .into_iter()
        .zip(timing(before))
        .filter(|(new, old)| new != old)
        .map(|((name, new), (_, old))| format!("{name} {old} → {new}"))
        .collect();
    if version.state != before.state {
        let state = |version: &VersionView| words::workflow_state(&version.state).words;
        changes.push(format!("{} → {}", state(before), state(version)));
    }
    changes
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RestoreFields {
    /// The version that the visitor has seen.
    etag: String,
}

async fn restore(api: Api, Path((id, revision)): Path<(i64, i64)>, Sent(fields): Sent<RestoreFields>) -> Act {
    let if_match = Some(&*fields.etag).filter(|etag| !etag.is_empty());
    let path = format!("/workflows/{id}/versions/{revision}:restore");
    api.send(axum::http::Method::POST, &path, Write { if_match, ..Write::default() }).await?;
    Ok(act::show_next(&format!("/workflows/{id}/history"), "restored"))
}

#[cfg(test)]
mod tests {
    use api_types::workflows::State;
    use chrono::DateTime;

    use super::*;

    fn version(cron: Option<&str>, timezone: Option<&str>, state: State) -> VersionView {
        VersionView {
            revision: 1,
            valid_from: DateTime::UNIX_EPOCH,
            valid_until: None,
            cron_schedule: cron.map(str::to_owned),
            timezone: timezone.map(str::to_owned),
            starts_at: None,
            ends_at: None,
            state,
            actor: None,
            actor_name: None,
            verb: None,
        }
    }

    #[test]
    fn changes_name_old_and_new_values() {
        let first = version(Some("0 9 * * *"), None, State::Active);
        let second = version(Some("0 10 * * *"), Some("Europe/Paris"), State::Paused);
        assert_eq!(changes(&first, None), ["cron 0 9 * * *", "timezone UTC"]);
        assert_eq!(
            changes(&second, Some(&first)),
            ["cron 0 9 * * * → 0 10 * * *", "timezone UTC → Europe/Paris", "active → paused"]
        );
        assert_eq!(changes(&first, Some(&first)), [""; 0]);
    }
}
