//! Step 7 of 7: verification for operators: whether the ledger has every due time, its decision and its run.

use api_types::verify::{DifferenceView, UnjudgedView, VerifiedDayView, VerifiedDaysView, VerifyView};
use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Days, SecondsFormat, SubsecRound, TimeDelta, Utc};
use ledger::verify::daily::{VerifiedDay, list_verified_days};
use ledger::verify::{self, Difference, Findings, Span, Unfit, Unjudged};
use schedule::ZoneSet;
use serde::Deserialize;
use tokio::sync::Semaphore;
use utoipa::IntoParams;
use workflows::definition::field::{self, FieldError};

use crate::App;
use crate::api::request::auth::Auditor;
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::Params;
use crate::api::request::page;
use crate::api::request::view::{ViewFrom, to_view};

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

/// Days of a list if the request names none: five weeks.
const USUAL_DAYS: i64 = 35;
/// Days of a list at most; older verifications are removed with the runs.
const MOST_DAYS: i64 = 400;

/// Which days.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct VerifiedDaysParams {
    /// The last days to list, 1 to 400; absent = 35.
    days: Option<i64>,
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

/// List the daily verifications: what the job `verify` has found on each of the last days (UTC).
#[utoipa::path(get, path = "/api/v1/verify/days", tag = "operations", params(VerifiedDaysParams),
    responses((status = 200, body = VerifiedDaysView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn show_verified_days(
    State(app): State<App>,
    Auditor(_): Auditor,
    Params(params): Params<VerifiedDaysParams>,
) -> Result<Json<VerifiedDaysView>, Error> {
    let days = match params.days.unwrap_or(USUAL_DAYS) {
        days if (1..=MOST_DAYS).contains(&days) => days,
        _ => return Err(FieldError::invalid("days", format!("days must be from 1 to {MOST_DAYS}")).into()),
    };
    let since = (app.clock.now() - Days::new(days.unsigned_abs())).date_naive();
    let mut connection = app.pools.reads.acquire().await?;
    let found = list_verified_days(&mut connection, since, days).await?;
    Ok(Json(VerifiedDaysView { items: found.into_iter().map(VerifiedDayView::view_from).collect() }))
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
        unjudged_workflows: findings.unjudged_workflows.into_iter().map(UnjudgedView::view_from).collect(),
        undecided_workflows: findings.undecided_workflows,
        differences: findings.differences.into_iter().map(DifferenceView::view_from).collect(),
        compared_from: findings.compared_from,
        next_cursor: findings.next.map(page::encode_cursor),
    }
}

impl ViewFrom<VerifiedDay> for VerifiedDayView {
    fn view_from(found: VerifiedDay) -> Self {
        let VerifiedDay { day, due, decided, differences, unproven, started_on, finished_on } = found;
        Self { day, due, decided, differences, unproven, started_on, finished_on }
    }
}

impl ViewFrom<Unjudged> for UnjudgedView {
    fn view_from(Unjudged { workflow_id, revision }: Unjudged) -> Self {
        Self { workflow_id, revision }
    }
}

impl ViewFrom<Difference> for DifferenceView {
    fn view_from(difference: Difference) -> Self {
        let Difference { workflow_id, scheduled_time, kind, decision, run_id } = difference;
        Self {
            workflow_id,
            scheduled_time,
            kind: kind.name_before().to_owned(),
            kind_code: to_view(kind),
            decision: to_view(decision),
            run_id,
        }
    }
}
