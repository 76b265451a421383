//! Step 7 of 7: an executor: its inputs, which runs it has claimed, and which it returns.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use db::PgPool;
use egress::Client;
use ledger::runs::OfferedSlots;
use schedule::{Clock, Moment};
use uuid::Uuid;
use workflows::notify::Notifier;
use workflows::secrets::Secrets;

use super::activity::Activity;
use super::attempts_in_flight::{AttemptsInFlight, Registered};
use super::ends::EndBatches;
use super::{Settings, Wake};
use crate::claim::{self, Claimed, Lease, Slots, Unknown};

/// How long Postgres may still execute a statement without a reply. Linux sends the data of a closed connection again for
/// 102 s (`tcp_orphan_retries`), Postgres ends a statement after 15 s (`statement_timeout`), and a commit may wait for its
/// replica.
const LATE_COMMITS: Duration = Duration::from_mins(5);
/// How long the executor waits for fires that are being decided.
pub(super) const DECISION_LIMIT: Duration = Duration::from_secs(3);

/// The inputs of an executor.
#[derive(Clone)]
pub struct Parts {
    /// The instance that executes the runs.
    pub instance: Uuid,
    /// The database.
    pub pool: PgPool,
    /// The connections that renew leases, which wait for nothing else.
    pub leases: PgPool,
    /// Business time.
    pub clock: Clock,
    /// Its settings.
    pub settings: Settings,
    /// Its slots, which it offers to the fires that this instance decides.
    pub offered: OfferedSlots,
    /// Notifies it of accepted runs.
    pub wake: Wake,
    /// Notifies the publisher of the workflows that it pauses.
    pub notifier: Notifier,
    /// Decrypts what an attempt sends.
    pub secrets: Secrets,
    /// Counts what the executor does.
    pub activity: Activity,
}

/// Executes runs on this instance; clones are the same executor.
#[derive(Clone)]
pub struct Executor {
    pub(super) parts: Parts,
    pub(super) client: Client,
    pub(super) in_flight: AttemptsInFlight,
    /// Whether a claim whose reply was lost may have been committed.
    pub(super) has_unknown_claims: Arc<AtomicBool>,
    /// Until when one may be committed that no hand-over has seen; `None` = no reply was lost.
    pub(super) late_commits_until: Arc<Mutex<Option<Instant>>>,
    /// Writes the outcomes of concurrent attempts together; `None` = each on its own.
    pub(super) ends: Option<EndBatches>,
    #[cfg(debug_assertions)]
    pub(super) after_action: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Executor {
    /// Creates an executor that has claimed nothing yet.
    #[must_use]
    pub fn new(parts: Parts, client: Client) -> Self {
        let in_flight = AttemptsInFlight::that_may_send_for(parts.settings.longest_without_renewal());
        Self {
            parts,
            client,
            in_flight,
            has_unknown_claims: Arc::default(),
            late_commits_until: Arc::default(),
            ends: None,
            #[cfg(debug_assertions)]
            after_action: None,
        }
    }

    /// The leases of the runs that this instance executes.
    pub(super) fn run_lease(&self) -> Lease {
        let secs = u32::try_from(self.parts.settings.lost_after_secs).unwrap_or(u32::MAX);
        Lease { instance: self.parts.instance, secs: secs.into() }
    }

    /// Claims runs and registers their attempts; their leases begin no earlier than the time that it returns with them.
    pub(super) async fn claim_runs(&self, slots: &Slots) -> sqlx::Result<(Moment, Vec<(Claimed, Registered)>)> {
        let mut connection = self.parts.pool.acquire().await?;
        self.in_flight.claim_and_register(&mut connection, self.run_lease(), slots, self.parts.clock.now()).await
    }

    /// Whether leases that began at this time may soon expire, so that no attempt may begin.
    pub(super) fn is_too_old(&self, requested: Moment) -> bool {
        requested.elapsed() > Duration::from_secs(self.parts.settings.lost_after_secs) / 3
    }

    /// Hands over the runs that a claim or a decision with a lost reply may have taken; returns false if that is not
    /// possible now.
    ///
    /// Only the loop of the executor calls it: no claim is in progress then.
    pub(super) async fn hand_over_unknown(&self) -> bool {
        if !self.has_unknown_claims.load(Ordering::SeqCst) && !self.parts.offered.has_unknown_runs() {
            return true;
        }
        if self.parts.offered.has_unknown_runs() {
            self.expect_late_commits();
        }
        // A run that a fire starts now would be unknown, too, although its attempt is about to begin.
        let stopping = tokio::time::timeout(DECISION_LIMIT, self.parts.offered.stop_starts());
        let Ok(stopped) = stopping.await else {
            tracing::warn!(
                "unknown runs not handed over, because a fire is still being decided; the next poll tries again"
            );
            return false;
        };
        let handed_over = async {
            let mut connection = self.parts.pool.acquire().await?;
            let (instance, known) = (self.parts.instance, self.in_flight.known_attempts());
            let unknown = claim::find_unknown(&mut connection, instance, &known).await?;
            if unknown.is_empty() {
                return Ok(Unknown::default());
            }
            let max_age = f64::from(self.parts.settings.max_age_secs);
            claim::hand_over_unknown(&mut connection, instance, &unknown, max_age).await
        };
        let handed_over: sqlx::Result<Unknown> = handed_over.await;
        match handed_over {
            Ok(Unknown { handed_over, locked }) => {
                self.has_unknown_claims.store(locked > 0 || self.may_commit_late(), Ordering::SeqCst);
                self.parts.offered.forget_unknown_runs(&stopped);
                if handed_over > 0 {
                    tracing::warn!(
                        runs = handed_over,
                        "runs handed over, because the reply to their claim or decision was lost"
                    );
                }
                true
            }
            Err(error) => {
                tracing::warn!(%error, "runs not handed over, although the reply to their claim or decision was lost; the next poll tries again");
                false
            }
        }
    }

    /// A reply was lost: Postgres may execute its statement after the next hand-over, so later claims hand over, too.
    pub(super) fn expect_late_commits(&self) {
        *self.late_commits_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + LATE_COMMITS);
    }

    fn may_commit_late(&self) -> bool {
        let until = *self.late_commits_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Ends the leases of attempts that stopped without an outcome, so that recovery decides them.
    pub(super) async fn release_stopped(&self) {
        let stopped = self.in_flight.stopped_attempts();
        if stopped.is_empty() {
            return;
        }
        let released = async {
            let mut connection = self.parts.leases.acquire().await?;
            claim::release_attempts(&mut connection, self.parts.instance, &stopped).await
        };
        match released.await {
            // A later heartbeat releases the runs whose rows are locked now.
            Ok(locked) => {
                let done: Vec<_> = stopped.into_iter().filter(|fence| !locked.contains(fence)).collect();
                self.in_flight.forget_stopped(&done);
            }
            Err(error) => tracing::warn!(%error, "leases of stopped runs not released; they expire"),
        }
    }
}
