//! Step 4 of 7: in what way a schedule differs from what its workflow wants. Pure.
//!
//! Two stages: [`glance`] decides by the list, which is cheap; [`look`] by the schedule read in full,
//! which is done for those that the glance makes suspects, and for a sample.

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::config::Config;
use crate::deployment::Rollout;
use crate::desired::{Desired, Spec, State, TEMPLATE, Undecided, desired};
use crate::schedules::{Listed, Standing};
use crate::sweep::findings::Class;
use crate::sweep::known::Known;
use crate::workflows::Removal;

/// What the list alone tells.
#[derive(Debug)]
pub(crate) enum Glance {
    /// Nothing speaks against it; the spec serves if it is sampled.
    InStep(Box<Spec>),
    /// Read it in full, and compare it with this.
    Suspect(Box<Spec>),
    /// A raised generation may explain that it differs from this: read it in full to tell.
    Outdated(Box<Spec>),
    /// It differs, whatever else it holds.
    Differs(Class, Weight),
    /// No workflow accounts for it, and no delete event: the guard for orphans decides.
    Orphan,
    /// Nothing can be said now.
    Skipped,
}

/// What the schedule read in full tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// As wanted; changed last at this time.
    InStep(Option<DateTime<Utc>>),
    Differs(Class, Weight),
}

/// What a repair amounts to: whether it may be done at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// It brings back what is due, or an edit asked for it: it never waits.
    Free,
    /// A raised generation explains it: canaries first.
    Explained,
    /// It deletes, disables or changes, and nothing explains it: many of them wait for force.
    Braked,
}

/// Compares a schedule by the list.
pub(crate) fn glance(listed: &Listed, known: &Known, config: &Config, rollout: Rollout, now: DateTime<Utc>) -> Glance {
    let publication = known.publication.as_ref();
    let wanted = match desired(&known.workflow, None, config, now) {
        Err(Undecided::Vanished) if publication.is_some_and(|publication| publication.is_leased) => {
            return Glance::Skipped;
        }
        // Also one that is backed off, which it is because its row vanished.
        Err(Undecided::Vanished) => return Glance::Orphan,
        wanted => wanted,
    };
    if publication.is_some_and(|publication| publication.is_busy) {
        return Glance::Skipped;
    }
    match (wanted, publication) {
        // The last good schedule stays, and its owner is told by `sync`.
        (Err(_), _) => Glance::Skipped,
        (Ok(Desired::Nothing), _) => {
            let is_requested = known.workflow.removal == Removal::Requested;
            Glance::Differs(Class::Changed, if is_requested { Weight::Free } else { Weight::Braked })
        }
        // A restored database may know nothing of a publication that exists.
        (Ok(Desired::Schedule(spec)), None) => Glance::Suspect(spec),
        (Ok(Desired::Schedule(spec)), Some(publication)) => {
            // What we would publish today is not what we published: another role, another queue.
            // No configuration disables a schedule.
            let disables = listed.is_enabled && spec.state == State::Disabled;
            let may_be_explained = rollout == Rollout::Open && !disables;
            // A new shape may change every field.
            if publication.template.is_some_and(|number| number < TEMPLATE) {
                let weight = if may_be_explained { Weight::Explained } else { Weight::Braked };
                return Glance::Differs(Class::StaleTemplate, weight);
            }
            if publication.spec_hash != Some(spec.hash()) {
                let differs = Glance::Differs(Class::Changed, Weight::Braked);
                return if may_be_explained { Glance::Outdated(spec) } else { differs };
            }
            let is_untouched = listed.modified_on.is_some() && listed.modified_on == publication.seen_modified_at;
            let is_alike = listed.is_enabled == (spec.state == State::Enabled)
                && listed.target_arn.as_ref() == Some(&spec.target_arn);
            if is_untouched && is_alike { Glance::InStep(spec) } else { Glance::Suspect(spec) }
        }
    }
}

/// Compares a schedule that was read in full; `None` = it was not there any more.
pub(crate) fn look(standing: Option<&Standing>, spec: &Spec, now: DateTime<Utc>) -> Look {
    let Some(standing) = standing else { return Look::Differs(Class::Missing, Weight::Free) };
    if spec.is(standing, now) {
        return Look::InStep(standing.modified_on);
    }
    let switched_on = Standing { is_enabled: true, ..standing.clone() };
    if !standing.is_enabled && spec.is(&switched_on, now) {
        return Look::Differs(Class::DisabledOutOfBand, Weight::Free);
    }
    match standing.input.as_deref().and_then(template_of) {
        Some(number) if number < i64::from(TEMPLATE) => Look::Differs(Class::StaleTemplate, Weight::Braked),
        _ => Look::Differs(Class::Changed, Weight::Braked),
    }
}

/// Compares a schedule of an older generation, read in full: no configuration changes when it fires.
pub(crate) fn look_at_outdated(standing: Option<&Standing>, spec: &Spec, now: DateTime<Utc>) -> Look {
    let Some(standing) = standing else { return Look::Differs(Class::Missing, Weight::Free) };
    let weight = if spec.has_times_of(standing, now) { Weight::Explained } else { Weight::Braked };
    Look::Differs(Class::Changed, weight)
}

/// The revision that a schedule was published with.
pub(crate) fn revision_of(input: &str) -> Option<i64> {
    serde_json::from_str::<Value>(input).ok()?.get("revision")?.as_i64()
}

fn template_of(input: &str) -> Option<i64> {
    serde_json::from_str::<Value>(input).ok()?.get("template")?.as_i64()
}
