//! Steps 3 and 4 of 7: one claimed batch, from reading its workflows to the last answer.
//!
//! Each answer is handed on as it comes; until it has come, a daemon renews the lease.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::stream::{FuturesUnordered, StreamExt};
use schedule::WorkflowId;
use tokio::sync::mpsc::UnboundedSender;

use crate::Publisher;
use crate::converge::converge;
use crate::inject::Point;
use crate::lease::{Lease, RENEW_AFTER, Renewal};
use crate::outbox::{self, Batch, Claim};
use crate::settlement::Settlement;
use crate::workflows::{self, Workflow};

impl Publisher {
    /// Converges the workflows of a batch.
    ///
    /// # Errors
    /// The database's, before any call was made.
    pub(crate) async fn work(
        &self,
        batch: Batch,
        renewal: Renewal,
        answers: &UnboundedSender<Settlement>,
    ) -> anyhow::Result<()> {
        let Batch { claims, lease, .. } = batch;
        let held = Held::new(&claims);
        tokio::select! {
            worked = self.converge_all(claims, &lease, &held, answers) => worked,
            never = self.keep(&held, &lease), if renewal == Renewal::On => match never {},
        }
    }

    async fn converge_all(
        &self,
        claims: Vec<Claim>,
        lease: &Lease,
        held: &Held,
        answers: &UnboundedSender<Settlement>,
    ) -> anyhow::Result<()> {
        let ids: Vec<i64> = claims.iter().map(|claim| claim.workflow_id.0).collect();
        let read = workflows::read(self.pool(), &ids).await?;
        self.injector().at(Point::P5).await;
        let mut workflows: HashMap<_, Workflow> = read.into_iter().map(|workflow| (workflow.id, workflow)).collect();
        let work = claims.into_iter().filter_map(|claim| workflows.remove(&claim.workflow_id).map(|is| (claim, is)));
        let mut converging: FuturesUnordered<_> = work
            .map(|(claim, workflow)| async move {
                self.injector().at(Point::P11).await;
                converge(self, claim, &workflow, lease).await
            })
            .collect();
        while let Some(settlement) = converging.next().await {
            held.let_go(settlement.claim.workflow_id);
            // The pipeline listens for as long as this is polled, which it does itself.
            let _ = answers.send(settlement);
        }
        Ok(())
    }

    /// Renews the leases of a batch for as long as it is worked on.
    async fn keep(&self, held: &Held, lease: &Lease) -> Infallible {
        loop {
            tokio::time::sleep(RENEW_AFTER).await;
            let sent = lease.now();
            let keys = held.keys();
            match outbox::renew(self.pool(), &keys).await {
                Ok(true) => lease.renewed(sent),
                // Settled meanwhile, or lapsed: what is settled needs no lease.
                Ok(false) if held.keys().len() < keys.len() => {}
                Ok(false) => tracing::warn!("a lease has lapsed while its workflow was worked on"),
                Err(error) => tracing::warn!(%error, "leases could not be renewed"),
            }
        }
    }
}

/// The claims of a batch that wait for their answer, by epoch.
struct Held(Mutex<HashMap<WorkflowId, i64>>);

impl Held {
    fn new(claims: &[Claim]) -> Self {
        Held(Mutex::new(claims.iter().map(|claim| (claim.workflow_id, claim.epoch)).collect()))
    }

    fn let_go(&self, workflow: WorkflowId) {
        self.lock().remove(&workflow);
    }

    fn keys(&self) -> Vec<(i64, i64)> {
        self.lock().iter().map(|(workflow, epoch)| (workflow.0, *epoch)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<WorkflowId, i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
