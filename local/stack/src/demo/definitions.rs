//! The workflows of the demo, and their edits in the past.

use anyhow::{Result, anyhow};
use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use schedule::{Cron, Timezone};
use serde_json::{Value, json};
use workflows::audit::Edit;
use workflows::definition::body::WorkflowBody;
use workflows::definition::policies::CatchUp;
use workflows::definition::spec::Bounds;
use workflows::{PausedBy, State, Workflow, create_workflow, save_workflow};

use super::span::{DAYS, Span};

/// After this many failures in a row cronbox pauses the workflow that fails always.
pub(super) const FAILURES: i32 = 5;

/// A workflow of the table: team, name, cron, timezone, catch-up policy, failures per 1,000 runs, seconds of a run.
type Definition = (usize, &'static str, &'static str, &'static str, &'static str, u64, u64);

/// The teams: their names.
pub(super) const TEAMS: [&str; 3] = ["payments", "data", "platform"];
/// A person has paused this one.
pub(super) const PAUSED: &str = "partner-export";
/// cronbox has paused this one.
pub(super) const AUTO_PAUSED: &str = "legacy-feed-import";
/// EventBridge refuses the schedule of this one.
pub(super) const UNSYNCED: &str = "gdpr-erasure";
/// Another program has changed the schedule of this one.
pub(super) const DRIFTED: &str = "cache-warmup";
/// Its runs are often longer than the time between two.
pub(super) const OVERLAPPING: &str = "search-reindex";
/// Its cron was changed.
pub(super) const RESCHEDULED: &str = "morning-report";

#[rustfmt::skip]
const DEFINITIONS: [Definition; 40] = [
    (0, "payroll",             "0 6 25 * *",     "Europe/Berlin",       "run_all", 0,   95),
    (0, "ledger-close",        "30 0 * * *",     "Europe/Berlin",       "run_all", 5,   240),
    (0, "settlement-eu",       "0 2 * * 1-5",    "Europe/Paris",        "run_all", 10,  60),
    (0, "settlement-us",       "30 1 * * 1-5",   "America/New_York",    "run_all", 10,  60),
    (0, "settlement-au",       "30 2 * * 1-5",   "Australia/Sydney",    "run_all", 10,  60),
    (0, "card-retry",          "*/15 * * * *",   "UTC",                 "run_all", 25,  12),
    (0, "invoice-mails",       "0 8 * * *",      "Europe/Berlin",       "skip",    15,  35),
    (0, "dunning",             "0 9 * * 2,4",    "Europe/Berlin",       "skip",    20,  25),
    (0, "fraud-model-refresh", "10 */6 * * *",   "UTC",                 "skip",    30,  180),
    (0, "fx-rates",            "5 * * * *",      "Europe/London",       "skip",    8,   4),
    (0, "chargeback-import",   "20 4 * * *",     "America/Chicago",     "skip",    12,  45),
    (0, "partner-export",      "45 5 * * *",     "Europe/Madrid",       "skip",    10,  50),
    (0, "tax-report",          "0 7 1 * *",      "Europe/Rome",         "run_all", 0,   120),
    (0, "dormant-accounts",    "0 3 * * 0",      "UTC",                 "skip",    0,   70),
    (1, "warehouse-load",      "15 * * * *",     "UTC",                 "skip",    12,  150),
    (1, "morning-report",      "30 6 * * 1-5",   "Europe/Berlin",       "skip",    10,  30),
    (1, "search-reindex",      "0 */2 * * *",    "UTC",                 "skip",    10,  3_000),
    (1, "legacy-feed-import",  "40 * * * *",     "America/Los_Angeles", "none",    1_000, 20),
    (1, "ml-features",         "0 4 * * *",      "UTC",                 "skip",    25,  400),
    (1, "ml-training",         "0 22 * * 6",     "UTC",                 "skip",    60,  2_400),
    (1, "clickstream-compact", "35 */3 * * *",   "UTC",                 "skip",    10,  90),
    (1, "dashboards",          "0 7-19 * * 1-5", "Europe/Amsterdam",    "none",    5,   15),
    (1, "cohorts",             "0 5 * * 1",      "Asia/Tokyo",          "skip",    10,  80),
    (1, "ab-tests",            "30 8 * * *",     "America/Sao_Paulo",   "skip",    10,  25),
    (1, "catalog-sync",        "*/15 8-18 * * *","Asia/Kolkata",        "none",    15,  10),
    (1, "gdpr-erasure",        "0 1 * * *",      "Europe/Dublin",       "none",    0,   65),
    (1, "data-quality",        "50 6 * * *",     "Africa/Cairo",        "skip",    20,  55),
    (1, "quarter-figures",     "0 6 1 1,4,7,10 *", "Europe/Zurich",     "run_all", 0,   300),
    (2, "backup-check",        "0 3 * * *",      "UTC",                 "run_all", 5,   40),
    (2, "certificate-check",   "0 10 * * *",     "UTC",                 "skip",    4,   6),
    (2, "cache-warmup",        "55 5 * * *",     "America/Santiago",    "skip",    6,   18),
    (2, "log-rotation",        "10 0 * * *",     "UTC",                 "skip",    2,   9),
    (2, "cost-report",         "0 8 * * 1",      "Europe/Berlin",       "skip",    0,   22),
    (2, "image-scan",          "25 2 * * *",     "UTC",                 "skip",    18,  210),
    (2, "dns-audit",           "0 */4 * * *",    "UTC",                 "none",    6,   7),
    (2, "synthetic-login",     "*/30 * * * *",   "UTC",                 "none",    10,  3),
    (2, "orphaned-volumes",    "15 1 * * 3",     "UTC",                 "skip",    0,   33),
    (2, "oncall-handover",     "0 9 * * 1",      "Europe/Berlin",       "skip",    0,   2),
    (2, "key-rotation",        "0 12 1 * *",     "UTC",                 "run_all", 0,   14),
    (2, "staging-reset",       "0 20 * * 5",     "Africa/Casablanca",   "skip",    30,  130),
];

/// A workflow with its timings, the oldest first, and how its runs end.
pub(super) struct DemoWorkflow {
    pub(super) id: i64,
    pub(super) team_id: i64,
    pub(super) name: &'static str,
    pub(super) catch_up: CatchUp,
    pub(super) timings: Vec<Timing>,
    pub(super) failures_of_1000: u64,
    pub(super) seconds: u64,
}

/// A timing from its time on.
pub(super) struct Timing {
    pub(super) since: DateTime<Utc>,
    pub(super) revision: i64,
    pub(super) cron: Cron,
    pub(super) timezone: Timezone,
    pub(super) is_active: bool,
}

/// Creates the workflows 90 days ago, and makes their edits since.
pub(super) async fn create_workflows(tx: &mut PgConnection, teams: &[i64; 3], span: Span) -> Result<Vec<DemoWorkflow>> {
    let mut made = Vec::with_capacity(DEFINITIONS.len());
    for definition in DEFINITIONS {
        let (team, name, cron, timezone, _, failures_of_1000, seconds) = definition;
        let edit = edit_at("key:demo", span.begin);
        let body: WorkflowBody = serde_json::from_value(body_of(definition))?;
        let bounds = Bounds { now: span.begin, retention: TimeDelta::days(DAYS) };
        let spec = body.into_spec(None, &bounds).map_err(|fault| anyhow!("{name}: {}", fault.detail))?;
        let workflow = create_workflow(tx, teams[team], spec, None, &edit).await?;
        let catch_up = workflow.spec.policies.catch_up;
        let first = Timing {
            since: span.begin,
            revision: workflow.revision.0,
            cron: Cron::parse(cron)?,
            timezone: timezone.parse()?,
            is_active: true,
        };
        let (id, team_id) = (workflow.id.0, workflow.team_id);
        let mut timings = vec![first];
        timings.extend(edit_workflow(tx, workflow, span).await?);
        made.push(DemoWorkflow { id, team_id, name, catch_up, timings, failures_of_1000, seconds });
    }
    Ok(made)
}

fn body_of((team, name, cron, timezone, catch_up, _, seconds): Definition) -> Value {
    let mut body = json!({
        "name": name,
        "description": format!("{name} of the team {}, for the demo", TEAMS[team]),
        "labels": {"team": TEAMS[team], "tier": if catch_up == "run_all" { "1" } else { "2" }},
        "cron_schedule": cron,
        "timezone": timezone,
        "action": {"type": "log", "message": format!("{name} runs")},
        "catch_up_policy": catch_up,
        "timeout_secs": (seconds * 4).max(30),
    });
    if name == AUTO_PAUSED {
        body["pause_after_failures"] = json!(FAILURES);
    }
    body
}

/// Makes the edit of a workflow that has one; returns its timing since.
async fn edit_workflow(tx: &mut PgConnection, before: Workflow, span: Span) -> Result<Option<Timing>> {
    let mut next = before.clone();
    let (verb, actor, at) = match before.spec.name.as_str() {
        PAUSED => {
            next.state = State::Paused;
            next.pause_reason = Some("the partner moves its endpoint; ask ops@partner.example".to_owned());
            next.paused_by = Some(PausedBy::Client);
            ("pause", "key:demo", span.days_ago(6))
        }
        AUTO_PAUSED => {
            next.state = State::Paused;
            next.pause_reason = Some(format!("failures_in_a_row:{FAILURES}"));
            next.paused_by = Some(PausedBy::Cronbox);
            ("pause", "cronbox", span.days_ago(2))
        }
        RESCHEDULED => {
            next.spec.timing.cron = Some("0 7 * * 1-5".to_owned());
            ("update", "key:demo", span.days_ago(40))
        }
        _ => return Ok(None),
    };
    let (cron, timezone) = next.spec.timing.parsed_now().ok_or_else(|| anyhow!("the workflow has no schedule"))?;
    let is_active = next.state == State::Active;
    save_workflow(tx, &before, next, verb, &edit_at(actor, at)).await?;
    let revision = before.revision.0 + 1;
    Ok(Some(Timing { since: at, revision, cron, timezone, is_active }))
}

fn edit_at(actor: &str, at: DateTime<Utc>) -> Edit {
    Edit::without_request(actor, at)
}
