//! Checks the proof itself: it must find a fault in the rows of a good history.

use axum::http::Method;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use uuid::Uuid;

use super::history::START;
use super::instance::{Caller, Instance};
use crate::database::Admin;
use crate::random::Dice;

/// A fault in an occurrence ($1) and its run ($2), and the kind of difference that the proof must report.
const FAULTS: [(&str, &str); 4] = [
    ("DELETE FROM runs WHERE occurrence_id = $1 AND id = $2", "no_run"),
    ("DELETE FROM occurrences WHERE id = $1 AND run_id = $2", "run_without_decision"),
    ("UPDATE occurrences SET decision = 'missed', run_id = NULL WHERE id = $1 AND run_id = $2", "contradicted"),
    ("UPDATE occurrences SET decision = 'abandoned' WHERE id = $1 AND run_id = $2", "contradicted"),
];

/// A second automatic run of an occurrence; the database must refuse it. (Two that have not ended are refused, too, but
/// here all runs have ended.)
const SECOND_RUN: &str = "UPDATE occurrences SET run_id = gen_random_uuid() WHERE id = $1 AND run_id = $2";

/// Breaks one time that ran, at the end of a history, and checks that the product's proof finds it.
pub(super) async fn found(instance: &Instance, admin: &Admin, dice: &Dice, now: DateTime<Utc>) -> Result<(), String> {
    let to = now - TimeDelta::minutes(10);
    let ran = "SELECT o.id, o.run_id FROM occurrences o JOIN runs r ON r.id = o.run_id
                WHERE o.decision IN ('fired', 'caught_up') AND o.scheduled_time >= $1::timestamptz AND o.scheduled_time < $2
                ORDER BY o.workflow_id, o.scheduled_time";
    let start: DateTime<Utc> = START.parse().unwrap();
    let ran: Vec<(Uuid, Uuid)> =
        sqlx::query_as(ran).bind(start).bind(to).fetch_all(&mut *admin.connection().await).await.unwrap();
    let (Some((occurrence, run)), Some((fault, kind))) = (dice.pick(&ran), dice.pick(&FAULTS)) else { return Ok(()) };
    if sqlx::query(SECOND_RUN).bind(occurrence).bind(run).execute(&mut *admin.connection().await).await.is_ok() {
        return Err(format!("a second automatic run of occurrence {occurrence} was accepted"));
    }
    sqlx::query(*fault).bind(occurrence).bind(run).execute(&mut *admin.connection().await).await.unwrap();
    let span = format!("/verify?from={START}&to={}", to.to_rfc3339_opts(SecondsFormat::Millis, true));
    let (status, said) = instance.call(Caller::Operator, Method::GET, &span, None).await;
    let differences = said["differences"].as_array().cloned().unwrap_or_default();
    if status == 200 && differences.iter().any(|difference| difference["kind"] == *kind) {
        return Ok(());
    }
    Err(format!("{fault}: verify answers {status} {said}, and no {kind}"))
}
