//! Steps 1 and 7 of 7: the table of routes. The router, the OpenAPI description and the test of the auth matrix read it.

use std::collections::BTreeSet;

use access::rights::Scope;
use axum::routing::MethodRouter;
use axum::{Router, middleware};
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::SizeAbove;
use utoipa::openapi::security::SecurityRequirement;
use utoipa::{Modify, OpenApi};

use super::notifications::{channels, messages, notices, rules};
use super::openapi::{self, Key};
use super::operations::{
    allowed_hosts, audit, bulk, dead_letters, drift, events, freezes, health, instances, jobs, keys, me, outbox,
    sessions, signing, stats, team_export, team_limits, team_secrets, teams, upcoming, verify,
};
use super::request::conditions::Conditions;
use super::request::dry_run;
use super::request::etag::{self, Tagged};
use super::request::limits::{self, Load};
use super::request::streams;
use super::runs::{self, backfills, invoke, manual, occurrences};
use super::workflows::{self, previews, schedules, verbs, versions};
use crate::App;

/// Bytes of a list from which it is compressed, if the client accepts gzip.
const COMPRESSED_FROM: u16 = 1_024;

/// Which callers a route accepts. The handler enforces it by the type of its caller in `request/auth.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Every caller, without a key, too.
    Open,
    /// Every active key, and every person with a role.
    Caller,
    /// Every active key.
    Owner,
    /// Every active key with which a browser may sign in.
    KeyHolder,
    /// Keys with the scope `read`.
    Viewer,
    /// Keys with the scope `edit`.
    Editor,
    /// Keys with the scope `auditor`.
    Auditor,
    /// Keys with the scope `operate`.
    Operator,
    /// Keys with the scope `admin`.
    Admin,
    /// Keys with the scope `invoke`.
    Scheduler,
}

impl Access {
    /// The scope that a route requires; `None` = it requires none.
    #[must_use]
    pub fn scope(self) -> Option<Scope> {
        match self {
            Access::Open | Access::Caller | Access::Owner | Access::KeyHolder => None,
            Access::Viewer => Some(Scope::Read),
            Access::Editor => Some(Scope::Edit),
            Access::Auditor => Some(Scope::Auditor),
            Access::Operator => Some(Scope::Operate),
            Access::Admin => Some(Scope::Admin),
            Access::Scheduler => Some(Scope::Invoke),
        }
    }
}

/// One operation of the API.
pub struct Route {
    /// Which callers it accepts.
    pub access: Access,
    /// What a request does, by which it is counted.
    pub load: Load,
    /// Which preconditions a write evaluates.
    pub conditions: Conditions,
    /// The HTTP method, in lower case.
    pub method: &'static str,
    /// The path, with `{id}` and the verb.
    pub path: &'static str,
    /// The path of the function whose name and attribute describe the operation in OpenAPI.
    pub operation: &'static str,
    handler: &'static str,
    serve: fn() -> MethodRouter<App>,
}

/// The preconditions that a row names.
macro_rules! conditions_of {
    () => {
        Conditions::None
    };
    ($conditions:ident) => {
        Conditions::$conditions
    };
}

/// Defines [`ROUTES`] and [`Api`] from one list.
///
/// A row of `handlers` is a function that serves and describes one operation. In `verbs` one function serves several
/// operations of a path, because axum has no pattern `{id}:verb`; another function describes each.
///
/// `if` names the preconditions of a write. They are those of the function that serves it.
macro_rules! routes {
    (
        handlers { $($access:ident $load:ident $method:ident $path:literal $($handler:ident)::+ $(if $conditions:ident)?;)+ }
        verbs {
            $($verb_access:ident $verb_load:ident $verb_method:ident $verb_path:literal
              $($server:ident)::+ => $($verb:ident)::+ $(if $verb_conditions:ident)?;)+
        }
    ) => {
        /// All operations.
        pub static ROUTES: &[Route] = &[
            $(Route {
                access: Access::$access,
                load: Load::$load,
                conditions: conditions_of!($($conditions)?),
                method: stringify!($method),
                path: $path,
                operation: stringify!($($handler)::+),
                handler: stringify!($($handler)::+),
                serve: || axum::routing::$method($($handler)::+),
            },)+
            $(Route {
                access: Access::$verb_access,
                load: Load::$verb_load,
                conditions: conditions_of!($($verb_conditions)?),
                method: stringify!($verb_method),
                path: $verb_path,
                operation: stringify!($($verb)::+),
                handler: stringify!($($server)::+),
                serve: || axum::routing::$verb_method($($server)::+),
            },)+
        ];

        /// The OpenAPI description of all operations, stored in docs/openapi.json.
        #[derive(OpenApi)]
        #[openapi(
            info(title = "cronbox", description = "Workflows on a cron: the database is the only truth, EventBridge Scheduler the alarm clock."),
            paths($($($handler)::+,)+ $($($verb)::+),+),
            security(("key" = []), ("bearer" = [])),
            modifiers(&Key, &Scopes),
        )]
        pub struct Api;
    };
}

routes! {
    handlers {
        Caller    Read get    "/api/v1/me"                           me::show_me;
        Viewer    List get    "/api/v1/teams"                        teams::list_teams;
        Admin     Edit post   "/api/v1/teams"                        keys::create_team;
        Admin     Edit patch  "/api/v1/teams/{id}"                   teams::rename_team;
        Admin     Edit delete "/api/v1/teams/{id}"                   teams::delete_team;
        Admin     List get    "/api/v1/teams/{id}/export"            team_export::export_team;
        Viewer    Read get    "/api/v1/teams/{id}/limits"            team_limits::get_team_limits;
        Admin     Edit put    "/api/v1/teams/{id}/limits"            team_limits::put_team_limits if Version;
        Viewer    Read get    "/api/v1/teams/{id}/hosts"             allowed_hosts::get_allowed_hosts;
        Admin     Edit put    "/api/v1/teams/{id}/hosts"             allowed_hosts::put_allowed_hosts if Version;
        Viewer    Read get    "/api/v1/teams/{id}/secrets"           team_secrets::list_secrets;
        Admin     Edit put    "/api/v1/teams/{id}/secrets/{name}"    team_secrets::put_secret if Existence;
        Admin     Edit delete "/api/v1/teams/{id}/secrets/{name}"    team_secrets::delete_secret;
        Auditor   List get    "/api/v1/keys"                         keys::list_keys;
        Admin     Edit post   "/api/v1/keys"                         keys::create_key;
        Owner     Edit post   "/api/v1/keys/self:rotate"             keys::rotate_own_key;
        Admin     Edit post   "/api/v1/keys/{id}:revoke"             keys::revoke_key;
        Auditor   List get    "/api/v1/sessions"                     sessions::list_sessions;
        Admin     Edit post   "/api/v1/sessions/{id}:end"            sessions::end_session;
        KeyHolder Edit post   "/api/v1/sign-in-links"                sessions::create_sign_in_link;
        Viewer    List get    "/api/v1/workflows"                    workflows::list_workflows;
        Editor    Edit post   "/api/v1/workflows"                    workflows::create_workflow;
        Viewer    Read get    "/api/v1/workflows/{id}"               workflows::get_workflow;
        Editor    Edit patch  "/api/v1/workflows/{id}"               workflows::patch_workflow if Version;
        Admin     Edit delete "/api/v1/workflows/{id}"               workflows::delete_workflow if Version;
        Viewer    List get    "/api/v1/workflows/{id}/versions"      versions::list_workflow_versions;
        Editor    Edit post   "/api/v1/workflows/{id}/versions/{revision}:restore" versions::restore_version if Version;
        Viewer    Read post   "/api/v1/cron:explain"                 previews::explain_cron;
        Viewer    Read get    "/api/v1/timezones"                    previews::list_timezones;
        Viewer    List get    "/api/v1/schedules"                    schedules::list_schedules;
        Viewer    Read get    "/api/v1/schedules/{id}"               schedules::get_schedule;
        Editor    Edit put    "/api/v1/schedules/{id}"               schedules::put_schedule if VersionAndExistence;
        Editor    Edit patch  "/api/v1/schedules/{id}"               schedules::patch_schedule if Version;
        Editor    Edit delete "/api/v1/schedules/{id}"               schedules::delete_schedule if Version;
        Viewer    Read get    "/api/v1/schedules/{id}/next"          previews::list_next_times;
        Viewer    List get    "/api/v1/schedules/{id}/runs"          runs::list_schedule_runs;
        Viewer    List get    "/api/v1/schedules/{id}/occurrences"   occurrences::list_occurrences;
        Viewer    List get    "/api/v1/occurrences"                  occurrences::list_all_occurrences;
        Viewer    List get    "/api/v1/runs"                         runs::list_runs;
        Viewer    Read get    "/api/v1/runs/{id}"                    runs::get_run;
        Viewer    List get    "/api/v1/backfills"                    backfills::list_backfills;
        Viewer    Read get    "/api/v1/backfills/{id}"               backfills::get_backfill;
        Viewer    List get    "/api/v1/bulk"                         bulk::list_bulk_operations;
        Editor    Edit post   "/api/v1/bulk"                         bulk::create_bulk_operation;
        Viewer    Read get    "/api/v1/bulk/{id}"                    bulk::get_bulk_operation;
        Editor    Edit post   "/api/v1/bulk/{id}:cancel"             bulk::cancel_bulk_operation;
        Viewer    List get    "/api/v1/bulk/{id}/items"              bulk::list_bulk_items;
        Viewer    Stream get  "/api/v1/events"                       events::follow_events;
        Viewer    List get    "/api/v1/freezes"                      freezes::list_freezes;
        Editor    Edit post   "/api/v1/freezes"                      freezes::create_freeze;
        Viewer    Read get    "/api/v1/freezes/{id}"                 freezes::get_freeze;
        Editor    Edit post   "/api/v1/freezes/{id}:lift"            freezes::lift_freeze;
        Viewer    List get    "/api/v1/notification-channels"        channels::list_channels;
        Editor    Edit post   "/api/v1/notification-channels"        channels::create_channel;
        Viewer    Read get    "/api/v1/notification-channels/{id}"   channels::get_channel;
        Editor    Edit put    "/api/v1/notification-channels/{id}"   channels::put_channel if Version;
        Editor    Edit delete "/api/v1/notification-channels/{id}"   channels::delete_channel if Version;
        Editor    Edit post   "/api/v1/notification-channels/{id}:test" channels::test_channel;
        Viewer    List get    "/api/v1/notification-rules"           rules::list_rules;
        Editor    Edit post   "/api/v1/notification-rules"           rules::create_rule;
        Viewer    Read get    "/api/v1/notification-rules/{id}"      rules::get_rule;
        Editor    Edit put    "/api/v1/notification-rules/{id}"      rules::put_rule if Version;
        Editor    Edit delete "/api/v1/notification-rules/{id}"      rules::delete_rule if Version;
        Editor    Edit post   "/api/v1/notification-rules/{id}:snooze" rules::snooze_rule;
        Viewer    List get    "/api/v1/notifications"                notices::list_notifications;
        Viewer    Read get    "/api/v1/notifications/{id}"           notices::get_notification;
        Editor    Edit post   "/api/v1/notifications/{id}:acknowledge" notices::acknowledge_notification;
        Viewer    List get    "/api/v1/notification-messages"        messages::list_messages;
        Viewer    Read get    "/api/v1/notification-messages/{id}"   messages::get_message;
        Editor    Edit post   "/api/v1/notification-messages/{id}:retry" messages::retry_message;
        Scheduler Fire post   "/api/v1/cron/workflows/{id}:invoke"   invoke::invoke_workflow;
        Auditor   Read get    "/api/v1/jobs"                         jobs::list_jobs;
        Auditor   Read get    "/api/v1/instances"                    instances::list_instances;
        Auditor   List get    "/api/v1/outbox"                       outbox::list_outbox;
        Auditor   List get    "/api/v1/drift"                        drift::show_drift;
        Operator  Edit post   "/api/v1/drift:check"                  drift::check_drift;
        Viewer    List get    "/api/v1/dead-letters"                 dead_letters::list_dead_letters;
        Viewer    Read get    "/api/v1/dead-letters/{id}"            dead_letters::get_dead_letter;
        Viewer    List get    "/api/v1/stats"                        stats::show_stats;
        Viewer    List get    "/api/v1/upcoming"                     upcoming::show_upcoming;
        Auditor   List get    "/api/v1/verify"                       verify::verify_ledger;
        Auditor   List get    "/api/v1/verify/days"                  verify::show_verified_days;
        Viewer    List get    "/api/v1/audit"                        audit::list_audit;
        Viewer    List get    "/api/v1/audit:export"                 audit::export_audit;
        Auditor   List get    "/api/v1/audit:verify"                 audit::verify_audit;
        Open      Open get    "/healthz"                             health::show_health;
        Open      Open get    "/readyz"                              health::show_readiness;
        Open      Open get    "/metrics"                             health::show_metrics;
    }
    verbs {
        Admin     Edit post   "/api/v1/teams/{id}:rotate-signing-secret" signing::act_on_team    => openapi::rotate_signing_secret;
        Admin     Edit post   "/api/v1/teams/{id}:receiver-secret"   signing::act_on_team        => openapi::read_receiver_secret;
        Editor    Edit post   "/api/v1/workflows/{id}:archive"       verbs::change_state         => openapi::archive_workflow if Version;
        Editor    Edit post   "/api/v1/workflows/{id}:pause"         verbs::change_state         => openapi::pause_workflow if Version;
        Editor    Edit post   "/api/v1/workflows/{id}:resume"        verbs::change_state         => openapi::resume_workflow if Version;
        Editor    Edit post   "/api/v1/schedules/{id}:fire"          manual::act_on_schedule     => openapi::fire_schedule;
        Editor    Edit post   "/api/v1/schedules/{id}:backfill"      manual::act_on_schedule     => openapi::backfill_schedule;
        Editor    Edit post   "/api/v1/runs/{id}:cancel"             manual::act_on_run          => openapi::cancel_run;
        Editor    Edit post   "/api/v1/runs/{id}:retry"              manual::act_on_run          => openapi::retry_run;
        Editor    Edit post   "/api/v1/backfills/{id}:pause"         backfills::change_backfill  => openapi::pause_backfill;
        Editor    Edit post   "/api/v1/backfills/{id}:resume"        backfills::change_backfill  => openapi::resume_backfill;
        Editor    Edit post   "/api/v1/backfills/{id}:cancel"        backfills::change_backfill  => openapi::cancel_backfill;
        Operator  Edit post   "/api/v1/outbox/{id}:retry"            outbox::change_outbox_row   => openapi::retry_outbox_row;
        Operator  Edit post   "/api/v1/outbox/{id}:discard"          outbox::change_outbox_row   => openapi::discard_outbox_row;
        Operator  Edit post   "/api/v1/dead-letters/{id}:redrive"    dead_letters::act_on_dead_letter => openapi::redrive_dead_letter;
        Operator  Edit post   "/api/v1/dead-letters/{id}:discard"    dead_letters::act_on_dead_letter => openapi::discard_dead_letter;
    }
}

/// Registers the operations of [`ROUTES`] that `is_served` selects, each with the limits of its load.
pub(super) fn register_routes(app: &App, is_served: fn(&Route) -> bool) -> Router<App> {
    let mut served = BTreeSet::new();
    let mut router = Router::new();
    for route in ROUTES.iter().filter(|route| is_served(route)) {
        let pattern = route.pattern();
        // The verbs of a path share a handler and its limits. Two handlers for the same method and pattern panic here.
        if served.insert((route.method, pattern.clone(), route.handler)) {
            // Inside of the layer that identifies the caller: a client without a valid key learns nothing of parameters.
            let served = match route.load {
                Load::Edit => {
                    let evaluated = route.conditions;
                    (route.serve)().layer(middleware::from_fn(move |request, next| {
                        dry_run::write_or_dry_run(evaluated, request, next)
                    }))
                }
                Load::Open | Load::Fire | Load::Read | Load::List | Load::Stream => (route.serve)(),
            };
            let handler = match route.load.counted_work() {
                Some(work) => {
                    served.route_layer(middleware::from_fn_with_state((app.clone(), work), limits::count_request))
                }
                None if route.load == Load::Stream => {
                    served.route_layer(middleware::from_fn_with_state(app.clone(), streams::admit_stream))
                }
                None => served,
            };
            let tagged = match route.load {
                Load::Read => Some(Tagged::Object),
                Load::List => Some(Tagged::Page),
                Load::Open | Load::Fire | Load::Edit | Load::Stream => None,
            };
            let handler = match tagged.filter(|_| route.method == "get") {
                Some(tagged) => {
                    handler.layer(middleware::from_fn(move |request, next| etag::tag_answer(tagged, request, next)))
                }
                None => handler,
            };
            // Only lists are large; a layer costs each request that passes it, and other requests wait for its thread.
            let handler = match route.load {
                Load::List => handler.layer(
                    CompressionLayer::new()
                        .quality(CompressionLevel::Fastest)
                        .compress_when(SizeAbove::new(COMPRESSED_FROM)),
                ),
                Load::Open | Load::Fire | Load::Read | Load::Edit | Load::Stream => handler,
            };
            router = router.route(&pattern, handler);
        }
    }
    router
}

/// Names the scope of each operation in the description, as OpenAPI 3.1 names roles. A person has a token instead of a key;
/// only a key fires, and replaces itself.
struct Scopes;

impl Modify for Scopes {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        for route in ROUTES {
            let Some(item) = api.paths.paths.get_mut(route.path) else { continue };
            let operation = match route.method {
                "get" => &mut item.get,
                "post" => &mut item.post,
                "put" => &mut item.put,
                "patch" => &mut item.patch,
                "delete" => &mut item.delete,
                _ => continue,
            };
            let Some(operation) = operation else { continue };
            operation.security = match route.access {
                Access::Open => Some(Vec::new()),
                access => {
                    let schemes: &[&str] = match access {
                        Access::Scheduler | Access::Owner | Access::KeyHolder => &["key"],
                        _ => &["key", "bearer"],
                    };
                    let scope = access.scope().map(Scope::as_str);
                    Some(schemes.iter().map(|scheme| SecurityRequirement::new(*scheme, scope)).collect())
                }
            };
        }
    }
}

impl Route {
    /// Whether it is for operators only, so that `CRONBOX_ADMIN_ADDR` serves it.
    pub(super) fn is_administrative(&self) -> bool {
        self.path == "/metrics"
    }

    /// Whether load balancers and monitoring call it: both listeners serve it, each with places of its own.
    pub(super) fn is_probe(&self) -> bool {
        matches!(self.path, "/healthz" | "/readyz")
    }

    /// The path as axum reads it: `{target}` is `{id}` or `{id}:verb`; the extractors split it.
    pub(super) fn pattern(&self) -> String {
        let path =
            self.path.split_once("}:").map_or_else(|| self.path.to_owned(), |(before, _verb)| format!("{before}}}"));
        path.replace("{id}", "{target}")
    }
}
