//! Step 4 of 7: in what way a schedule differs from what its workflow wants. Pure.
//!
//! Two stages: [`glance`] judges by the list, which is cheap; [`look`] by the schedule read whole,
//! which is done for those that the glance makes suspects, and for a sample.

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::config::Config;
use crate::desired::{Desired, Spec, State, TEMPLATE, desired};
use crate::schedules::{Listed, Standing};
use crate::sweep::findings::Class;
use crate::sweep::known::Known;

/// What the list alone tells.
#[derive(Debug)]
pub(crate) enum Glance {
    /// Nothing speaks against it; the spec serves if it is sampled.
    InStep(Box<Spec>),
    /// Read it whole, and compare it with this.
    Suspect(Box<Spec>),
    /// It differs, whatever else it holds.
    Differs(Class),
    /// Nothing can be said now.
    Skipped,
}

/// What the whole schedule tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// As wanted; changed last at this time.
    InStep(Option<DateTime<Utc>>),
    Differs(Class),
}

/// Judges a schedule by the list.
pub(crate) fn glance(listed: &Listed, known: &Known, config: &Config, now: DateTime<Utc>) -> Glance {
    let Some(publication) = &known.publication else {
        // Who has a workflow is no orphan: it wants none, or a restored database knows no better.
        let class = if known.workflow.row.is_some() { Class::Changed } else { Class::Orphan };
        return Glance::Differs(class);
    };
    if publication.is_busy {
        return Glance::Skipped;
    }
    match desired(&known.workflow, None, config, now) {
        // The last good schedule stays, and its owner is told by `sync`.
        Err(_) => Glance::Skipped,
        Ok(Desired::Nothing) => Glance::Differs(Class::Changed),
        Ok(Desired::Schedule(_)) if publication.template.is_some_and(|number| number < TEMPLATE) => {
            Glance::Differs(Class::StaleTemplate)
        }
        // What we would publish today is not what we published: another role, another queue.
        Ok(Desired::Schedule(spec)) if publication.spec_hash != Some(spec.hash()) => Glance::Differs(Class::Changed),
        Ok(Desired::Schedule(spec)) => {
            let is_untouched = listed.modified_on.is_some() && listed.modified_on == publication.seen_modified_at;
            let is_alike = listed.is_enabled == (spec.state == State::Enabled)
                && listed.target_arn.as_ref() == Some(&spec.target_arn);
            if is_untouched && is_alike { Glance::InStep(spec) } else { Glance::Suspect(spec) }
        }
    }
}

/// Judges a schedule that was read whole; `None` = it was not there any more.
pub(crate) fn look(standing: Option<&Standing>, spec: &Spec, now: DateTime<Utc>) -> Look {
    let Some(standing) = standing else { return Look::Differs(Class::Missing) };
    if spec.is(standing, now) {
        return Look::InStep(standing.modified_on);
    }
    let switched_on = Standing { is_enabled: true, ..standing.clone() };
    if !standing.is_enabled && spec.is(&switched_on, now) {
        return Look::Differs(Class::DisabledOutOfBand);
    }
    match standing.input.as_deref().and_then(template_of) {
        Some(number) if number < i64::from(TEMPLATE) => Look::Differs(Class::StaleTemplate),
        _ => Look::Differs(Class::Changed),
    }
}

fn template_of(input: &str) -> Option<i64> {
    serde_json::from_str::<Value>(input).ok()?.get("template")?.as_i64()
}
