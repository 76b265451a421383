//! Step 1 of 7: lists the entries of the audit log, the newest first, and exports them, the oldest first.
//!
//! Entries commit in another order than that of their ids. A list shows what is committed. An export follows the ids, so
//! it ends at the newest entry of the hash chain: every entry with a lower id is visible or will never be.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use db::PgConnection;

use crate::keyset::KeysetPage;

/// An entry of the log.
#[derive(Clone, Debug)]
pub struct LoggedEntry {
    /// The id; later entries have higher ones, except for those of overlapping transactions.
    pub id: i64,
    /// When the request began.
    pub at: DateTime<Utc>,
    /// Who did it.
    pub actor: String,
    /// The name of the key.
    pub actor_name: Option<String>,
    /// The address from which the request came.
    pub source_address: Option<String>,
    /// The trace of the request.
    pub trace_id: Option<String>,
    /// What was done.
    pub verb: String,
    /// To which object.
    pub subject: String,
    /// The team of the object.
    pub team_id: Option<i64>,
    /// What differs, as it was before, as JSON.
    pub before: Option<String>,
    /// What differs, as it was after, as JSON.
    pub after: Option<String>,
}

/// Which entries the caller may see, and filters.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only this team's.
    pub team_id: Option<i64>,
    /// Whether members of the team read them, who do not see the addresses of operators.
    pub is_for_members: bool,
    /// Only of this object.
    pub subject: Option<String>,
    /// Only with this verb.
    pub verb: Option<String>,
    /// Only of this actor, by its name or the name of its key.
    pub actor: Option<String>,
    /// From this time on.
    pub from: Option<DateTime<Utc>>,
    /// Before this time.
    pub to: Option<DateTime<Utc>>,
}

/// Lists entries before this id, the newest first. Both statements need the same snapshot.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_entries(
    db: &mut PgConnection,
    filter: &Filter,
    before: Option<i64>,
    limit: i64,
) -> sqlx::Result<KeysetPage<LoggedEntry, i64>> {
    let before = before.unwrap_or(i64::MAX);
    let rows = match &filter.subject {
        Some(subject) => read_of_subject(db, filter, subject, before, limit).await?,
        None => read_page(db, filter, before, limit).await?,
    };
    let mut page = KeysetPage::of_rows(rows, limit, |entry| entry.id);
    if page.next.is_none() {
        page.next = match &filter.subject {
            Some(subject) => end_of_subject(db, filter, subject, before).await?,
            None => end_of_scan(db, filter, before).await?,
        };
    }
    hide_operators(db, filter, &mut page.rows).await?;
    Ok(page)
}

/// Removes the addresses of operators from entries that members of a team read: only those of the team's keys remain.
async fn hide_operators(db: &mut PgConnection, filter: &Filter, entries: &mut [LoggedEntry]) -> sqlx::Result<()> {
    let Some(team_id) = filter.team_id.filter(|_| filter.is_for_members && !entries.is_empty()) else { return Ok(()) };
    let actors: BTreeSet<&str> = entries.iter().map(|entry| entry.actor.as_str()).collect();
    let prefixes: Vec<String> =
        actors.into_iter().filter_map(|actor| actor.strip_prefix("key:")).map(str::to_owned).collect();
    let own: Vec<String> = sqlx::query_scalar!(
        r#"
        -- which actors are keys of a team
        SELECT 'key:' || prefix AS "actor!" FROM api_keys WHERE prefix = ANY($1) AND team_id = $2
        "#,
        &prefixes,
        team_id,
    )
    .fetch_all(db)
    .await?;
    for entry in entries.iter_mut().filter(|entry| !own.contains(&entry.actor)) {
        entry.source_address = None;
    }
    Ok(())
}

/// Reads entries of the chain after this id, the oldest first. The key of the page is always set: the next export begins
/// there. All statements need the same snapshot.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn export_entries(
    db: &mut PgConnection,
    filter: &Filter,
    after: i64,
    limit: i64,
) -> sqlx::Result<KeysetPage<LoggedEntry, i64>> {
    let through = super::chain::newest_chained(db).await?;
    let rows = read_chained(db, filter, (after, through), limit).await?;
    let mut page = KeysetPage::of_rows(rows, limit, |entry| entry.id);
    if page.next.is_none() {
        page.next = Some(end_of_export(db, filter, (after, through)).await?.unwrap_or(through.max(after)));
    }
    hide_operators(db, filter, &mut page.rows).await?;
    Ok(page)
}

/// Selects entries by a comment, their scope, in an order, with a limit and further arguments. `query_as!` accepts only
/// literals. Months outside of the filter are not read; within a month the filter passes over rows.
macro_rules! select_entries {
    ($comment:tt, $scope:tt, $order:tt, $filter:expr, $limit:expr, $($arguments:tt)*) => {
        sqlx::query_as!(
            LoggedEntry,
            $comment
                + r#"
        SELECT e.id AS "id!", e.at AS "at!", e.actor AS "actor!", e.actor_name, e.source_address, e.trace_id,
               e.verb AS "verb!", e.subject AS "subject!", e.team_id, e.before::text AS before, e.after::text AS after
          FROM (SELECT * FROM audit_log
                 WHERE at >= COALESCE(date_trunc('month', $1::timestamptz, 'UTC'), '-infinity')
                   AND at < COALESCE(partition_end('month', $2::timestamptz), 'infinity') AND "#
                + $scope
                + r#" LIMIT 5000) AS e
         WHERE ($3::bigint IS NULL OR e.team_id = $3)
           AND ($4::text IS NULL OR e.verb = $4)
           AND ($5::text IS NULL OR e.actor = $5 OR e.actor_name = $5)
           AND ($1::timestamptz IS NULL OR e.at >= $1) AND ($2::timestamptz IS NULL OR e.at < $2)
           AND ($6::text IS NULL OR e.subject = $6)
         ORDER BY "#
                + $order
                + " LIMIT $7",
            $filter.from,
            $filter.to,
            $filter.team_id,
            $filter.verb,
            $filter.actor,
            $filter.subject,
            $limit + 1,
            $($arguments)*
        )
    };
}

async fn read_page(db: &mut PgConnection, filter: &Filter, before: i64, limit: i64) -> sqlx::Result<Vec<LoggedEntry>> {
    select_entries!("-- list the audit log by key\n", "id < $8 ORDER BY id DESC", "e.id DESC", filter, limit, before)
        .fetch_all(db)
        .await
}

async fn read_of_subject(
    db: &mut PgConnection,
    filter: &Filter,
    subject: &str,
    before: i64,
    limit: i64,
) -> sqlx::Result<Vec<LoggedEntry>> {
    select_entries!(
        "-- list the audit log of an object by key, by idx_audit_log_subject\n",
        "(subject, id) >= ($8, 0::bigint) AND (subject, id) < ($8, $9::bigint) ORDER BY subject DESC, id DESC",
        "e.subject DESC, e.id DESC",
        filter,
        limit,
        subject,
        before
    )
    .fetch_all(db)
    .await
}

async fn read_chained(
    db: &mut PgConnection,
    filter: &Filter,
    (after, through): (i64, i64),
    limit: i64,
) -> sqlx::Result<Vec<LoggedEntry>> {
    select_entries!(
        "-- export the audit log by key\n",
        "id > $8 AND id <= $9 ORDER BY id",
        "e.id",
        filter,
        limit,
        after,
        through
    )
    .fetch_all(db)
    .await
}

async fn end_of_scan(db: &mut PgConnection, filter: &Filter, before: i64) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the last audit entry that the list read; none: it read all
        SELECT id FROM audit_log
         WHERE id < $1 AND at >= COALESCE(date_trunc('month', $2::timestamptz, 'UTC'), '-infinity')
           AND at < COALESCE(partition_end('month', $3::timestamptz), 'infinity')
         ORDER BY id DESC
        OFFSET 4999 LIMIT 1
        "#,
        before,
        filter.from,
        filter.to,
    )
    .fetch_optional(db)
    .await
}

async fn end_of_subject(
    db: &mut PgConnection,
    filter: &Filter,
    subject: &str,
    before: i64,
) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the last audit entry of an object that the list read; none: it read all
        SELECT id FROM audit_log
         WHERE (subject, id) >= ($1, 0::bigint) AND (subject, id) < ($1, $2::bigint)
           AND at >= COALESCE(date_trunc('month', $3::timestamptz, 'UTC'), '-infinity')
           AND at < COALESCE(partition_end('month', $4::timestamptz), 'infinity')
         ORDER BY subject DESC, id DESC
        OFFSET 4999 LIMIT 1
        "#,
        subject,
        before,
        filter.from,
        filter.to,
    )
    .fetch_optional(db)
    .await
}

async fn end_of_export(
    db: &mut PgConnection,
    filter: &Filter,
    (after, through): (i64, i64),
) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the last audit entry that the export read; none: it read all
        SELECT id FROM audit_log
         WHERE id > $1 AND id <= $2 AND at >= COALESCE(date_trunc('month', $3::timestamptz, 'UTC'), '-infinity')
           AND at < COALESCE(partition_end('month', $4::timestamptz), 'infinity')
         ORDER BY id
        OFFSET 4999 LIMIT 1
        "#,
        after,
        through,
        filter.from,
        filter.to,
    )
    .fetch_optional(db)
    .await
}
