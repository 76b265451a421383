//! Step 1 of 7: the workflows of a team. Change and outbox row commit together; then the publisher is notified.

pub mod edit;
pub mod previews;
mod quota;
mod reach;
pub mod results;
pub mod schedules;
pub mod verbs;
pub mod versions;
pub mod view;

use std::time::Duration;

use access::limits::Growth;
use access::rights::Scope;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::WorkflowId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::IntoParams;
use workflows::audit::Edit;
use workflows::definition::body::{self, WorkflowBody};
use workflows::definition::field::{self, FieldError};
use workflows::definition::labels::Selector;
use workflows::definition::spec::Bounds;
use workflows::keyset::{KeyOrder, KeysetPage};
use workflows::sorted::{self, MOST_SORTED, Sort, SortedPage};
use workflows::{Filter, LastResult, ListedWorkflow, SyncStatus};

use super::request::auth::{Admin, Caller, Editor, Viewer, audience_in, audience_of};
use super::request::edit_transaction::EditTransaction;
use super::request::error::{Error, Problem};
use super::request::extract::{EditRequest, Id, Params, Patch, Trace, WriteParams};
use super::request::limits::EditPlace;
use super::request::page::{self, Page, PageAnswer};
use super::request::read::{begin_read, failed_read};
use super::request::repeat::{Creation, RepeatParams, Requested, replayed};
use super::request::team::{missing_team, teams_of_list};
use crate::App;
use api_types::workflows::WorkflowView;
use edit::{LockedEdit, answer, parse_wait, read_when_applied, seal_new_action};
use quota::check_quota;
use results::{ResultParams, read_requested, results_of};
use view::{WorkflowAnswer, add_results, sync_for, view_workflow};

/// How many labels a list selects by at most.
const MOST_SELECTORS: usize = 20;

/// Filters of a list of workflows.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// Only workflows of this team; for admins and persons of several teams.
    team_id: Option<i64>,
    /// Only workflows in this state. Without it a list has no archived workflows.
    #[param(inline)]
    state: Option<workflows::State>,
    /// `true`: without a state, the list has archived workflows, too.
    archived: Option<bool>,
    /// Only workflows that a client paused, or that cronbox paused after failures.
    #[param(inline)]
    paused_by: Option<workflows::PausedBy>,
    /// Only workflows with this synchronization status.
    #[param(inline)]
    sync: Option<SyncStatus>,
    /// Only workflows whose newest run that has ended has this result; repeat it for further ones.
    #[serde(default)]
    last_result: Vec<LastResult>,
    /// Only workflows of which at least so many runs in a row failed or timed out, up to the last one that counts: from 1
    /// on. Cancelled and abandoned runs do not count.
    failures_in_a_row: Option<i32>,
    /// Only workflows whose name or description contains this text, in any case.
    q: Option<String>,
    /// Only workflows with this label, `owner:payroll`, or with any value of it, `owner`; repeat it for further ones.
    #[serde(default)]
    label: Vec<String>,
    /// `true`: only workflows whose upcoming times the last change of the zone data changed.
    timezone_changed: Option<bool>,
    /// `true`: each workflow with what became of its last runs.
    results: Option<bool>,
    /// The order; that of the ids unless it is sent. A sorted list has at most 10,000 workflows: name a team, or filter.
    #[param(inline)]
    sort: Option<Sort>,
    /// `true`: with how many workflows all pages have, at most 10,000.
    total: Option<bool>,
    /// Items on a page, 1 to 200.
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// A page of workflows, each with the key of its cursor, and how many all pages have.
struct ReadPage {
    found: KeysetPage<(String, ListedWorkflow), String>,
    total: Option<usize>,
}

/// Create a workflow.
#[utoipa::path(post, path = "/api/v1/workflows", tag = "workflows", request_body = WorkflowBody, params(WriteParams, RepeatParams),
    responses((status = 201, body = WorkflowView, headers(("Location" = String), ("ETag" = String))),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create_workflow(
    State(app): State<App>,
    Editor(caller): Editor,
    Trace(trace): Trace,
    Params(params): Params<WriteParams>,
    place: EditPlace,
    creation: Creation<WorkflowBody>,
) -> Result<Response, Error> {
    let wait = parse_wait(params.wait)?;
    let edit = caller.edit_at(app.clock.now(), trace);
    let Requested { body, repeat, created } = creation.look_up(&app, &edit).await?;
    let (caller, team_id) = team_of_new(caller, body.team_id)?;
    if let Some(created) = created {
        return answer_again(&app, &caller, created, wait).await;
    }
    let bounds = Bounds { now: edit.now, retention: app.ledger_kept };
    let mut spec = body.into_spec(None, &bounds)?;
    reach::check_reach(&app, team_id, &spec.action).await?;
    let growth = Growth::of_new(&spec);
    let mut tx = EditTransaction::begin_of_team(&app, caller.team_id).await?;
    if let Some(created) = repeat.begin(&mut tx, &edit).await? {
        drop(tx);
        return answer_again(&app, &caller, created, wait).await;
    }
    // It begins now, not when the request arrived: else a time that passed while it waited would be due, and run late.
    let edit = Edit { now: app.clock.now(), ..edit };
    seal_new_action(&app, &mut tx, team_id, &mut spec.action, None, edit.now).await?;
    let workflow = workflows::create_workflow(&mut tx, team_id, spec, None, &edit).await?;
    check_quota(&app, &mut tx, team_id, growth).await?;
    let made = Made { id: workflow.id, revision: workflow.revision.0 };
    repeat.store(&mut tx, &edit, &made).await?;
    tx.commit().await?;
    place.release();
    if db::is_dry_run() {
        return Ok(StatusCode::CREATED.into_response());
    }
    app.notifier.request_notification();
    answer_made(&app, &caller, &made, wait).await
}

/// What a request has created.
#[derive(Serialize, Deserialize)]
struct Made {
    id: WorkflowId,
    revision: i64,
}

/// The answer to a repeat. A person may have left the team since.
async fn answer_again(app: &App, caller: &Caller, created: Value, wait: Option<Duration>) -> Result<Response, Error> {
    let made: Made = serde_json::from_value(created).map_err(anyhow::Error::from)?;
    let is_visible = workflows::is_visible(&mut *app.pools.edits.acquire().await?, made.id, caller.team_id).await?;
    if !is_visible {
        return Err(Error::not_found());
    }
    Ok((replayed(), answer_made(app, caller, &made, wait).await?).into_response())
}

/// The workflow as it is now: the answer to a repeat shows what was edited since.
async fn answer_made(app: &App, caller: &Caller, made: &Made, wait: Option<Duration>) -> Result<Response, Error> {
    let location = format!("/api/v1/workflows/{}", made.id);
    let read = read_when_applied(app, caller, made.id, made.revision, wait).await?;
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], read).into_response())
}

/// Returns the team of what is created, and the caller in this team.
pub(super) fn team_of_new(caller: Caller, requested: Option<i64>) -> Result<(Caller, i64), Error> {
    let team_id = match (requested, caller.team_id) {
        (Some(requested), _) => requested,
        (None, Some(_)) if caller.has_to_choose() => {
            return Err(missing_team("you belong to several teams: send team_id"));
        }
        (None, Some(own)) => own,
        (None, None) => return Err(missing_team("a request with an admin key requires team_id")),
    };
    let caller = caller.in_team(team_id).ok_or_else(|| {
        FieldError::new("unknown_team", "team_id", "team_id must be the team of your key, or one of yours")
    })?;
    // Of several teams, the route was open because of another one.
    if !caller.permits(Scope::Edit) {
        return Err(Error::forbidden("you can only read in this team: ask for the role editor"));
    }
    Ok((caller, team_id))
}

/// Read a workflow.
#[utoipa::path(get, path = "/api/v1/workflows/{id}", tag = "workflows", params(("id" = i64, Path), ResultParams),
    responses((status = 200, body = WorkflowView, headers(("ETag" = String))),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_workflow(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Id(id): Id<WorkflowId>,
    Params(params): Params<ResultParams>,
) -> Result<WorkflowAnswer, Error> {
    let now = app.clock.now();
    let mut tx = begin_read(&app).await?;
    let found = workflows::find_workflow(&mut tx, id, caller.team_id).await?;
    let (workflow, sync) = found.ok_or_else(Error::not_found)?;
    let results = read_requested(&mut tx, params.results, &[id.0], now).await?;
    tx.commit().await?;
    let view = view_workflow((workflow, sync_for(&caller, sync)), audience_of(&caller), now);
    Ok(WorkflowAnswer(add_results(view, results.get(&id.0))))
}

/// List workflows, in the order of their ids.
#[utoipa::path(get, path = "/api/v1/workflows", tag = "workflows", params(ListParams),
    responses((status = 200, body = Page<WorkflowView>),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_workflows(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Params(params): Params<ListParams>,
) -> Result<PageAnswer, Error> {
    let (now, requested) = (app.clock.now(), params.results);
    let mut tx = begin_read(&app).await?;
    let ReadPage { found, total } = read_page(&mut tx, &caller, params, false, now).await?;
    let results = results_of(&mut tx, requested, &found.rows, now).await?;
    tx.commit().await?;
    let view = move |(_, listed): (String, ListedWorkflow)| {
        // A list of several teams has an audience for each of them.
        let audience = audience_in(&caller, listed.workflow.team_id);
        let results = results.get(&listed.workflow.id.0);
        view::view_listed(listed, results, audience, now)
    };
    page::answer_counted_page(found, total, |(key, _)| key.clone(), view).await
}

/// Reads the workflows of one page.
async fn read_page(
    db: &mut PgConnection,
    caller: &Caller,
    params: ListParams,
    scheduled: bool,
    now: DateTime<Utc>,
) -> Result<ReadPage, Error> {
    let limit = page::parse_limit(params.limit)?;
    params.q.as_deref().map_or(Ok(()), |q| field::check_text("q", q, 0, 200))?;
    if params.label.len() > MOST_SELECTORS {
        return Err(FieldError::invalid("label", format!("label may be sent at most {MOST_SELECTORS} times")).into());
    }
    if params.failures_in_a_row.is_some_and(|least| least < 1) {
        return Err(FieldError::invalid("failures_in_a_row", "failures_in_a_row is a number from 1 on").into());
    }
    let teams = teams_of_list(caller, params.team_id)?;
    let filter = Filter {
        team_id: None,
        // The index of paused workflows serves it.
        state: params.state.or(params.paused_by.map(|_| workflows::State::Paused)),
        paused_by: params.paused_by,
        sync: params.sync,
        last_results: params.last_result,
        failures_in_a_row: params.failures_in_a_row,
        q: params.q,
        labels: params.label.iter().map(|label| Selector::parse(label)).collect::<Result<_, _>>()?,
        timezone_changed: params.timezone_changed,
        scheduled,
        with_archived: params.archived.unwrap_or(false),
        after: None,
        limit,
    };
    let filters: Vec<Filter> = teams.into_iter().map(|team_id| Filter { team_id, ..filter.clone() }).collect();
    let total = match params.total {
        Some(true) => Some(sorted::count_listed(db, &filters).await.map_err(failed_read)?),
        _ => None,
    };
    let found = match params.sort {
        Some(sort) => read_sorted(db, &filters, sort, params.cursor.as_deref(), limit, now).await?,
        None => read_by_id(db, filters, params.cursor.as_deref(), limit).await?,
    };
    let shown = |(key, listed): (String, ListedWorkflow)| {
        (key, ListedWorkflow { sync: sync_for(caller, listed.sync), ..listed })
    };
    let found = KeysetPage { rows: found.rows.into_iter().map(shown).collect(), next: found.next };
    Ok(ReadPage { found, total })
}

async fn read_by_id(
    db: &mut PgConnection,
    filters: Vec<Filter>,
    cursor: Option<&str>,
    limit: i64,
) -> Result<KeysetPage<(String, ListedWorkflow), String>, Error> {
    let after = page::parse_cursor(cursor)?;
    let mut pages = Vec::with_capacity(filters.len());
    for filter in filters {
        pages.push(workflows::list_workflows(db, &Filter { after, ..filter }).await.map_err(failed_read)?);
    }
    let KeysetPage { rows, next } = KeysetPage::merge(pages, limit, KeyOrder::Ascending, |listed| listed.workflow.id.0);
    let rows = rows.into_iter().map(|listed| (listed.workflow.id.to_string(), listed)).collect();
    Ok(KeysetPage { rows, next: next.map(|id| id.to_string()) })
}

async fn read_sorted(
    db: &mut PgConnection,
    filters: &[Filter],
    sort: Sort,
    cursor: Option<&str>,
    limit: i64,
    now: DateTime<Utc>,
) -> Result<KeysetPage<(String, ListedWorkflow), String>, Error> {
    let after = page::parse_cursor(cursor)?;
    match sorted::list_sorted(db, filters, sort, after.as_ref(), limit, now).await.map_err(failed_read)? {
        SortedPage::Page(KeysetPage { rows, next }) => {
            let rows = rows.into_iter().map(|(key, listed)| (key.to_string(), listed)).collect();
            Ok(KeysetPage { rows, next: next.map(|key| key.to_string()) })
        }
        SortedPage::TooMany => {
            let detail = format!("sort orders at most {MOST_SORTED} workflows: send team_id, or filter the list");
            Err(FieldError::invalid("sort", detail).into())
        }
    }
}

/// Change a workflow. `application/json` replaces the fields sent; `application/merge-patch+json` is RFC 7396.
#[utoipa::path(patch, path = "/api/v1/workflows/{id}", tag = "workflows",
    params(("id" = i64, Path), ("If-Match" = Option<String>, Header), WriteParams),
    request_body(content((Object = "application/json"), (Object = "application/merge-patch+json"))),
    responses((status = 200, body = WorkflowView, headers(("ETag" = String))),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn patch_workflow(
    State(app): State<App>,
    Editor(caller): Editor,
    request: EditRequest,
    Patch(patch, kind): Patch,
) -> Result<WorkflowAnswer, Error> {
    parse_wait(request.head.wait)?;
    reach::check_changed(&app, &caller, request.id, patch.get("action").unwrap_or(&Value::Null)).await?;
    let mut change = LockedEdit::begin_writable(&app, &caller, request).await?;
    let writes_action = patch.contains_key("action");
    let mut spec = body::patch_workflow(&change.before.spec, patch, kind, &change.bounds)?;
    if writes_action {
        change.seal_action(&app, &mut spec.action).await?;
    }
    Ok(answer(&app, change.save_spec(&app, spec, "update").await?))
}

/// Delete a workflow permanently, with its runs, occurrences and schedule versions.
#[utoipa::path(delete, path = "/api/v1/workflows/{id}", tag = "workflows",
    params(("id" = i64, Path), ("If-Match" = Option<String>, Header), WriteParams),
    responses((status = 204), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn delete_workflow(
    State(app): State<App>,
    Admin(caller): Admin,
    request: EditRequest,
) -> Result<StatusCode, Error> {
    LockedEdit::begin(&app, &caller, request).await?.erase_and_commit(&app).await?;
    Ok(StatusCode::NO_CONTENT)
}
