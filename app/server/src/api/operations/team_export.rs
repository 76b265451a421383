//! Step 1 of 7: the API that exports all that defines a team, before it is deleted or moved.

use access::hosts::find_allowed_hosts;
use access::keys::list_keys_of_team;
use access::teams;
use api_types::limits::AllowedHostsView;
use api_types::team_export::TeamExportLine;
use axum::extract::State;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use db::PgConnection;
use ledger::freezes::{self, Listed};
use notifications::channel::{MOST_CHANNELS, list_channels};
use notifications::rule::{MOST_RULES, list_rules};
use serde::Deserialize;
use utoipa::IntoParams;
use workflows::definition::redaction::Audience;
use workflows::secrets::team_secrets::list_team_secrets;

use crate::App;
use crate::api::operations::freezes::view_freeze_at;
use crate::api::operations::team_limits::read_team_limits;
use crate::api::request::auth::Admin;
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::{Id, Params};
use crate::api::request::page;
use crate::api::request::read::{begin_read, failed_read};
use crate::api::request::view::to_view;
use crate::api::workflows::view::view_workflow;

/// Bytes of an answer, except for the lines of the first workflows.
const MOST_BYTES: usize = 4 * 1024 * 1024;
/// Workflows that a statement reads: each may have 256 KiB of inputs.
const AT_ONCE: i64 = 20;
/// Freezes of a team at most, those that have ended included.
const MOST_FREEZES: i64 = 200;
/// Where the next part begins; absent: this is the last.
const NEXT_CURSOR: HeaderName = HeaderName::from_static("next-cursor");

/// Which part of the export.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TeamExportParams {
    /// The header `Next-Cursor` of the previous part.
    cursor: Option<String>,
}

/// Export a team as lines of JSON: its settings and keys, then its workflows, archived ones included. Nothing secret is in it.
///
/// Read parts until an answer has no header `Next-Cursor`. Runs, occurrences and the audit log have lists of their own.
#[utoipa::path(get, path = "/api/v1/teams/{id}/export", tag = "keys", params(("id" = i64, Path), TeamExportParams),
    responses((status = 200, body = TeamExportLine, content_type = "application/x-ndjson",
               headers(("Next-Cursor" = Option<String>))),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn export_team(
    State(app): State<App>,
    Admin(_): Admin,
    Id(id): Id<i64>,
    Params(params): Params<TeamExportParams>,
) -> Result<Response, Error> {
    let after: Option<i64> = page::parse_cursor(params.cursor.as_deref())?;
    let now = app.clock.now();
    let mut tx = begin_read(&app).await?;
    let mut text = Vec::new();
    let settings = read_settings(&app, &mut tx, id, now).await?;
    if after.is_none() {
        settings.iter().try_for_each(|line| add_line(&mut text, line))?;
    }
    let next = add_workflows(&mut tx, id, after.unwrap_or_default(), now, &mut text).await?;
    tx.commit().await?;
    let kind = (header::CONTENT_TYPE, "application/x-ndjson");
    Ok(match next {
        Some(last) => ([kind], [(NEXT_CURSOR, page::encode_cursor(last))], text).into_response(),
        None => ([kind], text).into_response(),
    })
}

/// What the team has besides workflows.
async fn read_settings(
    app: &App,
    db: &mut PgConnection,
    id: i64,
    now: DateTime<Utc>,
) -> Result<Vec<TeamExportLine>, Error> {
    let team = teams::list_teams(db, Some(&[id]), None, 1).await.map_err(failed_read)?.rows.pop();
    let mut lines = vec![TeamExportLine::Team(to_view(team.ok_or_else(Error::not_found)?))];
    lines.push(TeamExportLine::Limits(read_team_limits(app, db, id).await?));
    let allowed_hosts = find_allowed_hosts(db, id).await.map_err(failed_read)?.unwrap_or_default();
    lines.push(TeamExportLine::Hosts(AllowedHostsView { team_id: id, allowed_hosts }));
    let secrets = list_team_secrets(db, id).await.map_err(failed_read)?;
    lines.extend(secrets.into_iter().map(|secret| TeamExportLine::Secret(to_view(secret))));
    let keys = list_keys_of_team(db, id).await.map_err(failed_read)?;
    lines.extend(keys.into_iter().map(|key| TeamExportLine::Key(to_view(key))));
    let freezes = freezes::list_freezes(db, Listed::OfTeam(id), None, None, MOST_FREEZES).await.map_err(failed_read)?;
    lines.extend(freezes.rows.into_iter().map(|freeze| TeamExportLine::Freeze(view_freeze_at(freeze, now))));
    let channels = list_channels(db, Some(id), None, MOST_CHANNELS).await.map_err(failed_read)?;
    lines.extend(channels.rows.iter().map(|channel| TeamExportLine::NotificationChannel(channel.view())));
    let rules = list_rules(db, Some(id), None, MOST_RULES).await.map_err(failed_read)?;
    lines.extend(rules.rows.iter().map(|rule| TeamExportLine::NotificationRule(rule.view())));
    Ok(lines)
}

/// Adds workflows until the answer is full; returns the last one if there are more.
async fn add_workflows(
    db: &mut PgConnection,
    team: i64,
    mut after: i64,
    now: DateTime<Utc>,
    text: &mut Vec<u8>,
) -> Result<Option<i64>, Error> {
    loop {
        let read = workflows::export_workflows(db, team, after, AT_ONCE).await.map_err(failed_read)?;
        let is_end = i64::try_from(read.len()) != Ok(AT_ONCE);
        for (workflow, sync) in read {
            after = workflow.id.0;
            add_line(text, &TeamExportLine::Workflow(view_workflow((workflow, sync), Audience::Editor, now)))?;
        }
        match (is_end, text.len() < MOST_BYTES) {
            (true, _) => return Ok(None),
            (false, true) => {}
            (false, false) => return Ok(Some(after)),
        }
    }
}

fn add_line(text: &mut Vec<u8>, line: &TeamExportLine) -> Result<(), Error> {
    serde_json::to_writer(&mut *text, line).map_err(anyhow::Error::from)?;
    text.push(b'\n');
    Ok(())
}
