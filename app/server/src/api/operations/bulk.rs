//! Step 7 of 7: the API of bulk operations: one request that applies a verb to many workflows or runs.

use access::rights::Scope;
use api_types::bulk::{BulkItemView, BulkView};
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use db::PgConnection;
use ledger::bulk::{self, Created, Filter, Item, Operation, Outcome, Request, Verb};
use ledger::runs::RunState;
use serde::Deserialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use workflows::audit::{self, Entry};
use workflows::definition::field::{self, FieldError};
use workflows::keyset::{KeyOrder, KeysetPage};

use crate::App;
use crate::api::request::auth::{Caller, Editor, Viewer};
use crate::api::request::edit_transaction::EditTransaction;
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::{self, EmptyBody, Id, OptionalBody, Params, Trace};
use crate::api::request::page::{self, Page, PageAnswer};
use crate::api::request::read::{begin_read, failed_read};
use crate::api::request::repeat::{Creation, RepeatParams, Requested, replayed};
use crate::api::request::team::teams_of_list;
use crate::api::request::view::{ViewFrom, to_view};
use crate::api::workflows::team_of_new;

/// Ids that a filter names at most.
const MOST_IDS: usize = 1_000;

/// A request for a bulk operation.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkBody {
    /// `delete` is for admins, and deletes archived workflows, with their history.
    verb: Verb,
    /// The team; for admins and persons of several teams.
    team_id: Option<i64>,
    /// Which workflows or runs.
    #[serde(default)]
    filter: BulkFilter,
    /// With `pause`: for people, at most 500 characters.
    reason: Option<String>,
    /// With `pause`: when the pause ends automatically.
    until: Option<DateTime<Utc>>,
    /// With `pause`: workflows that are paused already get this `reason` and `until`, too. Otherwise they keep theirs.
    #[serde(default)]
    replace_pause: bool,
    /// How many workflows or runs are selected, for example as a dry run has counted them. If it is another number now, the
    /// request is refused (`selection_changed`).
    expected_total: Option<i32>,
}

/// Which workflows or runs; without a filter all of the team that are not archived, that failed, timed out or were abandoned
/// (`retry`), or that have not ended (`cancel`). At most 100,000 are selected. `retry` leaves out a run that did not succeed if
/// another run of its due time, or of the same manual run, has; of several that match it takes the newest.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkFilter {
    /// Only these workflows, or runs of them; at most 1,000.
    workflow_ids: Option<Vec<i64>>,
    /// Only workflows in this state.
    state: Option<workflows::State>,
    /// Only workflows whose name or description contains this text, in any case.
    q: Option<String>,
    /// Only these runs, at most 1,000; with `retry` and `cancel`.
    run_ids: Option<Vec<Uuid>>,
    /// Only runs in one of these states; with `retry` and `cancel`. A `retry` without it and without `run_ids` is of runs that
    /// failed, timed out or were abandoned: name `succeeded` to repeat also what succeeded.
    run_states: Option<Vec<RunState>>,
    /// Only runs that were accepted at or after this time, to the millisecond; with `retry` and `cancel`.
    from: Option<DateTime<Utc>>,
    /// Only runs that were accepted before this time, to the millisecond; with `retry` and `cancel`.
    to: Option<DateTime<Utc>>,
}

/// Filters of a list of bulk operations.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BulkParams {
    /// Only operations of this team; for admins and persons of several teams.
    team_id: Option<i64>,
    /// Items on a page, 1 to 200.
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Filters of a list of items.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BulkItemParams {
    /// Only items with this outcome.
    #[param(inline)]
    outcome: Option<Outcome>,
    /// Items on a page, 1 to 200.
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Apply a verb to many workflows or runs. With `dry_run=true` the answer says how many, and names the first 20.
#[utoipa::path(post, path = "/api/v1/bulk", tag = "operations", request_body = BulkBody, params(RepeatParams),
    responses((status = 202, body = BulkView, headers(("Location" = String))),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create_bulk_operation(
    State(app): State<App>,
    Editor(caller): Editor,
    Trace(trace): Trace,
    creation: Creation<BulkBody>,
) -> Result<Response, Error> {
    let edit = caller.edit_at(app.clock.now(), trace);
    let Requested { body, repeat, created } = creation.look_up(&app, &edit).await?;
    if body.verb == Verb::Delete && !caller.permits(Scope::Admin) {
        return Err(Error::forbidden("only a key with the scope admin deletes workflows"));
    }
    let (caller, team_id) = team_of_new(caller, body.team_id)?;
    if let Some(created) = created {
        return answer_again(&mut *app.pools.edits.acquire().await?, &caller, created).await;
    }
    let request = parse_request(body, team_id, edit.now)?;
    let _turn_of_requests = app.bulk_requests_of_team.wait_turn((caller.team_id, team_id)).await?;
    let mut tx = EditTransaction::begin_of_team(&app, caller.team_id).await?;
    if let Some(created) = repeat.begin(&mut tx, &edit).await? {
        return answer_again(&mut tx, &caller, created).await;
    }
    let id = created_id(bulk::create_operation(&mut tx, &request, &edit).await?, request.verb)?;
    repeat.store(&mut tx, &edit, &id).await?;
    let created = bulk::find_operation(&mut tx, id, None).await?.ok_or_else(Error::not_found)?;
    tx.commit().await?;
    Ok(answer_accepted(created))
}

/// The answer to a repeat.
async fn answer_again(db: &mut PgConnection, caller: &Caller, created: Value) -> Result<Response, Error> {
    let id: Uuid = serde_json::from_value(created).map_err(anyhow::Error::from)?;
    let found = bulk::find_operation(db, id, caller.team_id).await?.ok_or_else(Error::not_found)?;
    Ok((replayed(), answer_accepted(found)).into_response())
}

fn created_id(created: Created, verb: Verb) -> Result<Uuid, Error> {
    match created {
        Created::Operation(id, _total) => Ok(id),
        Created::Nothing if verb == Verb::Retry => {
            Err(Error::conflict("nothing_selected", "the filter selects no run, or only runs whose work is done"))
        }
        Created::Nothing => Err(Error::conflict("nothing_selected", "the filter selects no workflow or run")),
        Created::Changed(total) => {
            let detail = format!("the selection has changed: it has {total} workflows or runs now. Check it again");
            Err(Error::conflict("selection_changed", &detail))
        }
        Created::Busy(most) => {
            let detail = format!("{most} bulk operations of the team have not ended: wait for one, or cancel one");
            Err(Error::conflict("bulk_running", &detail))
        }
        Created::TooMany(most) => {
            let detail = format!("the filter selects more than {most} workflows or runs: name fewer");
            Err(FieldError::invalid("filter", detail).into())
        }
    }
}

fn answer_accepted(operation: Operation) -> Response {
    let location = format!("/api/v1/bulk/{}", operation.id);
    (StatusCode::ACCEPTED, [(header::LOCATION, location)], Json(BulkView::view_from(operation))).into_response()
}

fn parse_request(body: BulkBody, team_id: i64, now: DateTime<Utc>) -> Result<Request, FieldError> {
    let BulkBody { verb, filter, reason, until, replace_pause: replaces_pause, expected_total, team_id: _ } = body;
    let of_pause = [("reason", reason.is_some()), ("until", until.is_some()), ("replace_pause", replaces_pause)];
    if let Some((named, _)) = of_pause.into_iter().find(|(_, is_set)| *is_set && verb != Verb::Pause) {
        return Err(FieldError::invalid(named, format!("{named} belongs to the verb pause")));
    }
    reason.as_deref().map_or(Ok(()), |reason| field::check_text("reason", reason, 0, 500))?;
    let until = until.map(|until| field::check_instant("until", until)).transpose()?;
    if until.is_some_and(|until| until <= now) {
        return Err(FieldError::invalid("until", "until must be in the future"));
    }
    let filter = parse_filter(filter, verb)?;
    Ok(Request { team_id, verb, filter, reason, until, replaces_pause, expected_total })
}

fn parse_filter(filter: BulkFilter, verb: Verb) -> Result<Filter, FieldError> {
    refuse_foreign(&filter, verb)?;
    refuse_empty(&filter)?;
    let BulkFilter { workflow_ids, state, q, run_ids, run_states, from, to } = filter;
    let counts = [
        ("filter.workflow_ids", workflow_ids.as_ref().map(Vec::len)),
        ("filter.run_ids", run_ids.as_ref().map(Vec::len)),
    ];
    if let Some((field, _)) = counts.into_iter().find(|(_, count)| count.is_some_and(|count| count > MOST_IDS)) {
        return Err(FieldError::invalid(field, format!("{field} must have at most {MOST_IDS} ids")));
    }
    q.as_deref().map_or(Ok(()), |q| field::check_text("filter.q", q, 0, 200))?;
    let instant = |name, time: Option<DateTime<Utc>>| time.map(|time| field::check_instant(name, time)).transpose();
    let (from, to) = (instant("filter.from", from)?, instant("filter.to", to)?);
    let run_states = match run_states {
        Some(states) => states,
        // The span of an outage also has runs that succeeded.
        None if verb == Verb::Retry && run_ids.is_none() => bulk::WORTH_A_RETRY.to_vec(),
        None => Vec::new(),
    };
    Ok(Filter { workflow_ids, workflow_state: state, q, run_ids, run_states, from, to })
}

/// Refuses a field that selects workflows if the verb has runs, and the reverse.
fn refuse_foreign(filter: &BulkFilter, verb: Verb) -> Result<(), FieldError> {
    let of_runs = [
        ("filter.run_ids", filter.run_ids.is_some()),
        ("filter.run_states", filter.run_states.is_some()),
        ("filter.from", filter.from.is_some()),
        ("filter.to", filter.to.is_some()),
    ];
    let of_workflows = [("filter.state", filter.state.is_some()), ("filter.q", filter.q.is_some())];
    let (foreign, items) = if verb.is_of_runs() { (&of_workflows[..], "workflows") } else { (&of_runs[..], "runs") };
    match foreign.iter().find(|(_, is_set)| *is_set) {
        Some((field, _)) => {
            let detail = format!("{field} selects {items}, and the verb does not apply to them");
            Err(FieldError::invalid(*field, detail))
        }
        None => Ok(()),
    }
}

/// Refuses an empty value, for example of a variable that a program has not set: it would select all.
fn refuse_empty(filter: &BulkFilter) -> Result<(), FieldError> {
    let empty = [
        ("filter.run_states", filter.run_states.as_ref().is_some_and(Vec::is_empty)),
        ("filter.q", filter.q.as_deref().is_some_and(|q| q.trim().is_empty())),
    ];
    match empty.into_iter().find(|(_, is_empty)| *is_empty) {
        Some((field, _)) => {
            let detail = format!("{field} must not be empty: name what it selects, or leave it out");
            Err(FieldError::invalid(field, detail))
        }
        None => Ok(()),
    }
}

/// List bulk operations, the newest first.
#[utoipa::path(get, path = "/api/v1/bulk", tag = "operations", params(BulkParams),
    responses((status = 200, body = Page<BulkView>),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_bulk_operations(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Params(params): Params<BulkParams>,
) -> Result<PageAnswer, Error> {
    let teams = teams_of_list(&caller, params.team_id)?;
    let limit = page::parse_limit(params.limit)?;
    let before = page::parse_cursor(params.cursor.as_deref())?;
    let mut tx = begin_read(&app).await?;
    let mut pages = Vec::with_capacity(teams.len());
    for team_id in teams {
        pages.push(bulk::list_operations(&mut tx, team_id, before, limit).await.map_err(failed_read)?);
    }
    tx.commit().await?;
    let found = KeysetPage::merge(pages, limit, KeyOrder::Descending, |operation: &Operation| operation.id);
    page::answer_page(found, |operation| operation.id, BulkView::view_from).await
}

/// Read a bulk operation and its progress.
#[utoipa::path(get, path = "/api/v1/bulk/{id}", tag = "operations", params(("id" = Uuid, Path)),
    responses((status = 200, body = BulkView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_bulk_operation(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Id(id): Id<Uuid>,
) -> Result<Json<BulkView>, Error> {
    let mut connection = app.pools.reads.acquire().await?;
    let found = bulk::find_operation(&mut connection, id, caller.team_id).await?;
    Ok(Json(to_view(found.ok_or_else(Error::not_found)?)))
}

/// List the items of a bulk operation in their order, with what became of each.
#[utoipa::path(get, path = "/api/v1/bulk/{id}/items", tag = "operations", params(("id" = Uuid, Path), BulkItemParams),
    responses((status = 200, body = Page<BulkItemView>),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_bulk_items(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Id(id): Id<Uuid>,
    Params(params): Params<BulkItemParams>,
) -> Result<PageAnswer, Error> {
    let limit = page::parse_limit(params.limit)?;
    let after = page::parse_cursor(params.cursor.as_deref())?;
    let mut tx = begin_read(&app).await?;
    let operation = bulk::find_operation(&mut tx, id, caller.team_id).await.map_err(failed_read)?;
    let operation = operation.ok_or_else(Error::not_found)?;
    let found = bulk::list_items(&mut tx, operation.id, params.outcome, after, limit).await.map_err(failed_read)?;
    tx.commit().await?;
    page::answer_page(found, |item| item.nth, BulkItemView::view_from).await
}

/// Cancel a bulk operation: the items that are not processed yet stay as they are.
#[utoipa::path(post, path = "/api/v1/bulk/{id}:cancel", tag = "operations", params(("id" = Uuid, Path)),
    responses((status = 200, body = BulkView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn cancel_bulk_operation(
    State(app): State<App>,
    Editor(caller): Editor,
    Trace(trace): Trace,
    extract::Verb(id, verb): extract::Verb<Uuid>,
    OptionalBody(EmptyBody {}): OptionalBody<EmptyBody>,
) -> Result<Json<BulkView>, Error> {
    if verb != "cancel" {
        return Err(Error::not_found());
    }
    let edit = caller.edit_at(app.clock.now(), trace);
    let mut tx = EditTransaction::begin_of_team(&app, caller.team_id).await?;
    let before = bulk::find_operation(&mut tx, id, caller.team_id).await?.ok_or_else(Error::not_found)?;
    let is_cancelled = bulk::cancel_operation(&mut tx, id, edit.now).await?;
    let after = bulk::find_operation(&mut tx, id, None).await?.ok_or_else(Error::not_found)?;
    if is_cancelled {
        let subject = format!("bulk:{id}");
        let entry = Entry { verb: "cancel", subject, team_id: Some(before.team_id), before: None, after: None };
        audit::record_entry(&mut tx, &edit, entry).await?;
    } else if after.state == bulk::State::Finished {
        return Err(Error::conflict("bulk_ended", "every item of the operation is processed"));
    }
    tx.commit().await?;
    Ok(Json(to_view(after)))
}

impl ViewFrom<Operation> for BulkView {
    fn view_from(operation: Operation) -> Self {
        Self {
            id: operation.id,
            team_id: operation.team_id,
            verb: to_view(operation.verb),
            reason: operation.reason,
            until: operation.until,
            state: to_view(operation.state),
            total: operation.total,
            processed: operation.processed,
            refused: operation.refused,
            actor: operation.actor,
            actor_name: operation.actor_name,
            created_on: operation.created_on,
            finished_on: operation.finished_on,
        }
    }
}

impl ViewFrom<Item> for BulkItemView {
    fn view_from(item: Item) -> Self {
        Self {
            nth: item.nth,
            workflow_id: item.workflow_id,
            run_id: item.run_id,
            outcome: to_view(item.outcome),
            code: item.code,
            new_run_id: item.new_run_id,
        }
    }
}
