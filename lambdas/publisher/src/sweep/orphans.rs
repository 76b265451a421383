//! Step 3 of 7: schedules with a name of ours that no workflow accounts for.
//!
//! Nothing brings a deleted schedule back, so nothing is deleted at first sight: two sweeps must
//! have seen it, ten minutes apart; and a mass of them says that the database is the wrong one.

use chrono::{DateTime, Utc};
use schedule::ScheduleName;
use sqlx::PgConnection;

use crate::config::Config;
use crate::sweep::findings::{Class, Findings};
use crate::sweep::repair;
use crate::sweep::turn::Turn;

/// So many may always be deleted.
const FEW: i64 = 10;
/// Above that, one in so many of the schedules that are ours.
const ONE_IN: i64 = 20;

/// Remembers orphans that were listed.
pub(crate) async fn note(tx: &mut PgConnection, names: &[String]) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- note orphans
        INSERT INTO orphans (name, first_seen, last_seen)
        SELECT name, cronbox_now(), cronbox_now() FROM unnest($1::text[]) AS listed (name) ORDER BY name
        ON CONFLICT (name) DO UPDATE SET last_seen = excluded.last_seen
        "#,
        names,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Has the orphans deleted that may be, up to `limit` at a time.
pub(crate) async fn dispose(
    tx: &mut PgConnection,
    turn: &mut Turn,
    config: &Config,
    limit: i64,
    now: DateTime<Utc>,
) -> sqlx::Result<Disposal> {
    let Census { ours, standing, ripe } = census(tx, turn).await?;
    let Findings { orphans_deleted, orphans_refused, orphans_waiting, .. } = &mut turn.findings;
    *orphans_waiting = (standing - ripe).unsigned_abs();
    let is_mass = ripe > FEW.max(ours / ONE_IN);
    if is_mass && !turn.force && *orphans_deleted == 0 {
        *orphans_refused = ripe.unsigned_abs();
        tracing::error!(orphans = ripe, "sweep: {ripe} of {ours} schedules are orphans, too many to delete unforced");
        return Ok(Disposal::Done);
    }
    let names = list_ripe(tx, turn, limit).await?;
    let doomed = names.iter().filter_map(|name| ScheduleName::parse(name, &config.env));
    let doomed: Vec<(i64, i64)> = doomed.map(|name| (name.workflow_id().0, 0)).collect();
    turn.findings.orphans_deleted += repair::adopt(tx, &doomed, Class::Orphan, now).await?;
    forget(tx, &names).await?;
    Ok(if names.is_empty() { Disposal::Done } else { Disposal::More })
}

/// Drops what the sweep did not see any more: it has to be seen twice again.
pub(crate) async fn forget_gone(tx: &mut PgConnection, turn: &Turn) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- forget gone
        DELETE FROM orphans WHERE last_seen < (SELECT started_on FROM sweeps WHERE id = $1)
        "#,
        turn.id,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Whether there may be more to dispose of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposal {
    Done,
    More,
}

/// How many there are, and how many of them may be deleted.
struct Census {
    ours: i64,
    standing: i64,
    ripe: i64,
}

async fn census(tx: &mut PgConnection, turn: &Turn) -> sqlx::Result<Census> {
    sqlx::query_as!(
        Census,
        r#"
        -- census: ripe is what an earlier sweep saw, and this one, ten minutes later at least
        SELECT (SELECT COUNT(*) FROM sightings WHERE sweep_id = s.id) AS "ours!",
               (SELECT COUNT(*) FROM orphans) AS "standing!",
               (SELECT COUNT(*) FROM orphans AS o
                 WHERE o.first_seen < s.started_on
                   AND o.first_seen <= o.last_seen - INTERVAL '10 minutes') AS "ripe!"
          FROM sweeps AS s
         WHERE s.id = $1
        "#,
        turn.id,
    )
    .fetch_one(tx)
    .await
}

async fn list_ripe(tx: &mut PgConnection, turn: &Turn, limit: i64) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar!(
        r#"
        -- list ripe: as the census counts them
        SELECT o.name
          FROM orphans AS o
          JOIN sweeps AS s ON s.id = $1
         WHERE o.first_seen < s.started_on
           AND o.first_seen <= o.last_seen - INTERVAL '10 minutes'
         ORDER BY o.name
         LIMIT $2
        "#,
        turn.id,
        limit,
    )
    .fetch_all(tx)
    .await
}

async fn forget(tx: &mut PgConnection, names: &[String]) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- forget: from here on they have a publication
        DELETE FROM orphans WHERE name = ANY($1)
        "#,
        names,
    )
    .execute(tx)
    .await
    .map(drop)
}
