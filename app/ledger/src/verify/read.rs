//! Step 7 of 7: what verification reads, page by page: the workflows, their decisions and their runs.

use chrono::{DateTime, Utc};
use db::PgConnection;
use uuid::Uuid;
use workflows::id::first_run_id_of;

use super::Span;
use crate::occurrences::Decision;
use crate::runs::{RunState, Trigger};

/// How many workflows one statement reads; a page compares the first of them, up to a number of due times.
const PAGE: i64 = 500;
/// How many schedule versions one page reads, plus those of its last workflow.
const VERSIONS: i64 = 20_000;
/// How many versions a workflow has in a slice at most, apart from the first: others are in force at none of its minutes.
const MOST_CHANGES: i64 = 1_440;

pub(super) struct Workflow {
    pub(super) id: i64,
    pub(super) team_id: i64,
    pub(super) ledger_since: Option<DateTime<Utc>>,
    /// The instant up to which its times are decided; `None`: the latest that can be verified.
    pub(super) decided_through: Option<DateTime<Utc>>,
    /// Whether a pause is over that the watchdog cannot end, so that its versions do not show what has been due since.
    pub(super) has_unended_pause: bool,
    /// How many versions began in the slice, as far as a page counts them.
    changes: i64,
}

/// A decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided {
    pub(super) workflow_id: i64,
    pub(super) scheduled_time: DateTime<Utc>,
    pub(super) decision: Decision,
    pub(super) run_id: Option<Uuid>,
    pub(super) decided_on: DateTime<Utc>,
    pub(super) is_early: bool,
}

/// A run of a time. Retries, which no decision names, are left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) workflow_id: i64,
    pub(super) scheduled_time: DateTime<Utc>,
    pub(super) id: Uuid,
    pub(super) trigger: Trigger,
    pub(super) state: RunState,
    pub(super) never_started: bool,
}

/// Reads the next workflows, as many as have the versions of one page in the slice; at least one, if there is one.
pub(super) async fn read_workflows(tx: &mut PgConnection, from: i64, slice: Span) -> sqlx::Result<Vec<Workflow>> {
    let mut workflows = sqlx::query_as!(
        Workflow,
        r#"
        -- a page of workflows, whatever their state: an archived workflow had due times, too
        SELECT w.id AS "id!", w.team_id AS "team_id!", w.ledger_since,
               CASE WHEN f.workflow_id IS NOT NULL THEN
                    ledger_decided_through(l.cursor, l.watch_at, s.decided_through)
               END AS "decided_through?",
               COALESCE(f.workflow_id IS NOT NULL AND w.pause_until < $4, FALSE) AS "has_unended_pause!",
               (SELECT count(*)
                  FROM (SELECT
                          FROM schedule_versions v
                         WHERE v.workflow_id = w.id AND v.valid_from > $3 AND v.valid_from < $4
                         LIMIT $5) AS later) AS "changes!"
          FROM workflows w
          LEFT JOIN ledger l ON l.workflow_id = w.id
          LEFT JOIN watchdog_shards s ON s.shard = l.shard
          LEFT JOIN job_failures f ON f.job = 'watchdog' AND f.workflow_id = w.id
         WHERE w.id >= $1
         ORDER BY w.id
         LIMIT $2
        "#,
        from,
        PAGE,
        slice.from,
        slice.to,
        MOST_CHANGES,
    )
    .fetch_all(tx)
    .await?;
    let fitting = count_fitting(workflows.iter().map(|workflow| 1 + workflow.changes));
    workflows.truncate(fitting);
    Ok(workflows)
}

/// Returns how many of the workflows a page compares, by their numbers of versions.
fn count_fitting(versions: impl Iterator<Item = i64>) -> usize {
    let mut before = 0;
    let has_room = |of_workflow: &i64| {
        let has_room = before < VERSIONS;
        before += of_workflow;
        has_room
    };
    versions.take_while(has_room).count()
}

/// The workflows of a page as spans of ids without a gap: an index is searched once for each span, not for each workflow.
pub(super) struct Ids {
    firsts: Vec<i64>,
    lasts: Vec<i64>,
}

impl Ids {
    /// The spans of these ids, which ascend.
    pub(super) fn of_ascending(ids: impl IntoIterator<Item = i64>) -> Self {
        let mut spans = Self { firsts: Vec::new(), lasts: Vec::new() };
        for id in ids {
            match spans.lasts.last_mut() {
                Some(last) if *last + 1 == id => *last = id,
                _ => {
                    spans.firsts.push(id);
                    spans.lasts.push(id);
                }
            }
        }
        spans
    }
}

pub(super) async fn read_decisions(tx: &mut PgConnection, ids: &Ids, slice: Span) -> sqlx::Result<Vec<Decided>> {
    sqlx::query_as!(
        Decided,
        r#"
        -- the decisions of a slice, of a page of workflows. OFFSET 0, because Postgres would read all decisions of the
        -- slice once, instead of those of each span
        SELECT o.workflow_id, o.scheduled_time, o.decision AS "decision: Decision", o.run_id, o.decided_on,
               o.created_on < o.scheduled_time AS "is_early!"
          FROM unnest($1::bigint[], $2::bigint[]) AS ids (first_id, last_id)
         CROSS JOIN LATERAL (SELECT * FROM occurrences
                              WHERE workflow_id BETWEEN ids.first_id AND ids.last_id
                                AND scheduled_time >= $3 AND scheduled_time < $4
                             OFFSET 0) AS o
        "#,
        &ids.firsts,
        &ids.lasts,
        slice.from,
        slice.to,
    )
    .fetch_all(tx)
    .await
}

/// `OFFSET 0` as in [`read_decisions`].
pub(super) async fn read_runs(tx: &mut PgConnection, ids: &Ids, slice: Span) -> sqlx::Result<Vec<Run>> {
    sqlx::query_as!(
        Run,
        r#"
        -- the runs of a slice's times, of a page of workflows; a person may have repeated a run any number of times. No
        -- run is made before its time by more than the clock skew, so Postgres plans no partition of earlier days
        SELECT r.workflow_id AS "workflow_id!", r.scheduled_time AS "scheduled_time!", r.id AS "id!",
               r.trigger AS "trigger!: Trigger", r.state AS "state!: RunState",
               run_never_started(r.attempt, r.handed_over, r.cut_off) AS "never_started!"
          FROM unnest($1::bigint[], $2::bigint[]) AS ids (first_id, last_id)
         CROSS JOIN LATERAL (SELECT * FROM runs
                              WHERE workflow_id BETWEEN ids.first_id AND ids.last_id
                                AND scheduled_time >= $3 AND scheduled_time < $4 AND trigger <> 'retry' AND id >= $5
                             OFFSET 0) AS r
         ORDER BY r.id
        "#,
        &ids.firsts,
        &ids.lasts,
        slice.from,
        slice.to,
        first_run_id_of(slice.from),
    )
    .fetch_all(tx)
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_ids_are_one_span() {
        let Ids { firsts, lasts } = Ids::of_ascending([3, 4, 5, 9, 11, 12]);
        assert_eq!((firsts, lasts), (vec![3, 9, 11], vec![5, 9, 12]));
        assert!(Ids::of_ascending([]).firsts.is_empty());
    }

    #[test]
    fn pages_end_after_enough_versions() {
        assert_eq!(count_fitting([1, 1, 1].into_iter()), 3);
        assert_eq!(count_fitting([VERSIONS - 1, MOST_CHANGES, 1].into_iter()), 2, "the last one may exceed it");
        assert_eq!(count_fitting([VERSIONS, 1].into_iter()), 1, "a page has at least one workflow");
    }
}
