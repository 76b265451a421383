//! Step 3 of 7: whether this publisher may publish: which database this is, and which configuration is the newest.
//!
//! A deployment raises the generation. After that a publisher with an older one neither claims nor sweeps; otherwise
//! the two would overwrite each other's schedules again and again (ADR 14).

use std::fmt;

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};
use schedule::Environment;

use crate::scheduler::identity::Identity;

/// The position of a configuration in the order of deployments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Generation {
    /// `CRONBOX_CONFIG_GENERATION`.
    pub(crate) number: i64,
    /// The template number that the code publishes.
    pub(crate) template: i32,
}

/// Whether the database admits this publisher; read at the start of each drain and sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// This publisher has the newest configuration.
    Admitted(Deployment),
    /// A newer configuration has published: nothing is claimed or swept.
    Outdated(Generation),
    /// The database was restored or cloned, for this reason: nothing is claimed or swept until its ledger is accepted.
    Held(String),
}

/// The command that accepts the ledger. With the first option a server that was only upgraded would lose what waits.
pub(crate) const ACCEPT: &str = "cronbox-app ledger accept --until <end of the gap> | --nothing-lost";

/// A schedule with a higher revision than its workflow had when it was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    pub(crate) workflow_id: i64,
    /// The revision in its Input.
    pub(crate) revision: i64,
    /// When it was last changed, according to AWS.
    pub(crate) modified_on: DateTime<Utc>,
}

/// A schedule without a workflow and without a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unexplained {
    /// The id in its name.
    pub(crate) workflow_id: i64,
    /// When it was created, according to AWS; no later change of it counts.
    pub(crate) created_on: DateTime<Utc>,
}

/// The deployment of an admitted publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deployment {
    pub(crate) identity: Identity,
    pub(crate) rollout: Rollout,
}

/// Whether schedules of an older generation may exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rollout {
    /// The generation may explain why a schedule differs from the one that would be published now.
    Open,
    /// A sweep found no schedule of an older generation.
    Done,
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (template {})", self.number, self.template)
    }
}

/// Returns whether the publisher `owner` may publish, and raises the generation if its own, `ours`, is newer.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub(crate) async fn admit_publisher(
    db: &mut PgConnection,
    ours: Generation,
    owner: &str,
    environment: &Environment,
) -> sqlx::Result<Admission> {
    loop {
        let read = raise_or_read(db, ours, owner, environment).await?;
        match read {
            Some(Read { is_raised: true, .. }) => {
                tracing::info!(generation = ours.number, template = ours.template, "generation raised to {ours}");
            }
            Some(Read { stored, hold: None, .. }) if stored > ours => return Ok(Admission::Outdated(stored)),
            Some(Read { hold: Some(reason), .. }) => return Ok(Admission::Held(reason)),
            Some(Read { is_of_another_environment: true, .. }) => hold_clone(db, environment).await?,
            Some(Read { stored, identity: Some(identity), rollout, .. }) if stored == ours => {
                return Ok(Admission::Admitted(Deployment { identity, rollout }));
            }
            // The first use inserts the rows; or another publisher may have raised the generation just now.
            _ => make_rows(db, environment).await?,
        }
    }
}

/// The rows before the statement.
struct Read {
    is_raised: bool,
    stored: Generation,
    identity: Option<Identity>,
    rollout: Rollout,
    hold: Option<String>,
    is_of_another_environment: bool,
}

async fn raise_or_read(
    db: &mut PgConnection,
    ours: Generation,
    owner: &str,
    environment: &Environment,
) -> sqlx::Result<Option<Read>> {
    let read = sqlx::query!(
        r#"
        -- raise or read: a rollout in progress starts again, because it was of an older generation. A publisher of
        -- another environment, or of a database that waits for acceptance, raises nothing: it would make the right
        -- publisher outdated
        WITH raised AS (
            UPDATE config_generation
               SET generation = $1, template = $2, raised_on = cronbox_now(), raised_by = $3,
                   canaries = '{}', canaries_on = NULL, rolled_out_on = NULL
             WHERE (generation, template) < ($1, $2)
               AND NOT EXISTS (SELECT FROM database_identity WHERE environment <> $4 OR cronbox_hold() IS NOT NULL)
            RETURNING generation
        ), outdated AS (
            DELETE FROM rollout_queue WHERE EXISTS (SELECT FROM raised)
        )
        SELECT EXISTS (SELECT FROM raised) AS "is_raised!",
               g.generation,
               g.template,
               g.rolled_out_on IS NOT NULL AS "is_rolled_out!",
               i.uuid AS "uuid?",
               cronbox_hold() AS hold,
               COALESCE(i.environment <> $4, FALSE) AS "is_of_another_environment!"
          FROM config_generation AS g
          LEFT JOIN database_identity AS i ON TRUE
        "#,
        ours.number,
        ours.template,
        owner,
        environment.to_string(),
    )
    .fetch_optional(db)
    .await?;
    Ok(read.map(|row| Read {
        is_raised: row.is_raised,
        stored: Generation { number: row.generation, template: row.template },
        identity: row.uuid.map(Identity),
        rollout: if row.is_rolled_out { Rollout::Done } else { Rollout::Open },
        hold: row.hold,
        is_of_another_environment: row.is_of_another_environment,
    }))
}

async fn make_rows(db: &mut PgConnection, environment: &Environment) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- make rows: if two publishers find none, only one row of each is inserted
        WITH generation AS (
            INSERT INTO config_generation DEFAULT VALUES ON CONFLICT DO NOTHING
        )
        INSERT INTO database_identity (environment) VALUES ($1) ON CONFLICT DO NOTHING
        "#,
        environment.to_string(),
    )
    .execute(db)
    .await
    .map(drop)
}

/// Makes a database of another environment wait for acceptance, because a clone must not overwrite the original's
/// schedules.
async fn hold_clone(db: &mut PgConnection, environment: &Environment) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- hold clone
        UPDATE database_identity
           SET held_on = cronbox_now(), held_reason = 'cloned'
         WHERE environment <> $1 AND held_on IS NULL
        "#,
        environment.to_string(),
    )
    .execute(db)
    .await
    .map(drop)
}

/// Returns which of these were created since the last acceptance and have an id that no workflow of the database ever had.
///
/// A schedule is published after its workflow is committed. Of a deleted workflow a tombstone is left, and after that the mark of
/// the job prune. So if such a schedule has the identity of this database, a later state of this database has published it.
pub(crate) async fn list_never_given(pool: &PgPool, unexplained: &[Unexplained]) -> sqlx::Result<Vec<i64>> {
    let (workflow_ids, created_on): (Vec<i64>, Vec<DateTime<Utc>>) =
        unexplained.iter().map(|one| (one.workflow_id, one.created_on)).unzip();
    sqlx::query_scalar!(
        r#"
        -- list never given
        SELECT s.workflow_id AS "workflow_id!"
          FROM unnest($1::bigint[], $2::timestamptz[]) AS s (workflow_id, created_on)
          JOIN database_identity AS i ON s.created_on > i.accepted_on
         -- Not the sequence, which is up to 32 ahead after a recovery. Not publications, because an orphan gets one, too
         WHERE s.workflow_id > GREATEST(i.pruned_workflow_id, (SELECT max(id) FROM workflows), (SELECT max(workflow_id) FROM deleted_workflows))
           AND NOT EXISTS (SELECT FROM workflows AS w WHERE w.id = s.workflow_id)
           AND NOT EXISTS (SELECT FROM publications AS p WHERE p.workflow_id = s.workflow_id)
        "#,
        &workflow_ids,
        &created_on,
    )
    .fetch_all(pool)
    .await
}

/// Makes the database wait for acceptance if EventBridge is ahead of it; returns whether it did.
///
/// The statement reads the revisions again, because a workflow may have been edited and published after the publisher
/// read the database and before it read EventBridge. Changes before the last acceptance do not count. Neither does a revision
/// that the accepted gap has left, whatever changes its schedule later: the first sweep after the acceptance finds and records
/// them (`publications.ahead_revision`), so revisions make the database wait only after it. `never_given` = a schedule of this
/// database whose id no workflow of it ever had.
pub(crate) async fn hold_if_ahead(
    pool: &PgPool,
    ahead: &[Ahead],
    never_given: Option<Unexplained>,
) -> sqlx::Result<bool> {
    let workflow_ids: Vec<_> = ahead.iter().map(|one| one.workflow_id).collect();
    let revisions: Vec<_> = ahead.iter().map(|one| one.revision).collect();
    let modified_on: Vec<_> = ahead.iter().map(|one| one.modified_on).collect();
    let held = sqlx::query!(
        r#"
        -- hold if ahead
        UPDATE database_identity AS i
           SET held_on = cronbox_now(), held_reason = 'eventbridge_ahead'
         WHERE i.held_on IS NULL
           AND ($4::timestamptz > i.accepted_on
                OR EXISTS (
                   SELECT FROM unnest($1::bigint[], $2::bigint[], $3::timestamptz[]) AS s (workflow_id, revision, modified_on)
                     JOIN workflows AS w ON w.id = s.workflow_id
                     LEFT JOIN publications AS p ON p.workflow_id = s.workflow_id
                    WHERE s.revision > GREATEST(w.revision, p.ahead_revision)
                      AND s.modified_on > i.accepted_on
                      AND EXISTS (SELECT FROM sweeps AS first WHERE first.finished_on IS NOT NULL AND first.started_on > i.accepted_on)
           ))
        "#,
        &workflow_ids,
        &revisions,
        &modified_on,
        never_given.map(|one| one.created_on),
    )
    .execute(pool)
    .await?;
    Ok(held.rows_affected() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_ordered_before_templates() {
        let generation = |number, template| Generation { number, template };
        assert!(generation(2, 1) > generation(1, 9));
        assert!(generation(2, 2) > generation(2, 1));
    }
}
