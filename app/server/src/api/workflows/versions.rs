//! Step 1 of 7: the versions of a workflow's schedule: what was in force when, who changed it, and how to return to it.

use api_types::versions::VersionView;
use axum::extract::{Path, State};
use ledger::versions::{ListedVersion, find_by_revision, list_versions};
use schedule::{Revision, WorkflowId};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::IntoParams;
use workflows::definition::body;
use workflows::definition::field;
use workflows::definition::patch::PatchKind;
use workflows::definition::spec::Timing;

use super::edit::{LockedEdit, answer, parse_wait};
use super::view::WorkflowAnswer;
use crate::App;
use crate::api::request::auth::{Editor, Viewer};
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::{EditHead, EditRequest, EmptyBody, Id, OptionalBody, Params, or_empty};
use crate::api::request::page::{self, Page, PageAnswer};
use crate::api::request::read::{begin_read, failed_read};
use crate::api::request::view::{ViewFrom, to_view};

/// The page of a list of versions.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct VersionParams {
    /// Items on a page, 1 to 200.
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

impl ViewFrom<ListedVersion> for VersionView {
    fn view_from(version: ListedVersion) -> Self {
        Self {
            revision: version.revision,
            valid_from: version.valid_from,
            valid_until: version.ended_on,
            cron_schedule: version.cron,
            timezone: version.timezone,
            starts_at: version.starts_at,
            ends_at: version.ends_at,
            state: to_view(version.state),
            actor: version.actor,
            actor_name: version.actor_name,
            verb: version.verb,
        }
    }
}

/// List the versions of a workflow's schedule, the newest first: who changed it, and when.
#[utoipa::path(get, path = "/api/v1/workflows/{id}/versions", tag = "workflows", params(("id" = i64, Path), VersionParams),
    responses((status = 200, body = Page<VersionView>),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_workflow_versions(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Id(id): Id<WorkflowId>,
    Params(params): Params<VersionParams>,
) -> Result<PageAnswer, Error> {
    let limit = page::parse_limit(params.limit)?;
    let before = page::parse_cursor(params.cursor.as_deref())?;
    let mut tx = begin_read(&app).await?;
    if !workflows::is_visible(&mut tx, id, caller.team_id).await? {
        return Err(Error::not_found());
    }
    let found = list_versions(&mut tx, id, before, limit).await.map_err(failed_read)?;
    tx.commit().await?;
    page::answer_page(found, |version| version.revision, VersionView::view_from).await
}

/// Restore the cron, the timezone and the window of an earlier version. The state of the workflow stays as it is.
#[utoipa::path(post, path = "/api/v1/workflows/{id}/versions/{revision}:restore", tag = "workflows",
    params(("id" = i64, Path), ("revision" = i64, Path), ("If-Match" = Option<String>, Header), super::WriteParams),
    responses((status = 200, body = super::WorkflowView, headers(("ETag" = String))),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn restore_version(
    State(app): State<App>,
    Editor(caller): Editor,
    path: Option<Path<(String, String)>>,
    head: EditHead,
    OptionalBody(sent): OptionalBody<Value>,
) -> Result<WorkflowAnswer, Error> {
    let (id, revision) = path.and_then(|Path((id, target))| restored(&id, &target)).ok_or_else(Error::not_found)?;
    parse_wait(head.wait)?;
    field::parse_document::<EmptyBody>("", or_empty(sent))?;
    let mut change = LockedEdit::begin_writable(&app, &caller, EditRequest { id, head }).await?;
    let version = find_by_revision(change.connection(), id, revision).await?.ok_or_else(Error::not_found)?;
    let spec = body::patch_workflow(&change.before.spec, fields_of(&version.timing), PatchKind::Merge, &change.bounds)?;
    Ok(answer(&app, change.save_spec(&app, spec, "restore").await?))
}

/// The workflow and the revision of `{id}` and `{revision}:restore`.
fn restored(id: &str, target: &str) -> Option<(WorkflowId, Revision)> {
    let revision = target.strip_suffix(":restore")?;
    Some((id.parse().ok()?, Revision(revision.parse().ok()?)))
}

/// The fields of a timing; null removes one.
fn fields_of(timing: &Timing) -> Map<String, Value> {
    let Timing { cron, timezone, starts_at, ends_at } = timing;
    let fields = [
        ("cron_schedule", json!(cron)),
        ("timezone", json!(timezone)),
        ("starts_at", json!(starts_at)),
        ("ends_at", json!(ends_at)),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
