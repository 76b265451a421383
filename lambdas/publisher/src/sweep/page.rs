//! Step 4 of 7: one page of the list: compares it with the database, and reads the suspects in full.
//!
//! Nothing is written here, and no transaction is open during calls to EventBridge.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use futures::StreamExt;
use futures::stream;
use schedule::{ScheduleName, WorkflowId};

use super::compare::{
    Comparison, ListedComparison, Weight, compare_in_full, compare_listed, compare_outdated, revision_of, workflow_of,
};
use super::difference::Difference;
use super::findings::{Class, Findings};
use super::repair::{Adopted, Confirmed};
use super::turn::{SAMPLE, Turn};
use super::workflow_record::{WorkflowRecord, read_records};
use crate::claim::deployment::{Ahead, Unexplained, list_never_given};
use crate::publisher::Publisher;
use crate::scheduler::existing::Existing;
use crate::scheduler::identity::Identity;
use crate::scheduler::lease::Lease;
use crate::scheduler::list::{Listed, Page};
use crate::scheduler::spec::Spec;

/// The result of a page.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    pub(crate) findings: Findings,
    /// Workflows whose schedule was listed.
    pub(crate) sighted: Vec<i64>,
    /// Differences to repair at once.
    pub(crate) free: Vec<Difference>,
    /// Differences for the rollout.
    pub(crate) explained: Vec<Difference>,
    /// Differences for the brake, which counts them first.
    pub(crate) braked: Vec<Difference>,
    pub(crate) confirmed: Vec<Confirmed>,
    pub(crate) adopted: Vec<Adopted>,
    pub(crate) orphans: Vec<String>,
    /// Schedules of this database with a higher revision than the database had.
    pub(crate) ahead: Vec<Ahead>,
    /// A schedule of this database with an id that the database has never given.
    pub(crate) never_given: Option<Unexplained>,
    /// Orphans without a publication.
    unexplained: Vec<Unexplained>,
}

/// A schedule to read in full.
struct Question {
    subject: Subject,
    spec: Box<Spec>,
    doubt: Doubt,
}

/// Why a schedule is read in full.
#[derive(Clone, Copy)]
enum Doubt {
    /// Another program may have changed it.
    Change,
    /// A publisher of an older generation published it.
    Generation,
}

/// The workflow whose schedule is compared.
#[derive(Clone, Copy)]
struct Subject {
    workflow_id: i64,
    /// `None` = there is no publication.
    epoch: Option<i64>,
    revision: i64,
}

impl Publisher {
    /// Compares a page, and adds to the findings of the sweep.
    pub(super) async fn compare_page(
        &self,
        turn: &Turn,
        page: &Page,
        identity: Identity,
        lease: &Lease,
    ) -> anyhow::Result<Compared> {
        let mut compared = Compared { findings: turn.findings.clone(), ..Compared::default() };
        compared.findings.listed += page.schedules.len() as u64;
        let env = &self.config().env;
        // Schedules with any other name belong to another program.
        let ours: HashMap<WorkflowId, &Listed> = page
            .schedules
            .iter()
            .filter_map(|listed| ScheduleName::parse(&listed.name, env).map(|name| (name.workflow_id(), listed)))
            .collect();
        compared.findings.foreign += (page.schedules.len() - ours.len()) as u64;
        compared.sighted = ours.keys().map(|id| id.0).collect();
        let mut questions = Vec::new();
        for record in read_records(self.pool(), &compared.sighted).await? {
            if let Some(listed) = ours.get(&record.workflow.id) {
                questions.extend(self.compare_with_record(turn, listed, record, &mut compared));
            }
        }
        self.ask(questions, lease, &mut compared).await;
        self.ask_about_unexplained(identity, lease, &mut compared).await?;
        Ok(compared)
    }

    /// The first stage; returns a question if it cannot decide.
    fn compare_with_record(
        &self,
        turn: &Turn,
        listed: &Listed,
        record: WorkflowRecord,
        compared: &mut Compared,
    ) -> Option<Question> {
        let subject = Subject {
            workflow_id: record.workflow.id.0,
            epoch: record.publication.as_ref().map(|publication| publication.epoch),
            revision: record.workflow.revision.0,
        };
        match compare_listed(listed, &record, self.config(), turn.rollout, self.clock().now()) {
            ListedComparison::Skipped => compared.findings.skipped += 1,
            ListedComparison::Differs(class, weight) => compared.differ(subject, class, weight),
            ListedComparison::Orphan => {
                compared.findings.count_difference(Class::Orphan);
                compared.orphans.push(listed.name.clone());
                let created_on = listed.created_on.filter(|_| subject.epoch.is_none());
                let workflow_id = subject.workflow_id;
                compared.unexplained.extend(created_on.map(|created_on| Unexplained { workflow_id, created_on }));
            }
            ListedComparison::Suspect(spec) => return Some(Question { subject, spec, doubt: Doubt::Change }),
            ListedComparison::Outdated(spec) => return Some(Question { subject, spec, doubt: Doubt::Generation }),
            ListedComparison::InStep(spec) if turn.samples(subject.workflow_id, &compared.findings) => {
                compared.findings.sampled += 1;
                return Some(Question { subject, spec, doubt: Doubt::Change });
            }
            ListedComparison::InStep(_) => {}
        }
        None
    }

    /// The second stage: reads schedules in full, many at a time.
    async fn ask(&self, questions: Vec<Question>, lease: &Lease, compared: &mut Compared) {
        let together = questions.len().max(1);
        let asking = questions.into_iter().map(|question| async move {
            let answer = self
                .call_when_allowed(lease, self.rate(), self.schedules().get_schedule(&question.spec.name, lease))
                .await;
            (question, answer)
        });
        let mut answers = stream::iter(asking).buffer_unordered(together);
        while let Some((Question { subject, spec, doubt }, answer)) = answers.next().await {
            let existing = answer.as_ref().ok().and_then(Option::as_ref);
            let ahead = existing.and_then(|existing| ahead_of(existing, subject, &spec));
            compared.ahead.extend(ahead);
            let now = self.clock().now();
            let comparison = answer.map(|existing| match doubt {
                Doubt::Change => compare_in_full(existing.as_ref(), &spec, now),
                Doubt::Generation => compare_outdated(existing.as_ref(), &spec, now),
            });
            match comparison {
                // An accepted restore left it. It fires as required, so the brake does not count it.
                Ok(Comparison::InStep(_)) if ahead.is_some() => compared.differ(subject, Class::Changed, Weight::Free),
                Ok(Comparison::InStep(modified_on)) => compared.agree(subject, &spec, modified_on),
                Ok(Comparison::Differs(class, weight)) => compared.differ(subject, class, weight),
                Err(fault) => {
                    tracing::debug!(
                        workflow_id = subject.workflow_id,
                        "schedule {} not read: {}",
                        spec.name,
                        fault.message
                    );
                    compared.findings.unread += 1;
                    compared.findings.stopped_by.get_or_insert(fault.message);
                    continue;
                }
            }
            compared.findings.read += 1;
        }
    }

    /// Searches the orphans for one that only a later state of this database can have published. One that cannot be read is
    /// no orphan of this sweep, so that it is not deleted unread.
    async fn ask_about_unexplained(
        &self,
        identity: Identity,
        lease: &Lease,
        compared: &mut Compared,
    ) -> sqlx::Result<()> {
        if compared.unexplained.is_empty() {
            return Ok(());
        }
        let never_given = list_never_given(self.pool(), &compared.unexplained).await?;
        for one in std::mem::take(&mut compared.unexplained) {
            if !never_given.contains(&one.workflow_id) {
                continue;
            }
            let name = ScheduleName::new(WorkflowId(one.workflow_id), &self.config().env);
            match self.call_when_allowed(lease, self.rate(), self.schedules().get_schedule(&name, lease)).await {
                Ok(Some(existing)) if is_published(&existing, one.workflow_id, identity) => {
                    tracing::error!("schedule {name} was published by a later state of this database");
                    compared.never_given = Some(one);
                    return Ok(());
                }
                Ok(_) => {}
                Err(fault) => {
                    compared.findings.unread += 1;
                    compared.findings.stopped_by.get_or_insert(fault.message);
                    let unread = name.to_string();
                    compared.orphans.retain(|orphan| *orphan != unread);
                }
            }
        }
        Ok(())
    }
}

impl Compared {
    /// Whether EventBridge may be ahead of the database.
    pub(super) fn may_be_ahead(&self) -> bool {
        !self.ahead.is_empty() || self.never_given.is_some()
    }
}

/// Whether a publisher of this database has made the schedule for this workflow. A person's copy of another schedule has its
/// description, too, but its fires name the other workflow.
fn is_published(existing: &Existing, workflow_id: i64, identity: Identity) -> bool {
    existing.description == Some(identity.to_description())
        && existing.input.as_deref().and_then(workflow_of) == Some(workflow_id)
}

/// Returns a schedule of this database if its revision is higher than the database had.
fn ahead_of(existing: &Existing, subject: Subject, spec: &Spec) -> Option<Ahead> {
    let revision = revision_of(existing.input.as_deref()?)?;
    let is_ours = is_published(existing, subject.workflow_id, spec.identity);
    let modified_on = existing.modified_on?;
    (is_ours && revision > subject.revision).then_some(Ahead {
        workflow_id: subject.workflow_id,
        revision,
        modified_on,
    })
}

impl Compared {
    fn differ(&mut self, subject: Subject, class: Class, weight: Weight) {
        let Subject { workflow_id, epoch, revision } = subject;
        self.findings.count_difference(class);
        let difference = Difference { workflow_id, epoch, revision, class: class.as_str().to_owned() };
        if weight == Weight::Explained {
            self.findings.explained += 1;
            return self.explained.push(difference);
        }
        tracing::warn!(workflow_id, class = class.as_str(), "drift found: schedule of workflow {workflow_id}");
        if weight == Weight::Free {
            self.free.push(difference);
        } else {
            self.braked.push(difference);
        }
    }

    fn agree(&mut self, subject: Subject, spec: &Spec, modified_on: Option<DateTime<Utc>>) {
        let Subject { workflow_id, epoch, revision } = subject;
        match epoch {
            Some(epoch) => self.confirmed.push(Confirmed { workflow_id, epoch, modified_on }),
            None => self.adopted.push(Adopted {
                workflow_id,
                revision,
                spec_hash: spec.spec_hash(),
                schedule_name: spec.name.to_string(),
                modified_on,
            }),
        }
    }
}

impl Turn {
    /// Whether it is this workflow's turn to be read, although no difference is visible.
    fn samples(&self, workflow_id: i64, findings: &Findings) -> bool {
        findings.sampled < SAMPLE.unsigned_abs()
            && workflow_id.rem_euclid(self.sample_every) == self.id.rem_euclid(self.sample_every)
    }
}
