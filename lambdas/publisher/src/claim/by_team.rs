//! Step 3 of 7: which edits a claim takes team by team, while more are due than a batch.
//!
//! By age only, a team that edits all of its workflows would delay the edits of all other teams until its own are
//! published. A choice locks and changes nothing: the claim takes what is still due, under the conditions that it has for
//! all workflows, and fills its batch by age. So a choice that is out of date, or that fails, costs only fairness.

use db::PgPool;

use super::low_water::Marks;

/// How many edits are chosen, and what makes a suspect, which is not chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    pub(super) edits: i64,
    /// So many claims in total make a suspect.
    pub(super) max_attempts: i32,
    /// So many claims without an answer make a suspect.
    pub(super) crashes: i32,
}

/// Chooses edits: the oldest one of each team, then the second one of each, and so on; none if only one team has due edits.
/// A choice that fails is logged, and the claim goes on by age.
pub(super) async fn choose_or_none(pool: &PgPool, demand: Demand, marks: Marks) -> Vec<i64> {
    choose_by_team(pool, demand, marks).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "edits not chosen team by team; this claim takes them by age");
        Vec::new()
    })
}

async fn choose_by_team(pool: &PgPool, demand: Demand, marks: Marks) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        r#"
        -- choose by team: what is due is read by an index whose first column is the team, from the mark on, so that the
        -- backlog of a team is read only as far as its share. Both columns are compared as a pair, and ordered by, because
        -- then no other index has this order, whatever the statistics say
        WITH clock AS MATERIALIZED (
            SELECT cronbox_now() AS now
        ), bounds AS MATERIALIZED (
            SELECT now, CASE WHEN $1 <= now THEN COALESCE($2::timestamptz, '-infinity') ELSE '-infinity' END AS mark
              FROM clock
        ), waiting AS MATERIALIZED (
            -- the teams with a due edit that no publisher has claimed and that is no suspect
            SELECT t.id AS team_id
              FROM teams AS t
             CROSS JOIN LATERAL (
                   SELECT
                     FROM publications AS p
                    WHERE p.team_id IS NOT NULL AND p.due_at IS NOT NULL AND NOT p.is_repair
                      AND (p.team_id, p.due_at) >= (t.id, (SELECT mark FROM bounds))
                      AND (p.team_id, p.due_at) <= (t.id, (SELECT now FROM bounds))
                      AND (p.lease_until IS NULL OR p.lease_until <= (SELECT now FROM bounds))
                      AND NOT (p.attempt_count >= $4 OR p.lease_until IS NOT NULL AND p.attempt_count >= $5)
                    ORDER BY p.team_id, p.due_at
                    LIMIT 1
             ) AS oldest
        ), share AS MATERIALIZED (
            -- of a single team nothing: its edits team by team are its edits by age
            SELECT CASE WHEN count(*) > 1 THEN ($3::bigint + count(*) - 1) / count(*) ELSE 0 END AS edits FROM waiting
        )
        SELECT edit.workflow_id AS "workflow_id!"
          FROM waiting AS w
         CROSS JOIN LATERAL (
               SELECT o.workflow_id, o.due_at, row_number() OVER (ORDER BY o.due_at) AS nth
                 FROM (SELECT p.workflow_id, p.due_at
                         FROM publications AS p
                        WHERE p.team_id IS NOT NULL AND p.due_at IS NOT NULL AND NOT p.is_repair
                          AND (p.team_id, p.due_at) >= (w.team_id, (SELECT mark FROM bounds))
                          AND (p.team_id, p.due_at) <= (w.team_id, (SELECT now FROM bounds))
                          AND (p.lease_until IS NULL OR p.lease_until <= (SELECT now FROM bounds))
                          AND NOT (p.attempt_count >= $4 OR p.lease_until IS NOT NULL AND p.attempt_count >= $5)
                        ORDER BY p.team_id, p.due_at
                        LIMIT (SELECT edits FROM share)) AS o
         ) AS edit
         ORDER BY edit.nth, edit.due_at
         LIMIT $3
        "#,
        marks.read_on,
        marks.edits,
        demand.edits,
        demand.max_attempts,
        demand.crashes,
    )
    .fetch_all(pool)
    .await
}
