//! Steps 1 and 7 of 7: what the description of the API has beside its handlers: the key, and the verbs.

pub(super) mod complete;
pub(super) mod older;

use utoipa::Modify;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};

use super::operations::signing;
use super::request::error::Problem;
use super::request::extract::WriteParams;
use super::request::repeat::RepeatParams;
use super::runs::{backfills, manual};
use super::workflows::verbs;

/// Adds the header with the key, and the header with a token.
pub(super) struct Key;

impl Modify for Key {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-API-Key")));
        let token = SecurityScheme::Http(Http::builder().scheme(HttpAuthScheme::Bearer).bearer_format("JWT").build());
        let components = api.components.get_or_insert_default();
        components.add_security_scheme("key", scheme);
        components.add_security_scheme("bearer", token);
    }
}

// One handler serves the three verbs, because the router has no `{id}:verb` patterns; each has its own description.

#[utoipa::path(post, path = "/api/v1/workflows/{id}:archive", tag = "workflows",
    description = "Archive a workflow permanently; its history is kept. Repeating it changes nothing.",
    params(("id" = i64, Path), ("If-Match" = Option<String>, Header), WriteParams),
    responses((status = 200, body = api_types::workflows::WorkflowView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of verbs::change_state")]
fn archive_workflow() {}

#[utoipa::path(post, path = "/api/v1/workflows/{id}:pause", tag = "workflows",
    description = "Pause a workflow: no time is due until it is resumed. The app applies it at once, EventBridge shortly after.",
    params(("id" = i64, Path), ("If-Match" = Option<String>, Header), WriteParams),
    request_body = Option<verbs::PauseBody>,
    responses((status = 200, body = api_types::workflows::WorkflowView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of verbs::change_state")]
fn pause_workflow() {}

#[utoipa::path(post, path = "/api/v1/workflows/{id}:resume", tag = "workflows",
    description = "Resume a workflow. Times during the pause do not run.",
    params(("id" = i64, Path), ("If-Match" = Option<String>, Header), WriteParams),
    responses((status = 200, body = api_types::workflows::WorkflowView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of verbs::change_state")]
fn resume_workflow() {}

#[utoipa::path(post, path = "/api/v1/outbox/{id}:retry", tag = "operations",
    description = "Publish the workflow of the row again, at once and with a new count of attempts.",
    params(("id" = i64, Path)),
    responses((status = 200, body = api_types::outbox::OutboxView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of outbox::change_outbox_row")]
fn retry_outbox_row() {}

#[utoipa::path(post, path = "/api/v1/outbox/{id}:discard", tag = "operations",
    description = "Discard a failed row: its edit is not published, and alarms do not count it any more.",
    params(("id" = i64, Path)),
    responses((status = 200, body = api_types::outbox::OutboxView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of outbox::change_outbox_row")]
fn discard_outbox_row() {}

#[utoipa::path(post, path = "/api/v1/dead-letters/{id}:redrive", tag = "operations",
    description = "Request that the publisher posts the fire of a message to the app, and deletes the message after the answer. The publisher does it within a minute; `state` and `result` say how it ended. A repeat changes nothing.",
    params(("id" = i64, Path)),
    responses((status = 202, body = api_types::dead_letters::DeadLetterView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of dead_letters::act_on_dead_letter")]
fn redrive_dead_letter() {}

#[utoipa::path(post, path = "/api/v1/dead-letters/{id}:discard", tag = "operations",
    description = "Request that the publisher deletes a message without posting its fire. A repeat changes nothing.",
    params(("id" = i64, Path)),
    responses((status = 202, body = api_types::dead_letters::DeadLetterView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of dead_letters::act_on_dead_letter")]
fn discard_dead_letter() {}

#[utoipa::path(post, path = "/api/v1/teams/{id}:rotate-signing-secret", tag = "keys",
    description = "Replace the signing secret of a team. During the overlap the previous one signs, too, so that receivers can be changed one by one.",
    params(("id" = i64, Path), RepeatParams), request_body = Option<signing::RotationBody>,
    responses((status = 200, body = api_types::secrets::RotationView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of signing::act_on_team")]
fn rotate_signing_secret() {}

#[utoipa::path(post, path = "/api/v1/teams/{id}:receiver-secret", tag = "keys",
    description = "Read the secret that signs requests to one receiver. 404 unless the team signs by receiver.",
    params(("id" = i64, Path)), request_body = signing::ReceiverBody,
    responses((status = 200, body = api_types::secrets::ReceiverSecretView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of signing::act_on_team")]
fn read_receiver_secret() {}

#[utoipa::path(post, path = "/api/v1/schedules/{id}:fire", tag = "schedules",
    description = "Run the workflow now, in addition to its schedule: the run has its own id and no occurrence. 409 `overlap` if the overlap policy refuses it.",
    params(("id" = i64, Path), RepeatParams), request_body = Option<manual::FireBody>,
    responses((status = 202, body = manual::ManualRunView, headers(("Location" = String))), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of manual::act_on_schedule")]
fn fire_schedule() {}

#[utoipa::path(post, path = "/api/v1/schedules/{id}:backfill", tag = "schedules",
    description = "Run past times, at most 10,000, in addition to the schedule. With `dry_run` the answer only counts and lists them.",
    params(("id" = i64, Path), RepeatParams), request_body = backfills::BackfillBody,
    responses((status = 200, description = "The times that it would run", body = api_types::backfills::DryRunView),
              (status = 202, body = api_types::backfills::BackfillView, headers(("Location" = String))), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of manual::act_on_schedule")]
fn backfill_schedule() {}

#[utoipa::path(post, path = "/api/v1/backfills/{id}:pause", tag = "schedules",
    description = "Pause a backfill: it creates no further runs. Existing runs continue.", params(("id" = Uuid, Path)),
    responses((status = 200, body = api_types::backfills::BackfillView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of backfills::change_backfill")]
fn pause_backfill() {}

#[utoipa::path(post, path = "/api/v1/backfills/{id}:resume", tag = "schedules",
    description = "Resume a paused backfill.", params(("id" = Uuid, Path)),
    responses((status = 200, body = api_types::backfills::BackfillView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of backfills::change_backfill")]
fn resume_backfill() {}

#[utoipa::path(post, path = "/api/v1/backfills/{id}:cancel", tag = "schedules",
    description = "Cancel a backfill permanently, with its runs that have not started. Running ones continue.",
    params(("id" = Uuid, Path)), responses((status = 200, body = api_types::backfills::BackfillView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of backfills::change_backfill")]
fn cancel_backfill() {}

#[utoipa::path(post, path = "/api/v1/runs/{id}:cancel", tag = "runs",
    description = "Cancel a run: at once if it has not started, otherwise at the next heartbeat of its executor. 409 `run_ended` if it has ended and was not cancelled.",
    params(("id" = Uuid, Path)), responses((status = 200, body = api_types::runs::RunDetailView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of manual::act_on_run")]
fn cancel_run() {}

#[utoipa::path(post, path = "/api/v1/runs/{id}:retry", tag = "runs",
    description = "Repeat a run that has ended: a new run with the same inputs and the same occurrence. 409 `run_live` if the run, or another run of its scheduled time, has not ended; 409 `inputs_other_origin` if the URL of the workflow has another origin since, and the inputs are secret.",
    params(("id" = Uuid, Path), RepeatParams), responses((status = 202, body = manual::ManualRunView, headers(("Location" = String))), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of manual::act_on_run")]
fn retry_run() {}
