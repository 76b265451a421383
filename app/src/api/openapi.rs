//! Steps 1 and 7 of 7: the API's description, generated from the handlers and checked in as docs/openapi.json.

use utoipa::openapi::security::{ApiKey, ApiKeyValue, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::{drift, invoke, jobs, keys, ops, outbox, previews, runs, schedules, stats, verbs, verify, view, workflows};

/// Describes every route; a test holds it against the router and against docs/openapi.json.
#[derive(OpenApi)]
#[openapi(
    info(title = "cronbox", description = "Workflows on a cron: the database is the only truth, EventBridge Scheduler the alarm clock."),
    paths(
        workflows::create, workflows::list, workflows::get, workflows::patch, workflows::delete,
        archive, pause, resume,
        schedules::list, schedules::get, schedules::put, schedules::patch, schedules::delete,
        previews::explain, previews::next,
        runs::list, runs::get, runs::of_schedule, runs::occurrences,
        invoke::invoke,
        keys::create_team, keys::create, keys::list, keys::revoke,
        outbox::list, retry, discard,
        drift::show, drift::check,
        jobs::list,
        stats::show, verify::verify,
        ops::healthz, ops::readyz, ops::metrics,
    ),
    security(("key" = [])),
    modifiers(&Key),
)]
pub struct Api;

struct Key;

impl Modify for Key {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-API-Key")));
        api.components.get_or_insert_default().add_security_scheme("key", scheme);
    }
}

// One handler serves the three verbs, because the router has no `{id}:verb` patterns; each is described apart.

#[utoipa::path(post, path = "/api/v1/workflows/{id}:archive", tag = "workflows",
    description = "Archive a workflow for good; its history stays. A second time changes nothing.",
    params(("id" = i64, Path), ("If-Match" = Option<String>, Header), workflows::WriteParams),
    responses((status = 200, body = view::WorkflowView), (status = "4XX", body = super::error::Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of verbs::act")]
fn archive() {}

#[utoipa::path(post, path = "/api/v1/workflows/{id}:pause", tag = "workflows",
    description = "Pause a workflow: it owes nothing until resumed. Effective at once, then in EventBridge.",
    params(("id" = i64, Path), ("If-Match" = Option<String>, Header), workflows::WriteParams),
    request_body = Option<verbs::PauseBody>,
    responses((status = 200, body = view::WorkflowView), (status = "4XX", body = super::error::Problem, content_type = "application/problem+json")))]
#[expect(dead_code, reason = "only describes a verb of verbs::act")]
fn pause() {}

#[utoipa::path(post, path = "/api/v1/workflows/{id}:resume", tag = "workflows",
    description = "Resume a workflow; what fell into the pause stays undone.",
    params(("id" = i64, Path), ("If-Match" = Option<String>, Header), workflows::WriteParams),
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
