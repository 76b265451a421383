//! Steps 3 and 7 of 7: the zone data of this environment. App and publisher use the sets that the database names.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use schedule::{ZoneHistory, ZoneSet};

use crate::PgConnection;

/// Zone data with the time since when they are in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneChange {
    /// The id in `zone_changes`; higher than that of any earlier change.
    pub id: i64,
    /// Version of the IANA database.
    pub version: String,
    /// Due times from then on are evaluated by it; later than that of any earlier change.
    pub in_force_from: DateTime<Utc>,
}

/// Reads which zone data are the newest; `None` if this database has none: then each binary uses its bundled set.
///
/// # Errors
/// Fails if the database does not answer.
pub async fn read_zone_change(db: &mut PgConnection) -> sqlx::Result<Option<ZoneChange>> {
    sqlx::query_as!(
        ZoneChange,
        r#"
        -- read_zone_change
        SELECT id, version, in_force_from FROM zone_changes ORDER BY id DESC LIMIT 1
        "#
    )
    .fetch_optional(db)
    .await
}

/// Reads which zone data were in force one after the other, the oldest first.
async fn read_zone_changes(db: &mut PgConnection) -> sqlx::Result<Vec<ZoneChange>> {
    sqlx::query_as!(
        ZoneChange,
        r#"
        -- read_zone_changes: few, because the prune job removes what no kept time needs
        SELECT id, version, in_force_from FROM zone_changes ORDER BY id
        "#
    )
    .fetch_all(db)
    .await
}

/// Reads the archive of a stored version.
///
/// # Errors
/// Fails if the database does not answer or does not have this version.
pub async fn read_zone_archive(db: &mut PgConnection, version: &str) -> sqlx::Result<Vec<u8>> {
    sqlx::query_scalar!(
        r#"
        -- read_zone_archive
        SELECT archive FROM zone_data WHERE version = $1
        "#,
        version
    )
    .fetch_one(db)
    .await
}

/// Makes this process use the zone data that the database names; returns whether there was a change to load.
///
/// # Errors
/// Fails if the database does not answer. If this binary cannot parse a set, it logs this and keeps the previous set.
pub async fn load_zones(db: &mut PgConnection) -> sqlx::Result<bool> {
    let Some(newest) = read_zone_change(db).await? else { return Ok(false) };
    let loaded = ZoneHistory::installed();
    // Compared by id, because a version may come into force again.
    if loaded.last_change() == Some(newest.id) {
        return Ok(false);
    }
    let history = read_history(db, &loaded).await?;
    let (before, version) = (loaded.newest_set().version(), history.newest_set().version());
    if before != version {
        tracing::info!(%before, %version, "zone data loaded");
    }
    ZoneHistory::install_history(history);
    Ok(true)
}

/// Reads the sets that the database names; each version is read once per process.
async fn read_history(db: &mut PgConnection, loaded: &ZoneHistory) -> sqlx::Result<ZoneHistory> {
    let mut known: Vec<Arc<ZoneSet>> = loaded.all_sets().cloned().collect();
    let (mut changes, mut last_change) = (Vec::new(), 0);
    for change in read_zone_changes(db).await? {
        last_change = change.id;
        let same = known.iter().find(|set| set.version().to_string() == change.version).cloned();
        let set = match same {
            Some(set) => Some(set),
            None => read_set(db, &change.version).await?,
        };
        changes.extend(set.map(|set| {
            known.push(Arc::clone(&set));
            (change.in_force_from, set)
        }));
    }
    Ok(ZoneHistory::new(changes, last_change))
}

/// Returns `None` if this binary cannot parse it.
async fn read_set(db: &mut PgConnection, version: &str) -> sqlx::Result<Option<Arc<ZoneSet>>> {
    match ZoneSet::from_archive(read_zone_archive(db, version).await?) {
        Ok(set) => Ok(Some(Arc::new(set))),
        Err(error) => {
            tracing::error!(%error, version, "zone data not read: deploy a newer version of cronbox");
            Ok(None)
        }
    }
}
