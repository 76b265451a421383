//! One notifier: claims what is due, sends it, and settles it.

use std::time::{Duration, Instant};

use db::PgPool;
use futures::StreamExt as _;
use notifications::delivery::{
    self, Acceptance, BATCH, Claimed, NotAccepted, Origin, Settlement, claim_messages, read_aws_message, settle_message,
};
use schedule::{Clock, Environment};

use crate::carrier::Carrier;
use crate::config::Config;
use crate::report::Report;

/// A batch needs as long at most: the database, the call, and the settlement.
const BATCH_TIME: Duration = Duration::from_secs(20);

/// One notifier.
pub struct Notifier {
    env: Environment,
    origin: Origin,
    pool: PgPool,
    carrier: Carrier,
    clock: Clock,
}

impl Notifier {
    /// Creates a notifier; it does nothing until a tick.
    pub async fn new(config: Config, pool: PgPool, clock: Clock) -> Self {
        let origin = Origin { environment: config.env.to_string(), public_url: config.public_url };
        Self { env: config.env, origin, pool, carrier: Carrier::new().await, clock }
    }

    /// Sends messages until none is due, and counts them in `report`, also if it fails. It claims none shortly before
    /// `deadline`.
    ///
    /// # Errors
    /// Fails if the database cannot be reached or refuses a statement; messages that were sent may be sent again.
    pub async fn run_tick(&self, deadline: Instant, report: &mut Report) -> sqlx::Result<()> {
        while deadline.saturating_duration_since(Instant::now()) > BATCH_TIME {
            let claimed = claim_messages(&mut *self.pool.acquire().await?, delivery::Carrier::Notifier).await?;
            if claimed.is_empty() {
                break;
            }
            self.deliver_batch(claimed, report).await?;
        }
        Ok(())
    }

    /// The seconds for which the oldest message has waited; `None`: the database does not say it.
    pub(crate) async fn oldest_wait(&self) -> Option<f64> {
        let mut db = self.pool.acquire().await.ok()?;
        delivery::oldest_aws_wait(&mut db).await.ok()
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    pub(crate) fn env(&self) -> &Environment {
        &self.env
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Sends all at once, so that the lease of none ends before its call begins. A failure does not stop the others.
    async fn deliver_batch(&self, claimed: Vec<Claimed>, report: &mut Report) -> sqlx::Result<()> {
        let deliveries = futures::stream::iter(claimed).map(|message| self.deliver(message)).buffer_unordered(BATCH);
        let settled: Vec<sqlx::Result<Settlement>> = deliveries.collect().await;
        let mut failed = None;
        for settlement in settled {
            match settlement {
                Ok(settlement) => report.count(settlement),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn deliver(&self, message: Claimed) -> sqlx::Result<Settlement> {
        let outcome = self.attempt(&message).await?;
        let settlement = settle_message(&mut *self.pool.acquire().await?, &message, &outcome).await?;
        if let Err(refusal) = &outcome {
            tracing::warn!(message_id = %message.id, channel_id = message.channel_id, attempt = message.attempt_count,
                error = %refusal.error, "notification not delivered");
        }
        Ok(settlement)
    }

    async fn attempt(&self, message: &Claimed) -> sqlx::Result<Result<Acceptance, NotAccepted>> {
        // The connection is returned before the call.
        let read = {
            let mut db = self.pool.acquire().await?;
            read_aws_message(&mut db, message, &self.origin, self.clock.now()).await?
        };
        Ok(match read {
            Ok(outgoing) => self.carrier.publish(message, &outgoing).await,
            Err(refusal) => Err(refusal),
        })
    }
}
