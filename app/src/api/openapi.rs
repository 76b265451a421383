//! Steps 1 and 7 of 7: what the description of the API has beside its handlers: the key, and the verbs.

use utoipa::Modify;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, SecurityScheme};

use super::{backfills, by_hand, edit, outbox, runs, verbs, view};

/// Adds the header with the key.
pub(super) struct Key;

impl Modify for Key {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-API-Key")));
        api.components.get_or_insert_default().add_security_scheme("key", scheme);
    }
}

// One handler serves the three verbs, because the router has no `{id}:verb` patterns; each has its own description.

#[utoipa::path(post, path = "/api/v1/workflows/{id}:archive", tag = "workflows",
    description = "Archive a workflow for good; its history stays. A second time changes nothing.",
    params(("id" = i64, Path), ("If-Match" = Option<String>, Header), edit::WriteParams),
    responses((status = 200, body = view::WorkflowView), (status = "4XX", body = super::error::Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of verbs::act")]
fn archive() {}

#[utoipa::path(post, path = "/api/v1/workflows/{id}:pause", tag = "workflows",
    description = "Pause a workflow: it owes nothing until resumed. Effective at once, then in EventBridge.",
    params(("id" = i64, Path), ("If-Match" = Option<String>, Header), edit::WriteParams),
    request_body = Option<verbs::PauseBody>,
    responses((status = 200, body = view::WorkflowView), (status = "4XX", body = super::error::Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of verbs::act")]
fn pause() {}

#[utoipa::path(post, path = "/api/v1/workflows/{id}:resume", tag = "workflows",
    description = "Resume a workflow; what fell into the pause stays undone.",
    params(("id" = i64, Path), ("If-Match" = Option<String>, Header), edit::WriteParams),
    responses((status = 200, body = view::WorkflowView), (status = "4XX", body = super::error::Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of verbs::act")]
fn resume() {}

#[utoipa::path(post, path = "/api/v1/outbox/{id}:retry", tag = "operations",
    description = "Publish the row's workflow again, at once and from the first attempt.",
    params(("id" = i64, Path)),
    responses((status = 200, body = outbox::OutboxView), (status = "4XX", body = super::error::Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of outbox::act")]
fn retry() {}

#[utoipa::path(post, path = "/api/v1/outbox/{id}:discard", tag = "operations",
    description = "Let a failed row go: that edit is not published, and no alarm counts it any more.",
    params(("id" = i64, Path)),
    responses((status = 200, body = outbox::OutboxView), (status = "4XX", body = super::error::Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of outbox::act")]
fn discard() {}

#[utoipa::path(post, path = "/api/v1/schedules/{id}:fire", tag = "schedules",
    description = "Run the workflow now, beside its schedule: the run has an identity of its own and no occurrence. 409 `overlap` if its policy says no.",
    params(("id" = i64, Path)), request_body = Option<by_hand::FireBody>,
    responses((status = 202, body = by_hand::AskedView, headers(("Location" = String))), (status = "4XX", body = super::error::Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of by_hand::act_on_schedule")]
fn fire() {}

#[utoipa::path(post, path = "/api/v1/schedules/{id}:backfill", tag = "schedules",
    description = "Run times of the past, at most 10,000, a few at once and beside the live schedule. With `dry_run` only say which.",
    params(("id" = i64, Path)), request_body = backfills::BackfillBody,
    responses((status = 200, description = "What it would do", body = backfills::DryRunView),
              (status = 202, body = backfills::BackfillView, headers(("Location" = String))), (status = "4XX", body = super::error::Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of by_hand::act_on_schedule")]
fn backfill() {}

#[utoipa::path(post, path = "/api/v1/backfills/{id}:pause", tag = "schedules",
    description = "Make no further runs for now; those that were made go on.", params(("id" = Uuid, Path)),
    responses((status = 200, body = backfills::BackfillView), (status = "4XX", body = super::error::Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of backfills::act")]
fn pause_backfill() {}

#[utoipa::path(post, path = "/api/v1/backfills/{id}:resume", tag = "schedules",
    description = "Go on where it was paused.", params(("id" = Uuid, Path)),
    responses((status = 200, body = backfills::BackfillView), (status = "4XX", body = super::error::Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of backfills::act")]
fn resume_backfill() {}

#[utoipa::path(post, path = "/api/v1/backfills/{id}:cancel", tag = "schedules",
    description = "Give it up for good, with the runs that have not started; what runs goes on to its end.",
    params(("id" = Uuid, Path)), responses((status = 200, body = backfills::BackfillView), (status = "4XX", body = super::error::Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of backfills::act")]
fn cancel_backfill() {}

#[utoipa::path(post, path = "/api/v1/runs/{id}:cancel", tag = "runs",
    description = "Cancel a run: at once if it has not started, else at its executor's next heartbeat. 409 `run_ended` if it has ended otherwise.",
    params(("id" = Uuid, Path)), responses((status = 200, body = runs::RunView), (status = "4XX", body = super::error::Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of by_hand::act_on_run")]
fn cancel_run() {}

#[utoipa::path(post, path = "/api/v1/runs/{id}:retry", tag = "runs",
    description = "Run once more what has ended: a further run, with the same inputs, that names the same occurrence. 409 `run_live` while it, or another run of its time, has not ended.",
    params(("id" = Uuid, Path)), responses((status = 202, body = by_hand::AskedView, headers(("Location" = String))), (status = "4XX", body = super::error::Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of by_hand::act_on_run")]
fn retry_run() {}
