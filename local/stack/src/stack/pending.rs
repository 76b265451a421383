//! What a stack has not processed yet: a test that ends with any of it ends too early.

use std::fmt;

use db::PgConnection;
use sqlx::Row;

/// Counts of what is not processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// Outbox rows that are neither processed nor failed
    pub outbox: i64,
    /// Publications that a publisher has leased
    pub leases: i64,
    /// Publications due now
    pub due: i64,
    /// Runs accepted or running
    pub runs: i64,
    /// Events that the runner has not delivered
    pub deliveries: usize,
}

/// What the end of a stack asserts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leftovers {
    Refused,
    Accepted,
}

impl Pending {
    /// Counts what is in the database; `deliveries` remains 0.
    ///
    /// # Errors
    /// Fails if the database cannot be reached or refuses the statement.
    pub async fn count_in_database(connection: &mut PgConnection) -> sqlx::Result<Pending> {
        let counted = sqlx::query(
            "
            -- what is unfinished
            SELECT (SELECT count(*) FROM outbox_events WHERE processed_on IS NULL AND failed_on IS NULL) AS outbox,
                   (SELECT count(*) FROM publications WHERE lease_owner IS NOT NULL) AS leases,
                   (SELECT count(*) FROM publications WHERE due_at <= cronbox_now()) AS due,
                   (SELECT count(*) FROM runs WHERE finished_on IS NULL) AS runs
            ",
        )
        .fetch_one(connection)
        .await?;
        Ok(Pending {
            outbox: counted.try_get("outbox")?,
            leases: counted.try_get("leases")?,
            due: counted.try_get("due")?,
            runs: counted.try_get("runs")?,
            deliveries: 0,
        })
    }
}

impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pending { outbox, leases, due, runs, deliveries } = self;
        write!(f, "{outbox} outbox rows, {leases} leases, {due} publications due, {runs} runs, {deliveries} deliveries")
    }
}
