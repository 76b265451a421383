//! Steps 3 and 4 of 7: which publisher sweeps.
//!
//! At most one sweep is open (a unique index), and at most one publisher processes it (a lease, taken by a guarded
//! UPDATE). Each page is written together with the position in the list, so that any publisher can continue there. If the
//! transaction fails, the page is listed again.

use db::{PgConnection, PgPool};
use sqlx::types::Json;

use crate::claim::deployment::{Generation, Rollout};
use crate::scheduler::lease::LEASE;
use crate::sweep::findings::Findings;

/// How many schedules without a difference are read in full in each sweep.
pub(crate) const SAMPLE: i64 = 100;

/// A sweep that this publisher has until its lease expires.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) id: i64,
    pub(crate) force: bool,
    pub(crate) stage: Stage,
    pub(crate) next_token: Option<String>,
    /// Up to this workflow it has searched for missing schedules.
    pub(crate) missing_after: i64,
    pub(crate) sample_every: i64,
    /// The generation of this publisher.
    pub(crate) generation: Generation,
    pub(crate) rollout: Rollout,
    pub(crate) findings: Findings,
}

/// The progress of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Listing,
    /// The list is complete, so missing schedules can be found.
    Listed,
}

/// Requests a sweep; if one is open, it serves the request.
pub(crate) async fn request_sweep(pool: &PgPool, requested_by: &str) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- request a sweep
        INSERT INTO sweeps (requested_by, requested_on)
        VALUES ($1, cronbox_now())
        ON CONFLICT DO NOTHING
        "#,
        requested_by,
    )
    .execute(pool)
    .await
    .map(drop)
}

/// Requests a sweep if the last one is 15 minutes old, or began before the generation was raised.
pub(crate) async fn request_if_time(pool: &PgPool) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- request if time: if two publishers find that a sweep is due, only one row is inserted
        INSERT INTO sweeps (requested_by, requested_on)
        SELECT 'publisher', cronbox_now()
         WHERE NOT EXISTS (
               SELECT FROM sweeps
                WHERE finished_on IS NULL
                   OR (started_on > cronbox_now() - INTERVAL '15 minutes'
                       AND NOT EXISTS (SELECT FROM config_generation WHERE raised_on > started_on))
         )
        ON CONFLICT DO NOTHING
        "#
    )
    .execute(pool)
    .await
    .map(drop)
}

/// Takes the open sweep; `None` if there is none, or if another publisher has its lease.
pub(crate) async fn take_turn(
    pool: &PgPool,
    owner: &str,
    sample: i64,
    generation: Generation,
    rollout: Rollout,
) -> sqlx::Result<Option<Turn>> {
    let taken = sqlx::query!(
        r#"
        -- take: a publisher that waited for the row's lock checks the lease again, so only one publisher gets it. How many
        -- schedules there are is what the last sweep listed; before the first one, the highest id is no less
        UPDATE sweeps
           SET locked_by = $1,
               locked_until = cronbox_now() + make_interval(secs => $2),
               started_on = COALESCE(started_on, cronbox_now()),
               sample_every = CASE WHEN started_on IS NULL
                                   THEN COALESCE((SELECT (last.report ->> 'listed')::bigint
                                                    FROM sweeps AS last
                                                   WHERE last.finished_on IS NOT NULL
                                                   ORDER BY last.id DESC
                                                   LIMIT 1),
                                                 (SELECT MAX(workflow_id) FROM publications),
                                                 0) / $3 + 1
                                   ELSE sample_every END
         WHERE finished_on IS NULL
           AND (locked_until IS NULL OR locked_until <= cronbox_now())
        RETURNING id, force, next_token, missing_after, sample_every, listed_on IS NOT NULL AS "is_listed!",
                  report AS "report: Json<Findings>",
                  EXISTS (SELECT FROM sightings AS older WHERE older.sweep_id = sweeps.id) AS "has_older_list!"
        "#,
        owner,
        LEASE.as_secs_f64(),
        sample,
    )
    .fetch_optional(pool)
    .await?;
    Ok(taken.map(|row| {
        let turn = Turn {
            id: row.id,
            force: row.force,
            stage: if row.is_listed { Stage::Listed } else { Stage::Listing },
            next_token: row.next_token,
            missing_after: row.missing_after,
            sample_every: row.sample_every,
            generation,
            rollout,
            findings: row.report.0,
        };
        if row.has_older_list { turn.begin_again() } else { turn }
    }))
}

impl Turn {
    /// Lists again: a publisher of the version before has written what it listed to another table, so all of it would be
    /// missing.
    fn begin_again(mut self) -> Self {
        self.findings.restart_list();
        Turn { stage: Stage::Listing, next_token: None, missing_after: 0, ..self }
    }
}

/// Removes what the version before has listed in this sweep, in the transaction of the first page that is listed again.
pub(crate) async fn forget_older_list(tx: &mut PgConnection, turn: &Turn) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- forget the older list; the next version drops the table
        DELETE FROM sightings WHERE sweep_id = $1
        "#,
        turn.id,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Locks a sweep's row, if this publisher still has it; the first statement of each transaction, as a fence.
///
/// Returns a copy of the turn for the transaction to change. It replaces the turn only after the commit, so that a turn never
/// says more than the database. Force may have been requested since the sweep was taken, so it is read again each time.
/// `None` = another publisher has taken the sweep, a newer configuration has published, or the database waits for
/// acceptance: nothing may be written.
pub(crate) async fn lock_turn(tx: &mut PgConnection, turn: &Turn, owner: &str) -> sqlx::Result<Option<Turn>> {
    let force = sqlx::query_scalar!(
        r#"
        -- lock turn: by owner, so that a former owner records no page; neither does a publisher of an older generation,
        -- nor one whose database waits for acceptance by now
        SELECT force
          FROM sweeps
         WHERE id = $1
           AND locked_by = $2
           AND finished_on IS NULL
           AND NOT EXISTS (SELECT FROM config_generation WHERE (generation, template) > ($3, $4))
           AND cronbox_hold() IS NULL
           FOR UPDATE
        "#,
        turn.id,
        owner,
        turn.generation.number,
        turn.generation.template,
    )
    .fetch_optional(tx)
    .await?;
    Ok(force.map(|force| Turn { force, ..turn.clone() }))
}

/// Writes the progress of the sweep, and extends its lease.
pub(crate) async fn advance_turn(tx: &mut PgConnection, turn: &Turn) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- advance: in the transaction of what was found, so that a page counts once
        UPDATE sweeps
           SET locked_until = cronbox_now() + make_interval(secs => $2),
               next_token = $3,
               listed_on = CASE WHEN $4 THEN COALESCE(listed_on, cronbox_now()) END,
               report = $5,
               orphans_waiting = $6,
               orphans_refused = $7,
               changes_refused = $8,
               missing_after = $9
         WHERE id = $1
        "#,
        turn.id,
        LEASE.as_secs_f64(),
        turn.next_token.as_deref(),
        turn.stage == Stage::Listed,
        Json(&turn.findings) as _,
        column(turn.findings.orphans_waiting),
        column(turn.findings.orphans_refused),
        column(turn.findings.changes_refused),
        turn.missing_after,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// A count as a value of the columns.
fn column(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Records why EventBridge refused to continue the list, and where it continues.
pub(crate) async fn record_refusal(pool: &PgPool, turn: &Turn, owner: &str) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- record the refusal
        UPDATE sweeps
           SET next_token = $3, report = $4
         WHERE id = $1
           AND locked_by = $2
        "#,
        turn.id,
        owner,
        turn.next_token.as_deref(),
        Json(&turn.findings) as _,
    )
    .execute(pool)
    .await
    .map(drop)
}

/// Releases a sweep that is not finished, so that any publisher may continue it at once.
///
/// Only the transaction of a page or of a step writes how far the sweep is: after a commit without a reply, only the database
/// knows that.
pub(crate) async fn release_turn(pool: &PgPool, turn: &Turn, owner: &str) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- release
        UPDATE sweeps
           SET locked_by = NULL, locked_until = NULL
         WHERE id = $1
           AND locked_by = $2
        "#,
        turn.id,
        owner,
    )
    .execute(pool)
    .await
    .map(drop)
}

/// Closes a finished sweep. What it has seen stays: the next sweep writes over it.
pub(crate) async fn finish_turn(tx: &mut PgConnection, turn: &Turn) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- finish: the next sweep needs neither reports of last week, nor changes that wait for force, because a forced
        -- sweep finds them again
        WITH refused AS (
            DELETE FROM sweep_changes WHERE sweep_id = $1
        ), outdated AS (
            DELETE FROM sweeps WHERE finished_on < cronbox_now() - INTERVAL '7 days'
        )
        UPDATE sweeps
           SET finished_on = cronbox_now(), locked_by = NULL, locked_until = NULL, next_token = NULL
         WHERE id = $1
        "#,
        turn.id,
    )
    .execute(tx)
    .await
    .map(drop)
}
