//! Steps 1 and 7 of 7: the database pools of an instance, one for each purpose.
//!
//! Fires and leases never wait for a connection that an edit, a list or a job uses, whatever one team requests. All
//! pools together have at most `CRONBOX_DB_MAX_CONNECTIONS` connections.

use std::time::Duration;

use db::{Options, PgPool, TransactionLimits};

use crate::config::Config;

/// How long a statement of a read may take. Those of lists and of statistics have [`db::READ_LIMIT_SECS`] only.
const READ_LIMIT: Duration = Duration::from_secs(5);

/// The pools; clones share their connections.
#[derive(Clone, Debug)]
pub struct Pools {
    /// Decides fires, and reads the keys of their callers.
    pub fires: PgPool,
    /// Renews leases, of runs and of jobs.
    pub leases: PgPool,
    /// Claims runs, writes their ends, and runs the jobs and what else the process does by itself.
    pub work: PgPool,
    /// Edits by the API, with the reads of their answers.
    pub edits: PgPool,
    /// Reads of the API: objects, lists, statistics.
    pub reads: PgPool,
}

/// How many connections each pool has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    fires: u32,
    leases: u32,
    work: u32,
    edits: u32,
    reads: u32,
}

impl Sizes {
    /// Divides all connections: a quarter each for fires and work, 5 in 16 for edits, a sixteenth for leases, the rest for
    /// reads. Edits have more than fires, because each of them waits for the disk at its commit; fires commit in batches.
    fn of(all: u32) -> Self {
        let (quarter, leases) = ((all / 4).max(1), (all / 16).max(1));
        let edits = (all * 5 / 16).max(1);
        let reads = all.saturating_sub(2 * quarter + leases + edits).max(1);
        Self { fires: quarter, leases, work: quarter, edits, reads }
    }
}

impl Pools {
    /// Opens the pools, and checks that the database accepts writes.
    ///
    /// # Errors
    /// Returns one sentence that says what to do if the DSN cannot be parsed or the database does not answer.
    pub async fn connect(config: &Config) -> anyhow::Result<Self> {
        let options = config.database_options(&config.read_dsn()?);
        let sizes = Sizes::of(options.max_connections);
        let sized = |max_connections| Options { max_connections, ..options.clone() };
        // All others connect at their first use.
        let fires = db::connect_pool(&sized(sizes.fires)).await?;
        let limits_of_edits = TransactionLimits {
            lock: Some(Duration::from_millis(config.edit_lock_timeout_ms)),
            ..TransactionLimits::default()
        };
        let limits_of_reads = TransactionLimits { statement: Some(READ_LIMIT), ..TransactionLimits::default() };
        let beside = |max_connections| db::create_pool_beside(&fires, &sized(max_connections));
        Ok(Self {
            leases: beside(sizes.leases)?,
            work: beside(sizes.work)?,
            edits: beside(sizes.edits)?.with_limits(limits_of_edits),
            reads: beside(sizes.reads)?.with_limits(limits_of_reads),
            fires,
        })
    }

    /// Changes the login of new connections; open ones are not affected.
    ///
    /// # Errors
    /// Fails if the DSN cannot be parsed.
    pub fn log_in_anew(&self, options: &Options) -> anyhow::Result<()> {
        self.by_name().into_iter().try_for_each(|(_, pool)| db::log_in_anew(pool, options))
    }

    /// All pools with their names.
    #[must_use]
    pub fn by_name(&self) -> [(&'static str, &PgPool); 5] {
        let Self { fires, leases, work, edits, reads } = self;
        [("fires", fires), ("leases", leases), ("work", work), ("edits", edits), ("reads", reads)]
    }

    /// Closes all connections after they are returned.
    pub async fn close(&self) {
        for (_, pool) in self.by_name() {
            pool.close().await;
        }
    }
}

/// One pool for all purposes, for a process with few connections.
impl From<PgPool> for Pools {
    fn from(pool: PgPool) -> Self {
        Self { fires: pool.clone(), leases: pool.clone(), work: pool.clone(), edits: pool.clone(), reads: pool }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_share_all_connections() {
        assert_eq!(Sizes::of(40), Sizes { fires: 10, leases: 2, work: 10, edits: 12, reads: 6 });
        for all in 8..300 {
            let Sizes { fires, leases, work, edits, reads } = Sizes::of(all);
            assert_eq!(fires + leases + work + edits + reads, all);
            assert!(fires >= 2 && reads >= 1, "{all}");
        }
    }
}
