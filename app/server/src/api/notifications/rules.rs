//! Step 7 of 7: the API of rules, which events become notifications.

use api_types::notifications::{NotificationEvent, RuleView};
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use db::PgConnection;
use notifications::rule::{self, MOST_ALIKE, MOST_RULES, Rule, RuleSpec, RuleWrite};
use serde::Deserialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use workflows::definition::field::{self, FieldError};
use workflows::keyset::{KeyOrder, KeysetPage};

use crate::App;
use crate::api::request::auth::{Caller, Editor, Viewer};
use crate::api::request::edit_transaction::EditTransaction;
use crate::api::request::error::{Error, Problem};
use crate::api::request::etag::Versioned;
use crate::api::request::extract::{self, Body, Id, IfMatch, OptionalBody, Params, Trace};
use crate::api::request::page::{self, Page, PageAnswer};
use crate::api::request::read::{begin_read, failed_read};
use crate::api::request::repeat::{Creation, RepeatParams, Requested, replayed};
use crate::api::request::team::teams_of_list;
use crate::api::workflows::team_of_new;

/// A rule, as a client defines it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleBody {
    /// The team; for admins and persons of several teams. It never changes.
    team_id: Option<i64>,
    /// Only this workflow; without it all of the team. `no_success` needs it.
    workflow_id: Option<i64>,
    /// What happens.
    event: NotificationEvent,
    /// How often in a row, 1 to 100; only of `failures_in_a_row`, `recovered` and `skipped_overlap`.
    threshold: Option<i32>,
    /// For how many seconds, 60 to 2,678,400; only of `run_late`, `run_long`, `no_success`, `frozen_long` and `paused_long`.
    after_secs: Option<i32>,
    /// For how many seconds notifications are collected in one message, 0 to 3,600; 60 unless set, 5 for `auto_paused`.
    group_secs: Option<i32>,
    /// 1 to 20 channels of the team.
    channel_ids: Vec<i64>,
    /// Whether it is in force; true unless set.
    enabled: Option<bool>,
    /// Read-only; a client may send back what it has read. `:snooze` changes it.
    #[serde(default, rename = "snoozed_until")]
    _snoozed_until: Option<String>,
    /// Read-only.
    #[serde(default, rename = "id")]
    _id: Option<i64>,
    /// Read-only.
    #[serde(default, rename = "version")]
    _version: Option<i64>,
    /// Read-only.
    #[serde(default, rename = "created_on")]
    _created_on: Option<String>,
    /// Read-only.
    #[serde(default, rename = "updated_on")]
    _updated_on: Option<String>,
}

/// For how long a rule is snoozed.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnoozeBody {
    /// Until this time; without it the rule is snoozed no more.
    until: Option<DateTime<Utc>>,
}

/// Filters of a list of channels or rules.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OfTeamParams {
    /// Only those of this team; for admins and persons of several teams.
    pub(super) team_id: Option<i64>,
    /// Items on a page, 1 to 200.
    pub(super) limit: Option<i64>,
    /// `next_cursor` of the previous page.
    pub(super) cursor: Option<String>,
}

impl RuleBody {
    fn into_spec(self) -> Result<RuleSpec, FieldError> {
        let spec = RuleSpec {
            workflow_id: self.workflow_id,
            event: self.event,
            threshold: self.threshold,
            after_secs: self.after_secs,
            group_secs: self.group_secs,
            channel_ids: self.channel_ids,
            is_enabled: self.enabled.unwrap_or(true),
        };
        spec.check()?;
        Ok(spec)
    }
}

/// Returns the rule that was written, or the refusal.
pub(super) fn require_written(written: RuleWrite) -> Result<Rule, Error> {
    match written {
        RuleWrite::Written(rule) => Ok(*rule),
        RuleWrite::TooMany => {
            let detail = format!("a team has at most {MOST_RULES} rules: one without workflow_id is for all workflows");
            Err(Error::conflict("too_many_rules", &detail))
        }
        RuleWrite::TooManyAlike => {
            let detail = format!(
                "at most {MOST_ALIKE} rules of an event are for the same workflow, and as many for all: name several channels in one rule"
            );
            Err(Error::conflict("too_many_rules", &detail))
        }
        RuleWrite::NoChannel(id) => {
            Err(FieldError::invalid("channel_ids", format!("{id} is no channel of the team")).into())
        }
        RuleWrite::NoWorkflow => {
            let detail = "the team has no such workflow, or it is archived";
            Err(FieldError::invalid("workflow_id", detail).into())
        }
    }
}

/// Create a rule for notifications.
#[utoipa::path(post, path = "/api/v1/notification-rules", tag = "notifications", request_body = RuleBody, params(RepeatParams),
    responses((status = 201, body = RuleView, headers(("Location" = String), ("ETag" = String))),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create_rule(
    State(app): State<App>,
    Editor(caller): Editor,
    Trace(trace): Trace,
    creation: Creation<RuleBody>,
) -> Result<Response, Error> {
    let edit = caller.edit_at(app.clock.now(), trace);
    let Requested { body, repeat, created } = creation.look_up(&app, &edit).await?;
    let (caller, team_id) = team_of_new(caller, body.team_id)?;
    if let Some(created) = created {
        return answer_again(&mut *app.pools.edits.acquire().await?, &caller, created).await;
    }
    let spec = body.into_spec()?;
    let mut tx = EditTransaction::begin_of_team(&app, caller.team_id).await?;
    if let Some(created) = repeat.begin(&mut tx, &edit).await? {
        return answer_again(&mut tx, &caller, created).await;
    }
    let created = require_written(rule::create_rule(&mut tx, team_id, &spec, &edit).await?)?;
    repeat.store(&mut tx, &edit, &created.id).await?;
    tx.commit().await?;
    Ok(answer_created(&created))
}

/// The answer to a repeat.
async fn answer_again(db: &mut PgConnection, caller: &Caller, created: Value) -> Result<Response, Error> {
    let id: i64 = serde_json::from_value(created).map_err(anyhow::Error::from)?;
    let found = rule::find_rule(db, id, caller.team_id).await?.ok_or_else(Error::not_found)?;
    Ok((replayed(), answer_created(&found)).into_response())
}

fn with_etag(rule: &Rule) -> Versioned<RuleView> {
    let view = rule.view();
    Versioned { version: view.version, view }
}

fn answer_created(rule: &Rule) -> Response {
    let location = format!("/api/v1/notification-rules/{}", rule.id);
    (StatusCode::CREATED, [(header::LOCATION, location)], with_etag(rule)).into_response()
}

/// List the rules of your teams, the newest first.
#[utoipa::path(get, path = "/api/v1/notification-rules", tag = "notifications", params(OfTeamParams),
    responses((status = 200, body = Page<RuleView>),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_rules(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Params(params): Params<OfTeamParams>,
) -> Result<PageAnswer, Error> {
    let teams = teams_of_list(&caller, params.team_id)?;
    let limit = page::parse_limit(params.limit)?;
    let before = page::parse_cursor(params.cursor.as_deref())?;
    let mut tx = begin_read(&app).await?;
    let mut pages = Vec::with_capacity(teams.len());
    for team_id in teams {
        pages.push(rule::list_rules(&mut tx, team_id, before, limit).await.map_err(failed_read)?);
    }
    tx.commit().await?;
    let found = KeysetPage::merge(pages, limit, KeyOrder::Descending, |rule: &Rule| rule.id);
    page::answer_page(found, |rule| rule.id, |rule| rule.view()).await
}

/// Read a rule.
#[utoipa::path(get, path = "/api/v1/notification-rules/{id}", tag = "notifications", params(("id" = i64, Path)),
    responses((status = 200, body = RuleView, headers(("ETag" = String))),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_rule(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Id(id): Id<i64>,
) -> Result<Versioned<RuleView>, Error> {
    let mut connection = app.pools.reads.acquire().await?;
    let found = rule::find_rule(&mut connection, id, caller.team_id).await?;
    Ok(with_etag(&found.ok_or_else(Error::not_found)?))
}

/// Replace the fields of a rule. A field that is absent takes its default.
#[utoipa::path(put, path = "/api/v1/notification-rules/{id}", tag = "notifications",
    params(("id" = i64, Path), ("If-Match" = Option<String>, Header)),
    request_body = RuleBody,
    responses((status = 200, body = RuleView, headers(("ETag" = String))),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn put_rule(
    State(app): State<App>,
    Editor(caller): Editor,
    Trace(trace): Trace,
    Id(id): Id<i64>,
    if_match: IfMatch,
    Body(body): Body<RuleBody>,
) -> Result<Versioned<RuleView>, Error> {
    let edit = caller.edit_at(app.clock.now(), trace);
    let team_id = body.team_id;
    let spec = body.into_spec()?;
    let mut tx = EditTransaction::begin_of_team(&app, caller.team_id).await?;
    let before = rule::lock_rule(&mut tx, id, caller.team_id).await?.ok_or_else(Error::not_found)?;
    if_match.check_version("rule", before.version)?;
    if team_id.is_some_and(|team_id| team_id != before.team_id) {
        return Err(FieldError::new("immutable_field", "team_id", "the team never changes").into());
    }
    let after = require_written(rule::replace_rule(&mut tx, &before, &spec, &edit).await?)?;
    tx.commit().await?;
    Ok(with_etag(&after))
}

/// Delete a rule. What it has recorded stays.
#[utoipa::path(delete, path = "/api/v1/notification-rules/{id}", tag = "notifications",
    params(("id" = i64, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 204), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn delete_rule(
    State(app): State<App>,
    Editor(caller): Editor,
    Trace(trace): Trace,
    Id(id): Id<i64>,
    if_match: IfMatch,
) -> Result<StatusCode, Error> {
    let edit = caller.edit_at(app.clock.now(), trace);
    let mut tx = EditTransaction::begin_of_team(&app, caller.team_id).await?;
    let before = rule::lock_rule(&mut tx, id, caller.team_id).await?.ok_or_else(Error::not_found)?;
    if_match.check_version("rule", before.version)?;
    rule::delete_rule(&mut tx, &before, &edit).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Snooze a rule: until then its notifications are recorded and not sent, also not afterwards.
#[utoipa::path(post, path = "/api/v1/notification-rules/{id}:snooze", tag = "notifications", params(("id" = i64, Path)),
    request_body = Option<SnoozeBody>,
    responses((status = 200, body = RuleView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn snooze_rule(
    State(app): State<App>,
    Editor(caller): Editor,
    Trace(trace): Trace,
    extract::Verb(id, verb): extract::Verb<i64>,
    OptionalBody(SnoozeBody { until }): OptionalBody<SnoozeBody>,
) -> Result<Json<RuleView>, Error> {
    if verb != "snooze" {
        return Err(Error::not_found());
    }
    let edit = caller.edit_at(app.clock.now(), trace);
    let until = until.map(|until| field::check_instant("until", until)).transpose()?;
    if until.is_some_and(|until| until <= edit.now) {
        return Err(FieldError::invalid("until", "until must be in the future").into());
    }
    let mut tx = EditTransaction::begin_of_team(&app, caller.team_id).await?;
    let before = rule::lock_rule(&mut tx, id, caller.team_id).await?.ok_or_else(Error::not_found)?;
    let after = require_written(rule::snooze_rule(&mut tx, &before, until, &edit).await?)?;
    tx.commit().await?;
    Ok(Json(after.view()))
}
