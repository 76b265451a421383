//! Step 7 of 7: the API of freezes, which stop the schedules of a team, or of all teams, for a time.

use api_types::freezes::{FreezeState, FreezeView};
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use db::PgConnection;
use ledger::freezes::{self, Created, Freeze, Lifted, Listed, Request};
use serde::Deserialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use workflows::audit::Edit;
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
use crate::api::workflows::team_of_new;

/// A request for a freeze.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FreezeBody {
    /// The team; for admins and persons of several teams.
    team_id: Option<i64>,
    /// Freeze all teams, those of the future included; only for admins.
    #[serde(default)]
    all_teams: bool,
    /// Why, for people: every decision of the freeze has it. 1 to 500 characters.
    reason: String,
    /// From when; now unless set.
    from: Option<DateTime<Utc>>,
    /// Until when, exclusive; without it the freeze lasts until it is lifted.
    until: Option<DateTime<Utc>>,
}

/// Filters of a list of freezes.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FreezeParams {
    /// Only freezes of this team, and those of all teams; for admins and persons of several teams.
    team_id: Option<i64>,
    /// Only freezes that have not ended.
    #[serde(default)]
    open: bool,
    /// Items on a page, 1 to 200.
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Freeze the schedules of a team, or of all teams: each due time is decided `skipped_paused`, with the reason of the freeze.
#[utoipa::path(post, path = "/api/v1/freezes", tag = "operations", request_body = FreezeBody, params(RepeatParams),
    responses((status = 201, body = FreezeView, headers(("Location" = String))),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create_freeze(
    State(app): State<App>,
    Editor(caller): Editor,
    Trace(trace): Trace,
    creation: Creation<FreezeBody>,
) -> Result<Response, Error> {
    let edit = caller.edit_at(app.clock.now(), trace);
    let Requested { body, repeat, created } = creation.look_up(&app, &edit).await?;
    let (caller, team_id) = choose_team(caller, &body)?;
    if let Some(created) = created {
        let mut connection = app.pools.edits.acquire().await?;
        return answer_again(&mut connection, &caller, created, edit.now).await;
    }
    let request = parse_request(body, team_id, edit.now)?;
    let mut tx = EditTransaction::begin_of_team(&app, caller.team_id).await?;
    if let Some(created) = repeat.begin(&mut tx, &edit).await? {
        return answer_again(&mut tx, &caller, created, edit.now).await;
    }
    // The freeze begins now, not when the request arrived: what was decided while it waited stays decided.
    let edit = Edit { now: app.clock.now(), ..edit };
    check_until(request.from, request.until, edit.now)?;
    let id = match freezes::create_freeze(&mut tx, &request, &edit).await? {
        Created::Freeze(id) => id,
        Created::TooMany(most) => {
            let detail = format!("{most} freezes have not ended: lift one, or wait until one ends");
            return Err(Error::conflict("too_many_freezes", &detail));
        }
    };
    repeat.store(&mut tx, &edit, &id).await?;
    let created = freezes::find_freeze(&mut tx, id, None).await?.ok_or_else(Error::not_found)?;
    tx.commit().await?;
    Ok(answer_created(created, edit.now))
}

/// The answer to a repeat.
async fn answer_again(
    db: &mut PgConnection,
    caller: &Caller,
    created: Value,
    now: DateTime<Utc>,
) -> Result<Response, Error> {
    let id: Uuid = serde_json::from_value(created).map_err(anyhow::Error::from)?;
    let found = freezes::find_freeze(db, id, caller.team_id).await?.ok_or_else(Error::not_found)?;
    Ok((replayed(), answer_created(found, now)).into_response())
}

fn answer_created(freeze: Freeze, now: DateTime<Utc>) -> Response {
    let location = format!("/api/v1/freezes/{}", freeze.id);
    (StatusCode::CREATED, [(header::LOCATION, location)], Json(view_freeze_at(freeze, now))).into_response()
}

/// Returns the caller in the team of the freeze, and this team; `None`: all teams.
fn choose_team(caller: Caller, body: &FreezeBody) -> Result<(Caller, Option<i64>), Error> {
    match (body.all_teams, body.team_id) {
        (true, Some(_)) => Err(FieldError::invalid("team_id", "send team_id or all_teams, not both").into()),
        (true, None) if caller.team_id.is_some() => {
            Err(Error::forbidden("only an admin freezes all teams: leave out all_teams, or ask an admin"))
        }
        (true, None) => Ok((caller, None)),
        (false, team_id) => {
            let (caller, team_id) = team_of_new(caller, team_id)?;
            Ok((caller, Some(team_id)))
        }
    }
}

/// Returns what the freeze has to be.
fn parse_request(body: FreezeBody, team_id: Option<i64>, now: DateTime<Utc>) -> Result<Request, FieldError> {
    let FreezeBody { reason, from, until, team_id: _, all_teams: _ } = body;
    field::check_text("reason", &reason, 1, 500)?;
    let instant = |name, time: Option<DateTime<Utc>>| time.map(|time| field::check_instant(name, time)).transpose();
    let (from, until) = (instant("from", from)?, instant("until", until)?);
    if from.is_some_and(|from| from < now) {
        let detail = "from must not be in the past: what was decided stays decided; leave it out to freeze now";
        return Err(FieldError::invalid("from", detail));
    }
    check_until(from, until, now)?;
    Ok(Request { team_id, reason, from, until })
}

fn check_until(
    from: Option<DateTime<Utc>>,
    until: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Result<(), FieldError> {
    match until {
        Some(until) if until <= from.unwrap_or(now).max(now) => {
            Err(FieldError::invalid("until", "until must be after from, and in the future"))
        }
        Some(_) | None => Ok(()),
    }
}

/// List the freezes of your teams, and those of all teams, the newest first.
#[utoipa::path(get, path = "/api/v1/freezes", tag = "operations", params(FreezeParams),
    responses((status = 200, body = Page<FreezeView>),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_freezes(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Params(params): Params<FreezeParams>,
) -> Result<PageAnswer, Error> {
    let listed = listed_of(teams_of_list(&caller, params.team_id)?);
    let limit = page::parse_limit(params.limit)?;
    let before = page::parse_cursor(params.cursor.as_deref())?;
    let now = app.clock.now();
    let open_on = params.open.then_some(now);
    let mut tx = begin_read(&app).await?;
    let mut pages = Vec::with_capacity(listed.len());
    for listed in listed {
        pages.push(freezes::list_freezes(&mut tx, listed, open_on, before, limit).await.map_err(failed_read)?);
    }
    tx.commit().await?;
    let found = KeysetPage::merge(pages, limit, KeyOrder::Descending, |freeze: &Freeze| freeze.id);
    page::answer_page(found, |freeze| freeze.id, move |freeze| view_freeze_at(freeze, now)).await
}

/// The freezes of these teams; those of all teams concern each of them.
fn listed_of(teams: Vec<Option<i64>>) -> Vec<Listed> {
    match teams.into_iter().collect::<Option<Vec<i64>>>() {
        Some(teams) => teams.into_iter().map(Listed::OfTeam).chain([Listed::OfAllTeams]).collect(),
        None => vec![Listed::Everything],
    }
}

/// Read a freeze.
#[utoipa::path(get, path = "/api/v1/freezes/{id}", tag = "operations", params(("id" = Uuid, Path)),
    responses((status = 200, body = FreezeView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_freeze(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Id(id): Id<Uuid>,
) -> Result<Json<FreezeView>, Error> {
    let mut connection = app.pools.reads.acquire().await?;
    let found = freezes::find_freeze(&mut connection, id, caller.team_id).await?;
    Ok(Json(view_freeze_at(found.ok_or_else(Error::not_found)?, app.clock.now())))
}

/// Lift a freeze: it ends now. The times that it has decided stay skipped; a backfill with `"timing": "now"` runs them.
#[utoipa::path(post, path = "/api/v1/freezes/{id}:lift", tag = "operations", params(("id" = Uuid, Path)),
    responses((status = 200, body = FreezeView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn lift_freeze(
    State(app): State<App>,
    Editor(caller): Editor,
    Trace(trace): Trace,
    extract::Verb(id, verb): extract::Verb<Uuid>,
    OptionalBody(EmptyBody {}): OptionalBody<EmptyBody>,
) -> Result<Json<FreezeView>, Error> {
    if verb != "lift" {
        return Err(Error::not_found());
    }
    let mut tx = EditTransaction::begin_of_team(&app, caller.team_id).await?;
    let freeze = freezes::find_freeze(&mut tx, id, caller.team_id).await?.ok_or_else(Error::not_found)?;
    if freeze.team_id.is_none() && caller.team_id.is_some() {
        return Err(Error::forbidden("an admin froze all teams: only an admin lifts this freeze"));
    }
    freezes::lock_freeze(&mut tx, id).await?;
    let edit = caller.edit_at(app.clock.now(), trace);
    if freezes::lift_freeze(&mut tx, &freeze, &edit).await? == Lifted::Before {
        return Err(Error::conflict("freeze_ended", "the freeze has ended, or was lifted"));
    }
    let lifted = freezes::find_freeze(&mut tx, id, None).await?.ok_or_else(Error::not_found)?;
    tx.commit().await?;
    Ok(Json(view_freeze_at(lifted, edit.now)))
}

pub(super) fn view_freeze_at(freeze: Freeze, now: DateTime<Utc>) -> FreezeView {
    let has_ended = freeze.ends_on.is_some_and(|ends_on| ends_on <= now.max(freeze.starts_on));
    let state = match (has_ended, freeze.starts_on <= now) {
        (true, _) => FreezeState::Ended,
        (false, true) => FreezeState::InForce,
        (false, false) => FreezeState::Planned,
    };
    FreezeView {
        id: freeze.id,
        team_id: freeze.team_id,
        reason: freeze.reason,
        state,
        from: freeze.starts_on,
        until: freeze.ends_on,
        actor: freeze.actor,
        actor_name: freeze.actor_name,
        created_on: freeze.created_on,
        lifted_by: freeze.lifted_by,
        lifted_on: freeze.lifted_on,
    }
}
