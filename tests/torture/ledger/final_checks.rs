//! Checks the ledger at the end of a history.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::Method;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use schedule::delivery::{GRACE, SETTLED_AFTER};
use serde_json::json;
use uuid::Uuid;

use super::instance::{Caller, Instance};
use super::oracle::{Observed, find_due_times};
use crate::database::Admin;

/// Before all due times of a history: a clock that steps back may reach times before its start.
const PROVEN_FROM: &str = "2026-03-02T09:00:00Z";

/// What is not at rest yet; a run of a paused workflow may wait.
pub(super) async fn unrest(admin: &Admin, now: DateTime<Utc>) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT format('run %s of %s is %s, tries %s, after %s', r.id, w.id, r.state, r.tries, r.run_after)
           FROM runs AS r JOIN workflows AS w ON w.id = r.workflow_id
          WHERE r.finished_on IS NULL AND w.state <> 'paused'
          UNION ALL
         SELECT format('workflow %s is to be watched since %s', workflow_id, watch_at) FROM ledger WHERE watch_at <= $1
          UNION ALL
         SELECT format('shard %s is decided through %s', s.shard, s.decided_through)
           FROM watchdog_shards AS s
          WHERE s.decided_through < $1
            AND EXISTS (SELECT FROM ledger l WHERE l.shard = s.shard AND l.watch_at IS NULL AND l.cron IS NOT NULL)
          UNION ALL
         SELECT format('backfill %s is %s', b.id, b.state)
           FROM backfills AS b JOIN workflows AS w ON w.id = b.workflow_id
          WHERE b.state = 'running' AND w.state = 'active'",
    )
    .bind(now - GRACE)
    .fetch_all(&mut *admin.connection().await)
    .await
    .unwrap()
}

/// Checks S6, S7, S11, S19, L5, and the policies.
pub(super) async fn ledger(admin: &Admin, observed: &Observed, now: DateTime<Utc>) -> Result<(), String> {
    if let Some(broken) = observed.broken.first() {
        return Err(format!("answers: {broken}"));
    }
    accepted(admin, observed).await?;
    effects(admin, observed).await?;
    let rows: BTreeSet<(i64, DateTime<Utc>)> =
        sqlx::query_as::<_, (i64, DateTime<Utc>)>("SELECT workflow_id, scheduled_time FROM occurrences")
            .fetch_all(&mut *admin.connection().await)
            .await
            .unwrap()
            .into_iter()
            .collect();
    let due_by_now = find_due_times(admin, now + TimeDelta::minutes(10)).await;
    if let Some((workflow, time)) = find_due_times(admin, now - GRACE).await.difference(&rows).next() {
        return Err(format!("L5: {workflow} was due at {time} and has no decision"));
    }
    // A fire may come a little early because of a clock that is ahead, and a later edit cannot remove it. And a
    // backfill may select times by the current cron.
    let early = "SELECT workflow_id, scheduled_time FROM occurrences
                  WHERE decided_on < scheduled_time OR run_id IN (SELECT id FROM runs WHERE trigger = 'backfill')";
    let early: Vec<(i64, DateTime<Utc>)> =
        sqlx::query_as(early).fetch_all(&mut *admin.connection().await).await.unwrap();
    if let Some((workflow, time)) = rows.difference(&due_by_now).find(|row| !early.contains(row)) {
        return Err(format!("S11: {workflow} was not due at {time} and has a decision"));
    }
    for (what, query) in NEVER {
        let found: Vec<String> = sqlx::query_scalar(query).fetch_all(&mut *admin.connection().await).await.unwrap();
        if !found.is_empty() {
            return Err(format!("{what}: {found:?}"));
        }
    }
    Ok(())
}

/// L5: the product's own proof must have checked all due times, and must find no difference.
pub(super) async fn verified(instance: &Instance, admin: &Admin, now: DateTime<Utc>) -> Result<(), String> {
    let to = now - SETTLED_AFTER;
    let span = format!("/verify?from={PROVEN_FROM}&to={}", to.to_rfc3339_opts(SecondsFormat::Millis, true));
    let (status, found) = instance.call(Caller::Operator, Method::GET, &span, None).await;
    let due = find_due_times(admin, to).await.len();
    if status == 200 && found["differences"] == json!([]) && found["due"] == json!(due) {
        return Ok(());
    }
    Err(format!("L5: {due} were due, and verify answers {status} {found}"))
}

/// S6: a 202 names a committed run of exactly this time, and each time has at most one.
async fn accepted(admin: &Admin, observed: &Observed) -> Result<(), String> {
    for ((workflow, time), runs) in &observed.accepted {
        let committed: Vec<Uuid> = sqlx::query_scalar(
            "SELECT id FROM runs WHERE workflow_id = $1 AND scheduled_time = $2 AND trigger IN ('schedule', 'catch_up')",
        )
        .bind(workflow)
        .bind(time)
        .fetch_all(&mut *admin.connection().await)
        .await
        .unwrap();
        if *runs != committed {
            return Err(format!("S6: {workflow} at {time}: accepted {runs:?}, committed {committed:?}"));
        }
    }
    Ok(())
}

/// S7: each effect has a claim, and each claim but the first has an earlier failed try or recorded takeover.
async fn effects(admin: &Admin, observed: &Observed) -> Result<(), String> {
    let runs: Vec<(Uuid, i32)> =
        sqlx::query_as("SELECT id, attempt FROM runs").fetch_all(&mut *admin.connection().await).await.unwrap();
    let attempts: BTreeMap<Uuid, i32> = runs.into_iter().collect();
    match observed.effects.iter().find(|(run, effects)| attempts.get(run).is_none_or(|attempts| attempts < effects)) {
        Some((run, effects)) => Err(format!("S7: run {run} had {effects} effects by {:?} claims", attempts.get(run))),
        None => Ok(()),
    }
}

/// Queries that must return no row.
const NEVER: [(&str, &str); 13] = [
    (
        "S7: claimed more often than failures and takeovers account for",
        "SELECT format('run %s: %s claims, %s tries, %s recoveries', r.id, r.attempt, r.tries, r.recoveries) FROM runs AS r
          WHERE r.attempt > r.tries + r.recoveries + r.handed_over + 1",
    ),
    (
        "S7: more tries than the workflow allows",
        "SELECT format('run %s: %s tries', r.id, r.tries) FROM runs AS r JOIN workflows AS w ON w.id = r.workflow_id
          WHERE r.tries > w.max_attempts OR r.recoveries > 3",
    ),
    (
        "S6: a time with several runs of its own accord",
        "SELECT format('%s at %s', workflow_id, scheduled_time) FROM runs
          WHERE trigger IN ('schedule', 'catch_up') GROUP BY workflow_id, scheduled_time HAVING COUNT(*) > 1",
    ),
    (
        "L5: decided as run, without a run, or the reverse",
        "SELECT format('%s at %s: %s, %s', workflow_id, scheduled_time, decision, run_id) FROM occurrences
          WHERE (decision IN ('fired', 'caught_up', 'backfilled')) AND run_id IS NULL
             OR decision IN ('missed', 'skipped_overlap', 'skipped_paused') AND run_id IS NOT NULL",
    ),
    (
        "L5: replaced before it had started, but it had, or it was not cancelled",
        "SELECT format('%s at %s: %s, %s claims', o.workflow_id, o.scheduled_time, r.state, r.attempt)
           FROM occurrences AS o JOIN runs AS r ON r.occurrence_id = o.id AND r.trigger = 'schedule'
          WHERE o.reason = 'predecessor_not_started' AND (r.state <> 'cancelled' OR NOT run_never_started(r.attempt, r.handed_over, r.cut_off))",
    ),
    (
        "L5: a late fire was skipped by the overlap policy, though the catch-up policy is run_all",
        "SELECT format('%s at %s', o.workflow_id, o.scheduled_time)
           FROM occurrences AS o JOIN workflows AS w ON w.id = o.workflow_id
          WHERE o.decision = 'skipped_overlap' AND w.catch_up_policy = 'run_all' AND o.lateness_s > 300",
    ),
    (
        "a run of an archived workflow that was not asked to stop",
        "SELECT format('run %s of %s is %s', r.id, w.id, r.state)
           FROM runs AS r JOIN workflows AS w ON w.id = r.workflow_id
          WHERE w.state = 'archived' AND r.finished_on IS NULL AND r.cancel_requested_on IS NULL",
    ),
    (
        "run late, though the policy is none",
        "SELECT format('%s at %s: %s, %s s late', o.workflow_id, o.scheduled_time, o.decision, o.lateness_s)
           FROM occurrences AS o JOIN workflows AS w ON w.id = o.workflow_id
          WHERE o.decision IN ('fired', 'caught_up') AND o.lateness_s > 300 AND w.catch_up_policy = 'none'",
    ),
    (
        "run after the catch-up window",
        "SELECT format('%s at %s: %s, %s s late', o.workflow_id, o.scheduled_time, o.decision, o.lateness_s)
           FROM occurrences AS o JOIN workflows AS w ON w.id = o.workflow_id
          WHERE o.decision IN ('fired', 'caught_up')
            AND o.lateness_s > GREATEST(w.catch_up_window_secs, CASE w.catch_up_policy WHEN 'none' THEN 300 ELSE 0 END)",
    ),
    (
        "a missed time within the window, though the policy is run_all and its version stood",
        "SELECT format('%s at %s: %s', o.workflow_id, o.scheduled_time, o.reason)
           FROM occurrences AS o JOIN workflows AS w ON w.id = o.workflow_id
          WHERE o.decision = 'missed' AND w.catch_up_policy = 'run_all' AND o.lateness_s < w.catch_up_window_secs
            AND o.revision = w.revision",
    ),
    (
        "S19: a run that failed or was abandoned, without exactly one notification",
        "SELECT format('run %s is %s', r.id, r.state) FROM runs_ended AS r
          WHERE r.state IN ('failed', 'timed_out', 'abandoned')
            AND 1 <> (SELECT count(*) FROM notifications AS n
                       WHERE n.run_id = r.id AND n.event = CASE r.state WHEN 'abandoned' THEN 'abandoned' ELSE 'run_failed' END)",
    ),
    (
        "S19: a notification of a run that did not end so",
        "SELECT format('%s of run %s, which is %s', n.event, r.id, r.state) FROM notifications AS n JOIN runs AS r ON r.id = n.run_id
          WHERE r.state NOT IN ('failed', 'timed_out') AND n.event IN ('run_failed', 'failures_in_a_row')
             OR r.state <> 'abandoned' AND n.event = 'abandoned'
             OR r.state <> 'succeeded' AND n.event = 'recovered'",
    ),
    (
        "S19: missed times without a notification",
        "SELECT format('%s missed %s times', o.workflow_id, count(*)) FROM occurrences AS o WHERE o.decision = 'missed'
          GROUP BY o.workflow_id
         HAVING count(*) > COALESCE((SELECT sum((n.facts ->> 'times')::int) FROM notifications AS n
                                      WHERE n.workflow_id = o.workflow_id AND n.event = 'missed'), 0)",
    ),
];

/// Counts of decisions and run states, for the coverage.
pub(super) async fn said(admin: &Admin) -> Vec<(String, i64)> {
    sqlx::query_as(
        "SELECT decision, COUNT(*) FROM occurrences GROUP BY decision UNION ALL
         SELECT 'run ' || state, COUNT(*) FROM runs GROUP BY state UNION ALL
         SELECT 'run of hand', COUNT(*) FROM runs WHERE trigger = 'manual' UNION ALL
         SELECT 'run of retry', COUNT(*) FROM runs WHERE trigger = 'retry' UNION ALL
         SELECT 'tried again', COUNT(*) FROM runs WHERE tries > 0 AND attempt > 1 UNION ALL
         SELECT 'taken over', COUNT(*) FROM runs WHERE recoveries > 0 UNION ALL
         SELECT 'handed over', COUNT(*) FROM runs WHERE handed_over > 0 UNION ALL
         SELECT 'cut off', COUNT(*) FROM runs WHERE cut_off > 0 UNION ALL
         SELECT 'late result', COUNT(*) FROM runs WHERE late_result IS NOT NULL UNION ALL
         SELECT 'started by its fire', COUNT(*) FROM torture_started UNION ALL
         SELECT 'notified of ' || event, COUNT(*) FROM notifications GROUP BY event UNION ALL
         SELECT 'ends in a batch', COUNT(*) FROM torture_batches",
    )
    .fetch_all(&mut *admin.connection().await)
    .await
    .unwrap()
}
