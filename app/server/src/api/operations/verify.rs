//! Step 7 of 7: verification for operators: whether the ledger has every due time, its decision and its run.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, SecondsFormat, SubsecRound, TimeDelta, Utc};
use ledger::occurrences::Decision;
use ledger::verify::{self, Difference, Findings, Kind, Span, Unfit, Unjudged};
use schedule::ZoneSet;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use workflows::definition::field::{self, FieldError};

use crate::App;
use crate::api::request::auth::Auditor;
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::Params;
use crate::api::request::page;

/// How many spans this process verifies at once, because each has 20,000 times in memory; more requests wait.
static PLACES: Semaphore = Semaphore::const_new(4);

/// The span to verify.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct VerifyParams {
    /// From this time on, at most as long ago as occurrences are kept (90 days).
    from: DateTime<Utc>,
    /// Up to this time, exclusive. Times later than 7 minutes ago may not be decided yet.
    to: DateTime<Utc>,
    /// `next_cursor` of the previous answer.
    cursor: Option<String>,
}

/// How schedule, decisions and runs compare.
#[derive(Serialize, ToSchema)]
pub struct VerifyView {
    from: DateTime<Utc>,
    to: DateTime<Utc>,
    /// Due times, in this part.
    due: u64,
    /// The same as `due`, which replaces it in the next version.
    #[schema(deprecated)]
    owed: u64,
    /// Decisions recorded, in this part.
    decided: u64,
    /// Decisions of schedules whose timezone or cron is unknown, so that their due times cannot be computed.
    unjudged: u64,
    /// Newest version of the IANA database here. Each time is computed by the version that was in force at it.
    #[schema(example = "2026f")]
    zone_data: String,
    /// Workflows that are not verified, because the due times of a schedule version cannot be computed.
    unjudged_workflows: Vec<UnjudgedView>,
    /// Workflows that are not verified, because the watchdog fails to process them: some of their times have no
    /// decision yet.
    undecided_workflows: Vec<i64>,
    /// Empty: the ledger is correct. Together with the workflows that are not verified at most 1,000 entries.
    differences: Vec<DifferenceView>,
    /// Times before this were pruned during the verification and are left out; usually `from`.
    compared_from: DateTime<Utc>,
    /// Send it as `cursor` for the rest; null: the complete span is compared.
    next_cursor: Option<String>,
}

/// A time on which schedule, decision and runs disagree.
#[derive(Serialize, ToSchema)]
pub struct DifferenceView {
    workflow_id: i64,
    scheduled_time: DateTime<Utc>,
    /// The kind, by the names of the previous version: `not_owed` instead of `not_due`. The next version has the value
    /// of `kind_code` here.
    #[schema(deprecated, example = "missing")]
    kind: &'static str,
    /// `missing`: the time was due and has no decision; `not_due`: it has a decision and was not due; `no_run`: the
    /// decision says that it ran, and its run does not exist; `two_runs`: it has two automatic runs;
    /// `run_without_decision`: no decision names its automatic run; `contradicted`: decision and run contradict each
    /// other; `ran_frozen`: it ran by the schedule although a freeze was in force.
    kind_code: Kind,
    decision: Option<Decision>,
    /// The run that disagrees, or that does not exist; null for `missing` and `not_due`.
    run_id: Option<Uuid>,
}

/// A schedule version whose due times cannot be computed: its timezone or cron is unknown.
#[derive(Serialize, ToSchema)]
pub struct UnjudgedView {
    workflow_id: i64,
    revision: i64,
}

/// Verify the ledger: recompute the due times of a span, and list where decisions or runs differ.
///
/// A long span of many workflows is answered in parts: follow `next_cursor` to its end.
#[utoipa::path(get, path = "/api/v1/verify", tag = "operations", params(VerifyParams),
    responses((status = 200, body = VerifyView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn verify_ledger(
    State(app): State<App>,
    Auditor(_): Auditor,
    Params(params): Params<VerifyParams>,
) -> Result<Json<VerifyView>, Error> {
    let span = Span { from: field::check_instant("from", params.from)?, to: field::check_instant("to", params.to)? };
    let cursor = page::parse_cursor(params.cursor.as_deref())?;
    // The semaphore is never closed.
    let _place = PLACES.acquire().await.map_err(anyhow::Error::from)?;
    let (kept, now) = (app.ledger_kept, app.clock.now());
    let mut connection = app.pools.reads.acquire().await?;
    let cursor = verify::find_start(&mut connection, span, cursor, kept, now).await?.map_err(refused)?;
    drop(connection);
    Ok(Json(view(span, verify::compare_span(&app.pools.reads, span, cursor).await?)))
}

fn refused(unfit: Unfit) -> FieldError {
    // Rounded into the allowed span, so that the time in the error is accepted.
    let second = TimeDelta::seconds(1);
    let rfc3339 = |time: DateTime<Utc>| time.to_rfc3339_opts(SecondsFormat::Secs, true);
    match unfit {
        Unfit::Empty => FieldError::invalid("to", "to must be later than from"),
        Unfit::NotSettled(latest) => FieldError::new(
            "span_not_settled",
            "to",
            format!("to must be {} or earlier: some later due times have no decision yet", rfc3339(latest)),
        ),
        Unfit::Pruned(earliest) => {
            let earliest = if earliest == earliest.trunc_subsecs(0) { earliest } else { earliest + second };
            let detail = format!("from must be {} or later: older occurrences may be removed", rfc3339(earliest));
            FieldError::new("span_too_old", "from", detail)
        }
        Unfit::ForeignCursor => page::foreign_cursor(),
    }
}

fn view(span: Span, findings: Findings) -> VerifyView {
    VerifyView {
        from: span.from,
        to: span.to,
        due: findings.due,
        owed: findings.due,
        decided: findings.decided,
        unjudged: findings.unjudged,
        zone_data: ZoneSet::installed().version().to_string(),
        unjudged_workflows: findings.unjudged_workflows.into_iter().map(UnjudgedView::from).collect(),
        undecided_workflows: findings.undecided_workflows,
        differences: findings.differences.into_iter().map(DifferenceView::from).collect(),
        compared_from: findings.compared_from,
        next_cursor: findings.next.map(page::encode_cursor),
    }
}

impl From<Unjudged> for UnjudgedView {
    fn from(Unjudged { workflow_id, revision }: Unjudged) -> Self {
        Self { workflow_id, revision }
    }
}

impl From<Difference> for DifferenceView {
    fn from(difference: Difference) -> Self {
        let Difference { workflow_id, scheduled_time, kind, decision, run_id } = difference;
        Self { workflow_id, scheduled_time, kind: kind.name_before(), kind_code: kind, decision, run_id }
    }
}
