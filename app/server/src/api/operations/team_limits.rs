//! Step 1 of 7: the API of a team's limits: its members read them, an admin sets them.

use access::limits::{MOST, TeamLimits, TeamUsage, find_team_limits, set_team_limits};
use access::teams::lock_team;
use api_types::limits::{TeamLimitsView, TeamUsageView};
use axum::extract::State;
use db::PgConnection;
use ledger::stats;
use workflows::definition::field::FieldError;

use crate::App;
use crate::api::request::auth::{Admin, Viewer};
use crate::api::request::error::{Error, Problem};
use crate::api::request::etag::{Versioned, digest_version};
use crate::api::request::extract::{Body, Id, IfMatch, Trace};
use crate::api::request::view::to_view;

/// Read the limits of a team and its usage.
#[utoipa::path(get, path = "/api/v1/teams/{id}/limits", tag = "keys", params(("id" = i64, Path)),
    responses((status = 200, body = TeamLimitsView, headers(("ETag" = String))),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_team_limits(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Id(id): Id<i64>,
) -> Result<Versioned<TeamLimitsView>, Error> {
    if caller.team_id.is_some_and(|own| own != id) {
        return Err(Error::not_found());
    }
    with_etag(read_team_limits(&app, &mut *app.pools.reads.acquire().await?, id).await?)
}

/// Set the limits of a team; an absent one takes the default of the operator. Every instance applies them within 5
/// seconds.
#[utoipa::path(put, path = "/api/v1/teams/{id}/limits", tag = "keys",
    params(("id" = i64, Path), ("If-Match" = Option<String>, Header)),
    request_body = TeamLimits,
    responses((status = 200, body = TeamLimitsView, headers(("ETag" = String))),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn put_team_limits(
    State(app): State<App>,
    Admin(caller): Admin,
    Trace(trace): Trace,
    Id(id): Id<i64>,
    if_match: IfMatch,
    Body(limits): Body<TeamLimits>,
) -> Result<Versioned<TeamLimitsView>, Error> {
    if let Some(field) = limits.find_invalid() {
        let detail = format!("{field} must be from 0 (no limit) to {MOST}");
        return Err(FieldError::invalid(field, detail).into());
    }
    let mut tx = db::begin_transaction(&app.pools.edits).await?;
    lock_team(&mut tx, id).await?.ok_or_else(Error::not_found)?;
    if_match.check_version("set of limits", version_of(&read_team_limits(&app, &mut tx, id).await?)?)?;
    set_team_limits(&mut tx, id, limits, &caller.edit_at(app.clock.now(), trace)).await?;
    let view = read_team_limits(&app, &mut tx, id).await?;
    tx.commit().await?;
    app.gate.forget_all();
    with_etag(view)
}

fn with_etag(view: TeamLimitsView) -> Result<Versioned<TeamLimitsView>, Error> {
    Ok(Versioned { version: version_of(&view)?, view })
}

/// The version of what an admin has set: neither the usage nor the defaults of the operator are part of an edit.
fn version_of(view: &TeamLimitsView) -> Result<i64, Error> {
    digest_version(&view.set)
}

pub(super) async fn read_team_limits(app: &App, db: &mut PgConnection, team_id: i64) -> Result<TeamLimitsView, Error> {
    let (set, usage) = find_team_limits(db, team_id).await?.ok_or_else(Error::not_found)?;
    let TeamUsage { workflows, fires_per_hour, input_bytes, archived_workflows, archived_bytes } = usage;
    let running_runs = stats::count_running_runs(db, team_id).await?;
    Ok(TeamLimitsView {
        team_id,
        set: to_view(set),
        in_force: to_view(set.or(app.config.team_limits())),
        usage: TeamUsageView {
            running_runs,
            workflows,
            fires_per_hour,
            input_bytes,
            archived_workflows,
            archived_bytes,
        },
    })
}
