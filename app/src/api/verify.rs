//! Step 7 of 7: the proof, for operators: whether the ledger holds what was owed, and nothing else.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::auth::Admin;
use super::error::{Error, Problem};
use super::extract::Params;
use super::page;
use crate::App;
use crate::field::{self, FieldError};
use crate::occurrences::Decision;
use crate::verify::{self, Difference, Findings, Kind, Span, Unfit};

/// What is to be verified.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct VerifyParams {
    /// From this time on, at most as long ago as occurrences are kept (90 days).
    from: DateTime<Utc>,
    /// To just before this time; what is later than five minutes ago may still be on its way.
    to: DateTime<Utc>,
    /// `next_cursor` of the answer before.
    cursor: Option<String>,
}

/// How the ledger compares with what was owed.
#[derive(Serialize, ToSchema)]
pub struct VerifyView {
    from: DateTime<Utc>,
    to: DateTime<Utc>,
    /// Times owed, in this part.
    owed: u64,
    /// Decisions recorded, in this part.
    decided: u64,
    /// Decisions of schedules whose timezone or cron is not known any more: nobody can judge them.
    unjudged: u64,
    /// Empty: the ledger is right.
    differences: Vec<DifferenceView>,
    /// Send it as `cursor` for the rest; null: the whole span is compared.
    next_cursor: Option<String>,
}

/// A time on which ledger and schedule disagree.
#[derive(Serialize, ToSchema)]
pub struct DifferenceView {
    workflow_id: i64,
    scheduled_time: DateTime<Utc>,
    /// `missing`: it was owed and nothing is recorded; `not_owed`: it is recorded and nobody owed it.
    kind: Kind,
    decision: Option<Decision>,
}

/// Verify the ledger: recompute what was owed over a span, and say where the record differs.
///
/// A long span of many workflows is answered in parts: follow `next_cursor` to its end.
#[utoipa::path(get, path = "/api/v1/verify", tag = "operations", params(VerifyParams),
    responses((status = 200, body = VerifyView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn verify(
    State(app): State<App>,
    Admin(_): Admin,
    Params(params): Params<VerifyParams>,
) -> Result<Json<VerifyView>, Error> {
    let span = Span { from: field::instant("from", params.from)?, to: field::instant("to", params.to)? };
    let cursor = page::cursor(params.cursor.as_deref())?;
    let mut connection = app.pool.acquire().await?;
    verify::fit(&mut connection, span, app.config.ledger_kept(), app.clock.now()).await?.map_err(refused)?;
    drop(connection);
    Ok(Json(view(span, verify::compare(&app.pool, span, cursor).await?)))
}

fn refused(unfit: Unfit) -> FieldError {
    let told = |time: DateTime<Utc>| time.to_rfc3339_opts(SecondsFormat::Secs, true);
    match unfit {
        Unfit::Empty => FieldError::invalid("to", "to must be later than from"),
        Unfit::NotSettled(latest) => FieldError::new(
            "span_not_settled",
            "to",
            format!("what is owed up to then is not all decided yet: to may be at most {}", told(latest)),
        ),
        Unfit::Pruned(earliest) => FieldError::new(
            "span_too_old",
            "from",
            format!("the ledger is kept for so long only: from must be at least {}", told(earliest)),
        ),
    }
}

fn view(span: Span, findings: Findings) -> VerifyView {
    VerifyView {
        from: span.from,
        to: span.to,
        owed: findings.owed,
        decided: findings.decided,
        unjudged: findings.unjudged,
        differences: findings.differences.into_iter().map(DifferenceView::from).collect(),
        next_cursor: findings.next.map(page::encode),
    }
}

impl From<Difference> for DifferenceView {
    fn from(difference: Difference) -> Self {
        let Difference { workflow_id, scheduled_time, kind, decision } = difference;
        Self { workflow_id, scheduled_time, kind, decision }
    }
}
