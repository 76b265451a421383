//! The end of a stack: stops its parts in order, and checks what remains.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use schedule::Clock;

use super::Stack;
use super::database::Database;
use super::pending::{Leftovers, Pending};

/// How long a fire and its run may take at the end of a test.
const AFTER_A_FIRE: Duration = Duration::from_secs(60);

/// The end of a test.
impl Stack {
    /// Accepts that this test ends before all rows, runs and deliveries are processed.
    pub fn accept_leftovers(&mut self) {
        self.leftovers = Leftovers::Accepted;
    }

    /// Returns what is not processed yet.
    ///
    /// # Errors
    /// Fails if the database cannot be reached or refuses the statement.
    pub async fn read_pending(&self) -> Result<Pending> {
        let mut connection = self.pool.acquire().await?;
        let deliveries = self.stand_in.lambda.count_pending();
        Ok(Pending { deliveries, ..Pending::count_in_database(&mut connection).await? })
    }

    /// Ends a test's stack.
    ///
    /// # Errors
    /// Fails if anything is not processed yet, or if a part of the stack failed.
    pub async fn finish_story(mut self) -> Result<()> {
        let checked = self.until_processed().await;
        self.leftovers = Leftovers::Accepted;
        let stopped = self.stop_parts().await;
        checked.and(stopped)
    }

    /// Checks that everything is processed. By a clock that runs, a schedule may have fired in this moment, although the test has
    /// ended: its fire and its run end as usual.
    async fn until_processed(&self) -> Result<()> {
        let began = Instant::now();
        loop {
            let checked = self.check_pending(self.read_pending().await?);
            let may_end = matches!(self.clock, Clock::System) && began.elapsed() < AFTER_A_FIRE;
            if checked.is_ok() || !may_end {
                return checked;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Stops all parts in order: publishing, fires, the apps, then the database.
    ///
    /// # Errors
    /// Fails if a part of the stack failed.
    pub async fn stop_parts(&mut self) -> Result<()> {
        self.stop.publisher.cancel();
        if let Some(publishing) = self.publishing.take() {
            publishing.await.context("the publisher ended unexpectedly")??;
        }
        if let Some(served) = self.served.take() {
            served.stop_serving().await?;
        }
        self.stop.apps.cancel();
        for app in std::mem::take(&mut self.apps) {
            app.serving.await.context("the app ended unexpectedly")??;
            app.app.pools.close().await;
        }
        for pool in [&self.publisher_pool, &self.pool] {
            pool.close().await;
        }
        self.database.remove_clone().await
    }

    fn check_pending(&self, left: Pending) -> Result<()> {
        ensure!(
            self.leftovers == Leftovers::Accepted || left == Pending::default(),
            "the test ended before everything was processed: {left}"
        );
        Ok(())
    }
}

/// Stops a stack for which `finish_story` was not called, checks what remains, and removes its database.
impl Drop for Stack {
    fn drop(&mut self) {
        self.stop.publisher.cancel();
        self.stop.apps.cancel();
        if matches!(self.database, Database::Kept(_)) || self.apps.is_empty() {
            return;
        }
        let deliveries = self.stand_in.lambda.count_pending();
        let dsn = self.owner_dsn();
        // Separate threads and runtimes, because the dropping thread may be the one that runs the stack's tasks.
        let counted = std::thread::spawn(move || block_on(async move { count_pending(&dsn).await })).join();
        // Not awaited: a wait would block this thread, and the removal would wait for an incomplete connection of it.
        let database = std::mem::replace(&mut self.database, Database::Gone);
        std::thread::spawn(move || block_on(async move { database.remove_clone().await }));
        if let (Ok(Ok(left)), false) = (counted, std::thread::panicking())
            && let Err(error) = self.check_pending(Pending { deliveries, ..left })
        {
            panic!("{error}");
        }
    }
}

fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

async fn count_pending(dsn: &str) -> Result<Pending> {
    let pool = db::connect_pool(&app::config::database_options(dsn, 1)).await?;
    let left = Pending::count_in_database(&mut *pool.acquire().await?).await?;
    pool.close().await;
    Ok(left)
}
