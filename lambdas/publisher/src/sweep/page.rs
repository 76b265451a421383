//! Step 4 of 7: one page of the list: compared with what is known, the suspects read whole.
//!
//! Nothing is written here, and no transaction is open while EventBridge is asked.

use std::collections::HashMap;

use futures::StreamExt;
use futures::stream;
use schedule::{ScheduleName, WorkflowId};

use super::compare::{Glance, Look, glance, look};
use super::findings::{Class, Findings};
use super::known::{self, Known};
use super::repair::{Confirmed, Difference};
use super::turn::Turn;
use super::{Publisher, SAMPLE};
use crate::desired::Spec;
use crate::lease::Lease;
use crate::schedules::{Listed, Page};

/// What a page came to.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    pub(crate) findings: Findings,
    /// Workflows whose schedule was listed.
    pub(crate) sighted: Vec<i64>,
    pub(crate) differences: Vec<Difference>,
    /// Workflows, with their revision, that want no schedule and never had one of ours.
    pub(crate) unpublished: Vec<(i64, i64)>,
    pub(crate) confirmed: Vec<Confirmed>,
    pub(crate) orphans: Vec<String>,
}

/// A schedule to be read whole.
struct Question {
    workflow_id: i64,
    epoch: i64,
    spec: Box<Spec>,
}

impl Publisher {
    /// Compares a page; the findings go on from the sweep's.
    pub(super) async fn compare(&self, turn: &Turn, page: &Page, lease: &Lease) -> anyhow::Result<Compared> {
        let mut compared = Compared { findings: turn.findings.clone(), ..Compared::default() };
        compared.findings.listed += page.schedules.len() as u64;
        let env = &self.config().env;
        // Whose name is not ours, to the letter, is nobody's business but its maker's.
        let ours: HashMap<WorkflowId, &Listed> = page
            .schedules
            .iter()
            .filter_map(|listed| ScheduleName::parse(&listed.name, env).map(|name| (name.workflow_id(), listed)))
            .collect();
        compared.findings.foreign += (page.schedules.len() - ours.len()) as u64;
        compared.sighted = ours.keys().map(|id| id.0).collect();
        let mut questions = Vec::new();
        for known in known::read(self.pool(), &compared.sighted).await? {
            if let Some(listed) = ours.get(&known.workflow.id) {
                questions.extend(self.glance_at(turn, listed, known, &mut compared));
            }
        }
        self.ask(questions, lease, &mut compared).await;
        Ok(compared)
    }

    /// The first stage; what it cannot settle is a question.
    fn glance_at(&self, turn: &Turn, listed: &Listed, known: Known, compared: &mut Compared) -> Option<Question> {
        let (workflow_id, now) = (known.workflow.id.0, self.clock().now());
        let epoch = known.publication.as_ref().map(|publication| publication.epoch);
        match (glance(listed, &known, self.config(), now), epoch) {
            (Glance::Skipped, _) => compared.findings.skipped += 1,
            (Glance::Differs(class), Some(epoch)) => compared.differ(workflow_id, epoch, class),
            (Glance::Differs(Class::Orphan), None) => {
                compared.findings.count(Class::Orphan);
                compared.orphans.push(listed.name.clone());
            }
            (Glance::Differs(class), None) => {
                compared.findings.count(class);
                compared.unpublished.push((workflow_id, known.workflow.revision.0));
            }
            (Glance::Suspect(spec), Some(epoch)) => return Some(Question { workflow_id, epoch, spec }),
            (Glance::InStep(spec), Some(epoch)) if turn.samples(workflow_id, &compared.findings) => {
                compared.findings.sampled += 1;
                return Some(Question { workflow_id, epoch, spec });
            }
            (Glance::InStep(_) | Glance::Suspect(_), _) => {}
        }
        None
    }

    /// The second stage: reads schedules whole, many at a time.
    async fn ask(&self, questions: Vec<Question>, lease: &Lease, compared: &mut Compared) {
        let together = questions.len().max(1);
        let asking = questions.into_iter().map(|question| async move {
            let answer = self.allowed(lease, self.schedules().get(&question.spec.name, lease)).await;
            (question, answer)
        });
        let mut answers = stream::iter(asking).buffer_unordered(together);
        while let Some((Question { workflow_id, epoch, spec }, answer)) = answers.next().await {
            match answer.map(|standing| look(standing.as_ref(), &spec, self.clock().now())) {
                Ok(Look::InStep(modified_on)) => {
                    compared.confirmed.push(Confirmed { workflow_id, epoch, modified_on });
                }
                Ok(Look::Differs(class)) => compared.differ(workflow_id, epoch, class),
                Err(fault) => {
                    tracing::debug!(workflow_id, "{} cannot be read: {}", spec.name, fault.message);
                    compared.findings.unread += 1;
                    compared.findings.stopped_by.get_or_insert(fault.message);
                    continue;
                }
            }
            compared.findings.read += 1;
        }
    }
}

impl Compared {
    fn differ(&mut self, workflow_id: i64, epoch: i64, class: Class) {
        tracing::warn!(workflow_id, class = class.as_str(), "sweep: schedule of workflow {workflow_id}: {class:?}");
        self.findings.count(class);
        self.differences.push(Difference { workflow_id, epoch, class });
    }
}

impl Turn {
    /// Whether it is this workflow's turn to be read, though nothing speaks against it.
    fn samples(&self, workflow_id: i64, findings: &Findings) -> bool {
        findings.sampled < SAMPLE.unsigned_abs()
            && workflow_id.rem_euclid(self.sample_every) == self.id.rem_euclid(self.sample_every)
    }
}
