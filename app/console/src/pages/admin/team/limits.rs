//! The limits of a team, and what it uses of them.

use api_types::limits::TeamLimitsView;
use axum::Router;
use axum::extract::Path;
use axum::http::Method;
use axum::routing::post;
use serde::Deserialize;
use serde_json::json;

use crate::act::{self, Act};
use crate::api::{Api, Console, Write};
use crate::form::{Sent, filled, object, whole_number};

pub(super) fn routes() -> Router<Console> {
    Router::new().route("/admin/teams/{id}/limits", post(set))
}

/// A limit, as the form shows it.
pub(super) struct LimitRow {
    /// The name of the field of the API.
    pub(super) field: &'static str,
    pub(super) words: &'static str,
    /// What an admin has set; empty: the default of the operator.
    pub(super) set: String,
    /// What is in force.
    pub(super) in_force: String,
    /// What the team uses now.
    pub(super) usage: Option<String>,
}

/// The rows of the form.
pub(super) fn rows(view: &TeamLimitsView) -> Vec<LimitRow> {
    let (set, in_force, usage) = (&view.set, &view.in_force, &view.usage);
    let row = |field, words, set: Option<i64>, in_force: Option<i64>, usage| LimitRow {
        field,
        words,
        set: set.map(|limit| limit.to_string()).unwrap_or_default(),
        in_force: in_force.filter(|limit| *limit > 0).map_or_else(|| "no limit".to_owned(), |limit| limit.to_string()),
        usage,
    };
    let used = |number: i64| Some(number.to_string());
    let fires = Some(format!("up to {} an hour", usage.fires_per_hour));
    vec![
        row("running_runs", "Runs at once", set.running_runs, in_force.running_runs, used(usage.running_runs)),
        row("workflows", "Workflows", set.workflows, in_force.workflows, used(usage.workflows)),
        row("fires_per_minute", "Fires a minute", set.fires_per_minute, in_force.fires_per_minute, fires),
        row("input_bytes", "Bytes of inputs", set.input_bytes, in_force.input_bytes, used(usage.input_bytes)),
        row(
            "archived_workflows",
            "Archived workflows",
            set.archived_workflows,
            in_force.archived_workflows,
            used(usage.archived_workflows),
        ),
        row(
            "archived_bytes",
            "Bytes of inputs of archived workflows",
            set.archived_bytes,
            in_force.archived_bytes,
            used(usage.archived_bytes),
        ),
        row("requests_in_flight", "Requests at once", set.requests_in_flight, in_force.requests_in_flight, None),
        row("edits_in_flight", "Edits at once", set.edits_in_flight, in_force.edits_in_flight, None),
        row("lists_in_flight", "Lists at once", set.lists_in_flight, in_force.lists_in_flight, None),
    ]
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Limits {
    running_runs: String,
    workflows: String,
    fires_per_minute: String,
    input_bytes: String,
    archived_workflows: String,
    archived_bytes: String,
    requests_in_flight: String,
    edits_in_flight: String,
    lists_in_flight: String,
    /// The version that the visitor has seen.
    etag: String,
}

async fn set(api: Api, Path(id): Path<i64>, Sent(form): Sent<Limits>) -> Act {
    let fields = [
        ("running_runs", &form.running_runs),
        ("workflows", &form.workflows),
        ("fires_per_minute", &form.fires_per_minute),
        ("input_bytes", &form.input_bytes),
        ("archived_workflows", &form.archived_workflows),
        ("archived_bytes", &form.archived_bytes),
        ("requests_in_flight", &form.requests_in_flight),
        ("edits_in_flight", &form.edits_in_flight),
        ("lists_in_flight", &form.lists_in_flight),
    ];
    let mut members = Vec::with_capacity(fields.len());
    for (field, text) in fields {
        members.push((field, json!(whole_number::<i64>(field, text)?)));
    }
    let write = Write { body: Some(object(members)), if_match: filled(&form.etag), ..Write::default() };
    api.send(Method::PUT, &format!("/teams/{id}/limits"), write).await?;
    Ok(act::show_next(&format!("/admin/teams/{id}"), "limits"))
}
