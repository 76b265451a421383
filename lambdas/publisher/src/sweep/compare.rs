//! Step 4 of 7: how a schedule differs from the one that its workflow requires. Pure.
//!
//! Two stages: [`compare_listed`] compares a listed schedule, which is cheap; [`compare_in_full`] compares a schedule
//! read in full, for the suspects of the first stage and for a sample.

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::claim::deployment::Rollout;
use crate::claim::workflows::Removal;
use crate::config::Config;
use crate::converge::desired::{self, Desired, Undecided, desired_schedule};
use crate::scheduler::existing::Existing;
use crate::scheduler::list::Listed;
use crate::scheduler::spec::{Spec, State, TEMPLATE};
use crate::sweep::findings::Class;
use crate::sweep::workflow_record::WorkflowRecord;

/// The result of comparing a listed schedule.
#[derive(Debug)]
pub(crate) enum ListedComparison {
    /// No difference is visible; the spec is used if the schedule is sampled.
    InStep(Box<Spec>),
    /// Read it in full, and compare it with this spec.
    Suspect(Box<Spec>),
    /// A raised generation may explain the difference from this spec; read it in full to decide.
    Outdated(Box<Spec>),
    /// The schedule differs, whatever its other fields are.
    Differs(Class, Weight),
    /// Neither a workflow nor a delete event explains the schedule: the orphan guard decides.
    Orphan,
    /// The schedule cannot be compared now.
    Skipped,
}

/// The result of comparing a schedule that was read in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// The schedule is as required; EventBridge last changed it at this time.
    InStep(Option<DateTime<Utc>>),
    Differs(Class, Weight),
}

/// Whether a repair may be done at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// The repair never waits: it restores a schedule that is due, or an edit or new zone data requested it.
    Free,
    /// A raised generation explains the difference, so the repair waits for the canaries of the rollout.
    Explained,
    /// The repair deletes, disables or changes, and nothing explains it: if there are many, they wait for force.
    Braked,
}

/// Compares a listed schedule.
pub(crate) fn compare_listed(
    listed: &Listed,
    record: &WorkflowRecord,
    config: &Config,
    rollout: Rollout,
    now: DateTime<Utc>,
) -> ListedComparison {
    let publication = record.publication.as_ref();
    let wanted = match desired_schedule(&record.workflow, None, config, now) {
        Err(Undecided::Vanished) if publication.is_some_and(|publication| publication.is_leased) => {
            return ListedComparison::Skipped;
        }
        // An orphan even if its publication is backed off, because the drain backs off a workflow whose row vanished.
        Err(Undecided::Vanished) => return ListedComparison::Orphan,
        wanted => wanted,
    };
    if publication.is_some_and(|publication| publication.is_busy) {
        return ListedComparison::Skipped;
    }
    match (wanted, publication) {
        // The last valid schedule is kept; `sync` shows the error to the owner.
        (Err(_), _) => ListedComparison::Skipped,
        (Ok(Desired::Nothing), _) => {
            let is_requested = record.workflow.removal == Removal::Requested;
            ListedComparison::Differs(Class::Changed, if is_requested { Weight::Free } else { Weight::Braked })
        }
        // A restored database may not know an existing schedule.
        (Ok(Desired::Schedule(spec)), None) => ListedComparison::Suspect(spec),
        (Ok(Desired::Schedule(spec)), Some(publication)) => {
            // The configuration has changed since the schedule was published: another role, another queue. No
            // configuration disables a schedule.
            let disables = listed.is_enabled && spec.state == State::Disabled;
            let may_be_explained = rollout == Rollout::Open && !disables;
            // A new template may change every field.
            if publication.template.is_some_and(|number| number < TEMPLATE) {
                let weight = if may_be_explained { Weight::Explained } else { Weight::Braked };
                return ListedComparison::Differs(Class::StaleTemplate, weight);
            }
            if is_of_other_zones(record, &spec) {
                return ListedComparison::Differs(Class::Changed, Weight::Free);
            }
            if publication.spec_hash != Some(spec.spec_hash()) {
                let differs = ListedComparison::Differs(Class::Changed, Weight::Braked);
                return if may_be_explained { ListedComparison::Outdated(spec) } else { differs };
            }
            let is_untouched = listed.modified_on.is_some() && listed.modified_on == publication.seen_modified_at;
            let is_alike = listed.is_enabled == (spec.state == State::Enabled)
                && listed.target_arn.as_ref() == Some(&spec.target_arn);
            if is_untouched && is_alike { ListedComparison::InStep(spec) } else { ListedComparison::Suspect(spec) }
        }
    }
}

/// Whether only the zone data have changed since the schedule was published.
fn is_of_other_zones(record: &WorkflowRecord, spec: &Spec) -> bool {
    let published = record.publication.as_ref().and_then(|publication| publication.spec_hash.as_deref());
    let (Some(row), Some(hash)) = (&record.workflow.row, published) else { return false };
    hash != spec.spec_hash() && desired::is_of_other_zones(row, spec, hash)
}

/// Compares a schedule that was read in full; `None` = it did not exist any more.
pub(crate) fn compare_in_full(existing: Option<&Existing>, spec: &Spec, now: DateTime<Utc>) -> Comparison {
    let Some(existing) = existing else { return Comparison::Differs(Class::Missing, Weight::Free) };
    if spec.matches_existing(existing, now) {
        return Comparison::InStep(existing.modified_on);
    }
    let switched_on = Existing { is_enabled: true, ..existing.clone() };
    if !existing.is_enabled && spec.matches_existing(&switched_on, now) {
        return Comparison::Differs(Class::DisabledOutOfBand, Weight::Free);
    }
    match existing.input.as_deref().and_then(template_of) {
        Some(number) if number < i64::from(TEMPLATE) => Comparison::Differs(Class::StaleTemplate, Weight::Braked),
        _ => Comparison::Differs(Class::Changed, Weight::Braked),
    }
}

/// Compares a schedule of an older generation, read in full: no configuration changes when it fires.
pub(crate) fn compare_outdated(existing: Option<&Existing>, spec: &Spec, now: DateTime<Utc>) -> Comparison {
    let Some(existing) = existing else { return Comparison::Differs(Class::Missing, Weight::Free) };
    let weight = if spec.has_times_of(existing, now) { Weight::Explained } else { Weight::Braked };
    Comparison::Differs(Class::Changed, weight)
}

/// Returns the revision that a schedule was published with.
pub(crate) fn revision_of(input: &str) -> Option<i64> {
    serde_json::from_str::<Value>(input).ok()?.get("revision")?.as_i64()
}

/// Returns the workflow that the fires of a schedule name.
pub(crate) fn workflow_of(input: &str) -> Option<i64> {
    serde_json::from_str::<Value>(input).ok()?.get("workflow_id")?.as_i64()
}

fn template_of(input: &str) -> Option<i64> {
    serde_json::from_str::<Value>(input).ok()?.get("template")?.as_i64()
}
