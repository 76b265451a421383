//! Step 1 of 7: the hosts that the http actions of a team may call, if an admin has listed any.

use std::sync::Arc;
use std::time::Duration;

use db::{PgConnection, PgPool};
use moka::future::Cache;
use serde_json::json;
use workflows::audit::{self, Edit, Entry};

/// How long an edit may be checked against the hosts of before. Each send reads them.
const KEPT: Duration = Duration::from_secs(4);

/// The hosts of the teams that edited an http action recently.
#[derive(Clone)]
pub struct HostLists(Cache<i64, Arc<Vec<String>>>);

impl Default for HostLists {
    fn default() -> Self {
        Self(Cache::builder().max_capacity(10_000).time_to_live(KEPT).build())
    }
}

impl HostLists {
    /// The hosts of a team; empty = every host, as of a team that does not exist.
    ///
    /// # Errors
    /// Fails if the database does not answer.
    pub async fn of_team(&self, pool: &PgPool, team_id: i64) -> Result<Arc<Vec<String>>, Arc<sqlx::Error>> {
        let read = async {
            let mut connection = pool.acquire().await?;
            Ok::<_, sqlx::Error>(Arc::new(find_allowed_hosts(&mut connection, team_id).await?.unwrap_or_default()))
        };
        self.0.try_get_with(team_id, read).await
    }

    /// Reads the hosts of a team again at the next edit on this instance; a dry run has not changed them.
    pub async fn forget_team(&self, team_id: i64) {
        if !db::is_dry_run() {
            self.0.invalidate(&team_id).await;
        }
    }
}

/// Returns the hosts that a team may call; `None` if the team does not exist.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_allowed_hosts(db: &mut PgConnection, team_id: i64) -> sqlx::Result<Option<Vec<String>>> {
    sqlx::query_scalar!(
        r#"
        -- the hosts that a team may call
        SELECT allowed_hosts FROM teams WHERE id = $1
        "#,
        team_id,
    )
    .fetch_optional(db)
    .await
}

/// Replaces the hosts that a team may call; returns those of before, or `None` if the team does not exist.
///
/// # Errors
/// Fails if the database refuses the statement.
pub async fn set_allowed_hosts(
    tx: &mut PgConnection,
    team_id: i64,
    hosts: &[String],
    edit: &Edit,
) -> sqlx::Result<Option<Vec<String>>> {
    let changed = sqlx::query_scalar!(
        r#"
        -- set the hosts that a team may call; returns those of before
        UPDATE teams t SET allowed_hosts = $2
          FROM (SELECT id, allowed_hosts FROM teams WHERE id = $1 FOR NO KEY UPDATE) AS before
         WHERE t.id = before.id
        RETURNING before.allowed_hosts AS "allowed_hosts!"
        "#,
        team_id,
        hosts,
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(replaced) = changed else { return Ok(None) };
    let (before, after) = (Some(json!({ "allowed_hosts": replaced })), Some(json!({ "allowed_hosts": hosts })));
    let subject = format!("team:{team_id}");
    audit::record_entry(tx, edit, Entry { verb: "hosts", subject, team_id: Some(team_id), before, after }).await?;
    Ok(Some(replaced))
}
