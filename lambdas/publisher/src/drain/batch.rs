//! Steps 3 and 4 of 7: one claimed batch, from reading its workflows to the last answer.
//!
//! Each answer is passed on when it arrives; until then a daemon renews the lease.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use futures::stream::{FuturesUnordered, StreamExt};
use schedule::WorkflowId;
use tokio::sync::mpsc::UnboundedSender;

use crate::claim::workflows::{Workflow, read_workflows};
use crate::claim::{self, Batch, Claim};
use crate::converge::converge_workflow;
use crate::failpoint::Point;
use crate::publisher::Publisher;
use crate::scheduler::lease::{Lease, RENEW_AFTER, RENEW_AGAIN, Renewal};
use crate::settle::settlement::Settlement;

impl Publisher {
    /// Converges the workflows of a batch.
    ///
    /// # Errors
    /// Fails if the database fails before the first call.
    pub(crate) async fn converge_batch(
        &self,
        batch: Batch,
        renewal: Renewal,
        answers: &UnboundedSender<Settlement>,
    ) -> anyhow::Result<()> {
        let Batch { claims, lease, .. } = batch;
        let leases = Leases::new(&claims, &lease);
        tokio::select! {
            progress = self.converge_all(claims, &leases, answers) => progress,
            never = self.keep(&leases, &lease), if renewal == Renewal::On => match never {},
        }
    }

    async fn converge_all(
        &self,
        claims: Vec<Claim>,
        leases: &Leases,
        answers: &UnboundedSender<Settlement>,
    ) -> anyhow::Result<()> {
        let ids: Vec<i64> = claims.iter().map(|claim| claim.workflow_id.0).collect();
        let read = read_workflows(self.pool(), &ids).await?;
        self.injector().pass_point(Point::P5).await;
        let mut workflows: HashMap<_, Workflow> = read.into_iter().map(|workflow| (workflow.id, workflow)).collect();
        let work = claims.into_iter().filter_map(|claim| {
            let (workflow, lease) = (workflows.remove(&claim.workflow_id)?, leases.lease(claim.workflow_id)?);
            Some((claim, workflow, lease))
        });
        let mut converging: FuturesUnordered<_> = work
            .map(|(claim, workflow, lease)| async move {
                self.injector().pass_point(Point::P11).await;
                converge_workflow(self, claim, &workflow, &lease).await
            })
            .collect();
        while let Some(settlement) = converging.next().await {
            leases.let_go(settlement.claim.workflow_id);
            // The pipeline receives for as long as this future is polled, because it polls the future.
            let _ = answers.send(settlement);
        }
        Ok(())
    }

    /// Renews the leases of a batch until the batch is answered.
    async fn keep(&self, leases: &Leases, lease: &Lease) -> Infallible {
        let mut pause = RENEW_AFTER;
        loop {
            tokio::time::sleep(pause).await;
            let (sent, keys) = (lease.now(), leases.keys());
            let missed = match claim::renew_leases(self.pool(), &keys).await {
                Ok(renewed) => leases.renewed(&keys, &renewed, sent),
                Err(error) => {
                    tracing::warn!(%error, "leases not renewed; trying again");
                    keys.len()
                }
            };
            if missed > 0 {
                tracing::warn!(missed, "leases not renewed: their publications are locked, or the leases expired");
            }
            pause = if missed > 0 { RENEW_AGAIN } else { RENEW_AFTER };
        }
    }
}

/// The claims of a batch that wait for their answer: each with its epoch, and its own lease.
struct Leases(Mutex<HashMap<WorkflowId, (i64, Lease)>>);

impl Leases {
    fn new(claims: &[Claim], lease: &Lease) -> Self {
        Leases(Mutex::new(claims.iter().map(|claim| (claim.workflow_id, (claim.epoch, lease.of_one()))).collect()))
    }

    fn lease(&self, workflow: WorkflowId) -> Option<Lease> {
        self.lock().get(&workflow).map(|(_, lease)| lease.clone())
    }

    /// Extends the leases that a statement sent at `sent` has renewed; returns how many were not renewed.
    fn renewed(&self, requested: &[(i64, i64)], renewed: &[i64], sent: Instant) -> usize {
        let leases = self.lock();
        // A workflow that was answered meanwhile needs no lease any more.
        let waiting = requested.iter().filter_map(|(id, _)| Some((id, leases.get(&WorkflowId(*id))?)));
        let (extended, missed): (Vec<_>, Vec<_>) = waiting.partition(|(id, _)| renewed.contains(id));
        extended.iter().for_each(|(_, (_, lease))| lease.extend_from(sent));
        missed.len()
    }

    fn let_go(&self, workflow: WorkflowId) {
        self.lock().remove(&workflow);
    }

    fn keys(&self) -> Vec<(i64, i64)> {
        self.lock().iter().map(|(workflow, (epoch, _))| (workflow.0, *epoch)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<WorkflowId, (i64, Lease)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
