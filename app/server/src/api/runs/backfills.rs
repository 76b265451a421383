//! Step 7 of 7: the API of backfills: request one, read its progress, pause, resume or cancel it.

use api_types::backfills::{BackfillView, DryRunView};
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, SecondsFormat, Utc};
use ledger::admission::queue;
use ledger::backfills::{self, Backfill, BackfillOutcome, BackfillRequest, Filter, MOST, Only, Order, Timing, Verb};
use schedule::WorkflowId;
use serde::Deserialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use workflows::audit::Edit;
use workflows::definition::field::{self, FieldError};
use workflows::keyset::{KeyOrder, KeysetPage};
use workflows::lock_workflow;

use crate::App;
use crate::api::request::auth::{Caller, Editor, Viewer};
use crate::api::request::edit_transaction::EditTransaction;
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::{self, EmptyBody, Id, OptionalBody, Params, Trace};
use crate::api::request::page::{self, Page, PageAnswer};
use crate::api::request::read::{begin_read, failed_read};
use crate::api::request::repeat::{Repeat, replayed};
use crate::api::request::team::teams_of_list;
use crate::api::request::view::{ViewFrom, to_view};
use crate::api::workflows::edit::lock_alive;

/// The past times to run.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BackfillBody {
    /// The first time that may be selected.
    start: DateTime<Utc>,
    /// Every selected time lies before this; not in the future.
    end: DateTime<Utc>,
    /// Whether the oldest or the newest time runs first; absent = `oldest_first`.
    #[serde(default)]
    order: Option<Order>,
    /// How many of its runs may be active at once, 1 to 10; absent = 1.
    #[serde(default)]
    max_concurrent: Option<i32>,
    /// Which of the due times are selected; absent = `missing`.
    #[serde(default)]
    only: Option<Only>,
    /// `then`: the times that were due by the timing in force at each; `now`: those that the present cron and timezone
    /// select, for a span that was paused or lies before the schedule; absent = `then`.
    #[serde(default)]
    timing: Option<Timing>,
    /// Only return which times are selected.
    #[serde(default)]
    dry_run: Option<bool>,
}

/// Filters of a list of backfills.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BackfillParams {
    /// Only backfills of this team; for admins and persons of several teams.
    team_id: Option<i64>,
    /// Only backfills of this workflow.
    workflow_id: Option<i64>,
    /// Only backfills in this state.
    #[param(inline)]
    state: Option<backfills::State>,
    /// Items on a page, 1 to 200.
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Requests a backfill: answers 202, or 200 with what it would do.
pub(super) async fn request_backfill(
    app: &App,
    caller: &Caller,
    id: WorkflowId,
    body: BackfillBody,
    repeat: &Repeat,
    edit: &Edit,
) -> Result<Response, Error> {
    let request = parse_request(app, &body, edit.now)?;
    let mut tx = EditTransaction::begin(app, caller, id).await?;
    if let Some(created) = repeat.begin(&mut tx, edit).await? {
        return answer_again(&mut tx, caller, created).await;
    }
    let workflow = lock_alive(&mut tx, id, caller.team_id, edit.now).await?;
    let outcome = match body.dry_run {
        Some(true) => backfills::count_selected_times(&mut tx, &workflow, &request, edit.now).await?,
        Some(false) | None => backfills::create_backfill(&mut tx, &workflow, &request, edit).await?,
    };
    match outcome {
        BackfillOutcome::Counted(total, times) => Ok(Json(DryRunView { total, times }).into_response()),
        BackfillOutcome::Nothing => Err(Error::conflict("nothing_selected", nothing_selected(request.timing))),
        BackfillOutcome::TooMany => {
            let detail = format!("more than {MOST} times are selected: request a shorter span");
            Err(FieldError::new("too_many_occurrences", "start", detail).into())
        }
        BackfillOutcome::Another(other) => {
            Err(Error::conflict("backfill_running", &format!("backfill {other} of this workflow has not ended")))
        }
        BackfillOutcome::Created(id) => {
            repeat.store(&mut tx, edit, &id).await?;
            let view = read(&mut tx, id, None).await?;
            tx.commit().await?;
            Ok(answer_accepted(view))
        }
    }
}

/// The answer to a repeat.
pub(super) async fn answer_again(
    db: &mut db::PgConnection,
    caller: &Caller,
    created: Value,
) -> Result<Response, Error> {
    let id: Uuid = serde_json::from_value(created).map_err(anyhow::Error::from)?;
    Ok((replayed(), answer_accepted(read(db, id, caller.team_id).await?)).into_response())
}

fn answer_accepted(view: BackfillView) -> Response {
    let location = format!("/api/v1/backfills/{}", view.id);
    (StatusCode::ACCEPTED, [(header::LOCATION, location)], Json(view)).into_response()
}

fn nothing_selected(timing: Timing) -> &'static str {
    match timing {
        Timing::Then => {
            "no time of the span is selected: none was due, or `only` excludes all; if the workflow was paused or had no \
             schedule then, set timing to now"
        }
        Timing::Now => "no time of the span is selected: the present cron names none, or `only` excludes all",
    }
}

fn parse_request(app: &App, body: &BackfillBody, now: DateTime<Utc>) -> Result<BackfillRequest, FieldError> {
    let (start, end) = (field::check_instant("start", body.start)?, field::check_instant("end", body.end)?);
    let earliest = now - app.ledger_kept;
    if start >= end {
        return Err(FieldError::invalid("end", "end must be later than start"));
    }
    if end > now {
        return Err(FieldError::new("in_the_future", "end", "end must not be in the future"));
    }
    if start < earliest {
        let first = earliest.to_rfc3339_opts(SecondsFormat::Secs, true);
        let detail = format!("the ledger has no earlier rows: start must be at least {first}");
        return Err(FieldError::new("span_too_old", "start", detail));
    }
    let max_concurrent = match body.max_concurrent.unwrap_or(1) {
        at_once @ 1..=10 => at_once,
        _ => return Err(FieldError::invalid("max_concurrent", "max_concurrent must be from 1 to 10")),
    };
    let (order, only) = (body.order.unwrap_or_default(), body.only.unwrap_or_default());
    Ok(BackfillRequest { start, end, order, only, timing: body.timing.unwrap_or_default(), max_concurrent })
}

/// List backfills, the newest first.
#[utoipa::path(get, path = "/api/v1/backfills", tag = "schedules", params(BackfillParams),
    responses((status = 200, body = Page<BackfillView>),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_backfills(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Params(params): Params<BackfillParams>,
) -> Result<PageAnswer, Error> {
    let teams = teams_of_list(&caller, params.team_id)?;
    let filter = Filter {
        team_id: None,
        workflow_id: params.workflow_id,
        state: params.state,
        before: page::parse_cursor(params.cursor.as_deref())?,
        limit: page::parse_limit(params.limit)?,
    };
    let mut tx = begin_read(&app).await?;
    let mut pages = Vec::with_capacity(teams.len());
    for team_id in teams {
        pages.push(backfills::list_backfills(&mut tx, &Filter { team_id, ..filter }).await.map_err(failed_read)?);
    }
    tx.commit().await?;
    let found = KeysetPage::merge(pages, filter.limit, KeyOrder::Descending, |backfill| backfill.id);
    page::answer_page(found, |backfill| backfill.id, BackfillView::view_from).await
}

/// Read a backfill and its progress.
#[utoipa::path(get, path = "/api/v1/backfills/{id}", tag = "schedules", params(("id" = Uuid, Path)),
    responses((status = 200, body = BackfillView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_backfill(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Id(id): Id<Uuid>,
) -> Result<Json<BackfillView>, Error> {
    read(&mut *app.pools.reads.acquire().await?, id, caller.team_id).await.map(Json)
}

/// Pauses, resumes or cancels a backfill.
pub(crate) async fn change_backfill(
    State(app): State<App>,
    Editor(caller): Editor,
    Trace(trace): Trace,
    extract::Verb(id, verb): extract::Verb<Uuid>,
    OptionalBody(EmptyBody {}): OptionalBody<EmptyBody>,
) -> Result<Json<BackfillView>, Error> {
    let verb = match verb.as_str() {
        "pause" => Verb::Pause,
        "resume" => Verb::Resume,
        "cancel" => Verb::Cancel,
        _ => return Err(Error::not_found()),
    };
    let edit = caller.edit_at(app.clock.now(), trace);
    let workflow_id = find_workflow_of(&app, id, &caller).await?;
    let mut tx = EditTransaction::begin(&app, &caller, workflow_id).await?;
    // A job that advances the backfill locks the workflow, so read after this lock what the job did.
    let workflow = lock_workflow(&mut tx, workflow_id, None, edit.now).await?.ok_or_else(Error::not_found)?;
    let current = backfills::find_backfill(&mut tx, id, caller.team_id).await?.ok_or_else(Error::not_found)?;
    if !backfills::apply_verb(&mut tx, &workflow, &current, verb, &edit).await? {
        return Err(Error::conflict("backfill_ended", "the backfill has already ended"));
    }
    let view = read(&mut tx, id, caller.team_id).await?;
    tx.commit().await?;
    if verb == Verb::Cancel {
        queue::advance_after_commit(&app.pools.edits, workflow_id, edit.now).await;
        app.wake.notify();
    }
    Ok(Json(view))
}

/// Returns the workflow of a backfill, which never changes.
async fn find_workflow_of(app: &App, backfill: Uuid, caller: &Caller) -> Result<WorkflowId, Error> {
    let mut connection = app.pools.edits.acquire().await?;
    // It counts no runs: the edit has no turn yet.
    backfills::find_workflow_of(&mut connection, backfill, caller.team_id).await?.ok_or_else(Error::not_found)
}

async fn read(db: &mut db::PgConnection, id: Uuid, team_id: Option<i64>) -> Result<BackfillView, Error> {
    Ok(to_view(backfills::find_backfill(db, id, team_id).await?.ok_or_else(Error::not_found)?))
}

impl ViewFrom<Backfill> for BackfillView {
    fn view_from(backfill: Backfill) -> Self {
        let BackfillRequest { start, end, order, only, timing, max_concurrent } = backfill.request;
        Self {
            id: backfill.id,
            workflow_id: backfill.workflow_id,
            start,
            end,
            order: to_view(order),
            only: to_view(only),
            timing: to_view(timing),
            max_concurrent,
            state: to_view(backfill.state),
            total: backfill.total,
            started: backfill.started,
            live: backfill.live,
            succeeded: backfill.succeeded,
            failed: backfill.started - backfill.live - backfill.succeeded,
            requested_by: backfill.requested_by,
            created_on: backfill.created_on,
            updated_on: backfill.updated_on,
            finished_on: backfill.finished_on,
        }
    }
}
