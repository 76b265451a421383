//! Step 7 of 7: the API of channels, where a team wants notifications.

use api_types::notifications::{ChannelKind, ChannelView, QuietHours, TestResultView};
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use db::PgConnection;
use egress::allowed::Tenant;
use notifications::channel::{self, Channel, ChannelCreation, ChannelDeletion, ChannelSpec};
use notifications::message;
use notifications::rule::{self, RuleSpec};
use notifications::team_limits::{SECS_PER_TEST, TESTS_AT_ONCE, take_channel_test};
use serde::Deserialize;
use serde_json::Value;
use url::Url;
use utoipa::ToSchema;
use workflows::audit::{self, Entry};
use workflows::definition::field::FieldError;
use workflows::keyset::{KeyOrder, KeysetPage};

use super::rules::{OfTeamParams, require_written};
use crate::App;
use crate::api::request::auth::{Caller, Editor, Viewer};
use crate::api::request::edit_transaction::EditTransaction;
use crate::api::request::error::{Error, Limit, Problem};
use crate::api::request::etag::Versioned;
use crate::api::request::extract::{self, Body, EmptyBody, Id, IfMatch, OptionalBody, Params, Trace};
use crate::api::request::page::{self, Page, PageAnswer};
use crate::api::request::read::{begin_read, failed_read};
use crate::api::request::repeat::{Creation, RepeatParams, Requested, replayed};
use crate::api::request::team::teams_of_list;
use crate::api::workflows::team_of_new;

/// A channel, as a client defines it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChannelBody {
    /// The team; for admins and persons of several teams. It never changes.
    team_id: Option<i64>,
    /// Unique in its team; 1 to 200 characters.
    name: String,
    /// How messages are sent. It never changes.
    kind: ChannelKind,
    /// Of a webhook or of Slack; required when the channel is created, and write-only. Without it a PUT keeps the present one.
    url: Option<String>,
    /// 1 to 20 addresses of an e-mail.
    #[serde(default)]
    recipients: Vec<String>,
    /// Of AWS, required: the ARN of an event bus or an SNS topic, which the operator of the service has permitted.
    target_arn: Option<String>,
    /// Messages in an hour, 1 to 1,000; 60 unless set. Further notifications wait, and are collected in the next message.
    max_per_hour: Option<i32>,
    /// When no message is sent.
    quiet: Option<QuietHours>,
    /// Whether it gets notifications; true unless set.
    enabled: Option<bool>,
    /// `true`, when the channel is created: also create the rules that most teams want: three failures in a row and their end,
    /// missed times, abandoned runs, automatic pauses, and schedules that EventBridge refuses.
    #[serde(default)]
    default_rules: bool,
    /// Read-only; a client may send back what it has read.
    #[serde(default, rename = "id")]
    _id: Option<i64>,
    /// Read-only.
    #[serde(default, rename = "origin")]
    _origin: Option<String>,
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

impl ChannelBody {
    fn into_spec(self, is_new: bool) -> Result<ChannelSpec, FieldError> {
        let parse = |url: String| url.parse::<Url>().map_err(|error| FieldError::invalid("url", error.to_string()));
        let spec = ChannelSpec {
            name: self.name,
            kind: self.kind,
            url: self.url.map(parse).transpose()?,
            recipients: self.recipients,
            target_arn: self.target_arn,
            max_per_hour: self.max_per_hour.unwrap_or(channel::DEFAULT_MAX_PER_HOUR),
            quiet: self.quiet,
            is_enabled: self.enabled.unwrap_or(true),
        };
        spec.check(is_new)?;
        Ok(spec)
    }
}

/// Create a channel for notifications.
#[utoipa::path(post, path = "/api/v1/notification-channels", tag = "notifications", request_body = ChannelBody, params(RepeatParams),
    responses((status = 201, body = ChannelView, headers(("Location" = String), ("ETag" = String))),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create_channel(
    State(app): State<App>,
    Editor(caller): Editor,
    Trace(trace): Trace,
    creation: Creation<ChannelBody>,
) -> Result<Response, Error> {
    let edit = caller.edit_at(app.clock.now(), trace);
    let Requested { body, repeat, created } = creation.look_up(&app, &edit).await?;
    let (caller, team_id) = team_of_new(caller, body.team_id)?;
    if let Some(created) = created {
        return answer_again(&mut *app.pools.edits.acquire().await?, &caller, created).await;
    }
    let has_default_rules = body.default_rules;
    let spec = body.into_spec(true)?;
    check_reach(&app, team_id, &spec).await?;
    let mut tx = EditTransaction::begin_of_team(&app, caller.team_id).await?;
    if let Some(created) = repeat.begin(&mut tx, &edit).await? {
        return answer_again(&mut tx, &caller, created).await;
    }
    let created = match channel::create_channel(&mut tx, &app.secrets, team_id, &spec, &edit).await? {
        ChannelCreation::Created(channel) => channel,
        ChannelCreation::TooMany => {
            let detail =
                format!("a team has at most {} channels: delete one that no rule needs", channel::MOST_CHANNELS);
            return Err(Error::conflict("too_many_channels", &detail));
        }
    };
    if has_default_rules {
        for default in RuleSpec::defaults(created.id) {
            require_written(rule::create_rule(&mut tx, team_id, &default, &edit).await?)?;
        }
    }
    repeat.store(&mut tx, &edit, &created.id).await?;
    tx.commit().await?;
    Ok(answer_created(&created))
}

/// The answer to a repeat.
async fn answer_again(db: &mut PgConnection, caller: &Caller, created: Value) -> Result<Response, Error> {
    let id: i64 = serde_json::from_value(created).map_err(anyhow::Error::from)?;
    let found = channel::find_channel(db, id, caller.team_id).await?.ok_or_else(Error::not_found)?;
    Ok((replayed(), answer_created(&found)).into_response())
}

fn with_etag(channel: &Channel) -> Versioned<ChannelView> {
    let view = channel.view();
    Versioned { version: view.version, view }
}

fn answer_created(channel: &Channel) -> Response {
    let location = format!("/api/v1/notification-channels/{}", channel.id);
    (StatusCode::CREATED, [(header::LOCATION, location)], with_etag(channel)).into_response()
}

/// Refuses a recipient to which the operator permits no e-mail, and a URL that the team may not call. A name server may be slow,
/// so no transaction may be open.
async fn check_reach(app: &App, team_id: i64, spec: &ChannelSpec) -> Result<(), Error> {
    check_recipients(app, spec)?;
    let Some(url) = &spec.url else { return Ok(()) };
    let hosts = app.host_lists.of_team(&app.pools.edits, team_id).await?;
    let tenant = Tenant { team_id: Some(team_id), hosts: &hosts };
    let checked = app.allowed.check_now(url, tenant).await;
    Ok(checked.map_err(|refused| FieldError::invalid("url", refused.to_string()))?)
}

fn check_recipients(app: &App, spec: &ChannelSpec) -> Result<(), FieldError> {
    let Some(domains) = &app.config.mail.mail_recipients else { return Ok(()) };
    match spec.recipients.iter().position(|address| !domains.permits(address)) {
        Some(at) => {
            let detail = format!("the operator permits e-mail to these domains only: {domains}");
            Err(FieldError::invalid(format!("recipients.{at}"), detail))
        }
        None => Ok(()),
    }
}

/// List the channels of your teams, the newest first.
#[utoipa::path(get, path = "/api/v1/notification-channels", tag = "notifications", params(OfTeamParams),
    responses((status = 200, body = Page<ChannelView>),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_channels(
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
        pages.push(channel::list_channels(&mut tx, team_id, before, limit).await.map_err(failed_read)?);
    }
    tx.commit().await?;
    let found = KeysetPage::merge(pages, limit, KeyOrder::Descending, |channel: &Channel| channel.id);
    page::answer_page(found, |channel| channel.id, |channel| channel.view()).await
}

/// Read a channel. Its URL is never shown.
#[utoipa::path(get, path = "/api/v1/notification-channels/{id}", tag = "notifications", params(("id" = i64, Path)),
    responses((status = 200, body = ChannelView, headers(("ETag" = String))),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_channel(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Id(id): Id<i64>,
) -> Result<Versioned<ChannelView>, Error> {
    let mut connection = app.pools.reads.acquire().await?;
    let found = channel::find_channel(&mut connection, id, caller.team_id).await?;
    Ok(with_etag(&found.ok_or_else(Error::not_found)?))
}

/// Replace the fields of a channel. A field that is absent takes its default; without a `url` it keeps its own.
#[utoipa::path(put, path = "/api/v1/notification-channels/{id}", tag = "notifications",
    params(("id" = i64, Path), ("If-Match" = Option<String>, Header)),
    request_body = ChannelBody,
    responses((status = 200, body = ChannelView, headers(("ETag" = String))),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn put_channel(
    State(app): State<App>,
    Editor(caller): Editor,
    Trace(trace): Trace,
    Id(id): Id<i64>,
    if_match: IfMatch,
    Body(body): Body<ChannelBody>,
) -> Result<Versioned<ChannelView>, Error> {
    let edit = caller.edit_at(app.clock.now(), trace);
    let team_id = body.team_id;
    let spec = body.into_spec(false)?;
    let existing = channel::find_channel(&mut *app.pools.reads.acquire().await?, id, caller.team_id).await?;
    check_reach(&app, existing.ok_or_else(Error::not_found)?.team_id, &spec).await?;
    let mut tx = EditTransaction::begin_of_team(&app, caller.team_id).await?;
    let before = channel::lock_channel(&mut tx, id, caller.team_id).await?.ok_or_else(Error::not_found)?;
    if_match.check_version("channel", before.version)?;
    if before.kind() != spec.kind {
        return Err(FieldError::new("immutable_field", "kind", "the kind never changes: create another channel").into());
    }
    if team_id.is_some_and(|team_id| team_id != before.team_id) {
        return Err(FieldError::new("immutable_field", "team_id", "the team never changes").into());
    }
    let after = channel::replace_channel(&mut tx, &app.secrets, &before, &spec, &edit).await?;
    tx.commit().await?;
    Ok(with_etag(&after))
}

/// Delete a channel that no rule has.
#[utoipa::path(delete, path = "/api/v1/notification-channels/{id}", tag = "notifications",
    params(("id" = i64, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 204), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn delete_channel(
    State(app): State<App>,
    Editor(caller): Editor,
    Trace(trace): Trace,
    Id(id): Id<i64>,
    if_match: IfMatch,
) -> Result<StatusCode, Error> {
    let edit = caller.edit_at(app.clock.now(), trace);
    let mut tx = EditTransaction::begin_of_team(&app, caller.team_id).await?;
    let before = channel::lock_channel(&mut tx, id, caller.team_id).await?.ok_or_else(Error::not_found)?;
    if_match.check_version("channel", before.version)?;
    if channel::delete_channel(&mut tx, &before, &edit).await? == ChannelDeletion::InUse {
        return Err(Error::conflict("channel_in_use", "a rule has this channel: change or delete the rule first"));
    }
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Send a test message now, and say whether the receiver accepted it; to AWS the Lambda `notifier` sends it within a minute.
#[utoipa::path(post, path = "/api/v1/notification-channels/{id}:test", tag = "notifications", params(("id" = i64, Path)),
    responses((status = 200, body = TestResultView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn test_channel(
    State(app): State<App>,
    Editor(caller): Editor,
    Trace(trace): Trace,
    extract::Verb(id, verb): extract::Verb<i64>,
    OptionalBody(EmptyBody {}): OptionalBody<EmptyBody>,
) -> Result<Json<TestResultView>, Error> {
    if verb != "test" {
        return Err(Error::not_found());
    }
    let edit = caller.edit_at(app.clock.now(), trace);
    let mut tx = EditTransaction::begin_of_team(&app, caller.team_id).await?;
    let found = channel::find_channel(&mut tx, id, caller.team_id).await?.ok_or_else(Error::not_found)?;
    // The team before its channel, in the order in which the deletion of a team locks them.
    if !take_channel_test(&mut tx, found.team_id, edit.now).await? {
        return Err(team_tested_too_often());
    }
    let channel = channel::lock_channel(&mut tx, id, caller.team_id).await?.ok_or_else(Error::not_found)?;
    if !channel::take_test(&mut tx, &channel, edit.now).await? {
        return Err(tested_too_often(&channel));
    }
    let subject = format!("notification-channel:{id}");
    let entry = Entry { verb: "test", subject, team_id: Some(channel.team_id), before: None, after: None };
    audit::record_entry(&mut tx, &edit, entry).await?;
    let message_id = match channel.kind() {
        ChannelKind::Aws => Some(message::create_test(&mut tx, &channel, edit.now).await?),
        ChannelKind::Webhook | ChannelKind::Slack | ChannelKind::Email => None,
    };
    tx.commit().await?;
    // The service itself holds no AWS client.
    if message_id.is_some() || db::is_dry_run() {
        return Ok(Json(TestResultView { delivered: false, error: None, message_id }));
    }
    let sent = app.courier()?.send_test(&channel, edit.now).await?;
    let delivered = sent.is_ok();
    let error = sent.map_or_else(Some, |acceptance| acceptance.refused_recipients());
    Ok(Json(TestResultView { delivered, error, message_id }))
}

/// A new channel has no tests yet, and an editor may create as many as it deletes.
fn team_tested_too_often() -> Error {
    let quota = TESTS_AT_ONCE;
    let detail = format!(
        "the team tests its channels {quota} times at once, and then once in {SECS_PER_TEST} seconds: wait for Retry-After \
         seconds, then repeat"
    );
    let policy = "team-channel-tests-per-hour";
    let limit = Limit { policy, quota, window_secs: Some(3_600), retry_secs: SECS_PER_TEST };
    Error::limited("rate_limited", detail, limit)
}

/// Else an editor could send any number of messages to anybody by the operator's mail server.
fn tested_too_often(channel: &Channel) -> Error {
    let quota = channel.max_per_hour();
    let detail = format!("the channel was tested {quota} times in the last hour, as often as it may send messages");
    let limit =
        Limit { policy: "channel-tests-per-hour", quota: quota.into(), window_secs: Some(3_600), retry_secs: 60 };
    Error::limited("rate_limited", detail, limit)
}
