//! Steps 3 and 4 of 7: the findings of a sweep, stored in its row from page to page.

use serde::{Deserialize, Serialize};

/// How EventBridge differs from the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Class {
    /// The required schedule does not exist.
    Missing,
    /// A schedule with a name of this environment that belongs to no workflow.
    Orphan,
    /// The schedule differs in any other way, or its workflow requires none.
    Changed,
    /// The schedule was published with an older template.
    StaleTemplate,
    /// The schedule is as required, except that it is disabled.
    DisabledOutOfBand,
}

/// Counts of schedules, unless a field says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Findings {
    /// Schedules that EventBridge listed.
    pub listed: u64,
    /// Listed schedules with a name of another program or environment, which are never changed.
    pub foreign: u64,
    /// Schedules that were skipped, because the publisher processes them or has just done so.
    pub skipped: u64,
    /// Schedules that were read in full: the suspects and the sample.
    pub read: u64,
    /// Schedules that were read in full only as a sample.
    pub sampled: u64,
    /// Schedules that EventBridge refused to return; the next sweep tries again.
    pub unread: u64,
    /// Schedules that are required and do not exist.
    pub missing: u64,
    /// Schedules that belong to no workflow.
    pub orphan: u64,
    /// Schedules that differ from what is required.
    pub changed: u64,
    /// Schedules that were published with an older template.
    pub stale_template: u64,
    /// Schedules that another program disabled.
    pub disabled_out_of_band: u64,
    /// Schedules that differ only because a generation was raised, and are queued for its rollout.
    pub explained: u64,
    /// Workflows enqueued for repair.
    pub repaired: u64,
    /// Deletes, disables and changes that were refused because they were too many without `force`.
    pub changes_refused: u64,
    /// Orphans enqueued for deletion.
    pub orphans_deleted: u64,
    /// Orphans whose deletion was refused because they were too many without `force`.
    pub orphans_refused: u64,
    /// Orphans first listed by this sweep, or less than ten minutes ago.
    pub orphans_waiting: u64,
    /// Orphans with another database's identity: never deleted.
    pub orphans_foreign: u64,
    /// Why the sweep was last interrupted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<String>,
}

impl Findings {
    /// Counts one difference.
    pub(crate) fn count_difference(&mut self, class: Class) {
        *match class {
            Class::Missing => &mut self.missing,
            Class::Orphan => &mut self.orphan,
            Class::Changed => &mut self.changed,
            Class::StaleTemplate => &mut self.stale_template,
            Class::DisabledOutOfBand => &mut self.disabled_out_of_band,
        } += 1;
    }

    /// Resets what was counted page by page, because the list starts again; enqueued repairs remain enqueued.
    pub(crate) fn restart_list(&mut self) {
        *self = Findings { repaired: self.repaired, stopped_by: self.stopped_by.take(), ..Findings::default() };
    }

    /// How many of the listed schedules have a name of this environment.
    pub(crate) fn count_ours(&self) -> i64 {
        i64::try_from(self.listed.saturating_sub(self.foreign)).unwrap_or(i64::MAX)
    }

    /// How many differences there are, orphans included.
    pub fn total_drift(&self) -> u64 {
        self.missing + self.orphan + self.changed + self.stale_template + self.disabled_out_of_band
    }
}

impl Class {
    /// The value in `publications.drift`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Class::Missing => "missing",
            Class::Orphan => "orphan",
            Class::Changed => "changed",
            Class::StaleTemplate => "stale_template",
            Class::DisabledOutOfBand => "disabled_out_of_band",
        }
    }
}
