//! Steps 3 and 4 of 7: what a sweep found and did, kept in its row from page to page.

use serde::{Deserialize, Serialize};

/// How EventBridge differs from the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Class {
    /// A schedule that is wanted does not stand there.
    Missing,
    /// A schedule with a name of ours that no workflow accounts for.
    Orphan,
    /// It differs in any other way; also one whose workflow wants none.
    Changed,
    /// It was published in an older shape.
    StaleTemplate,
    /// It is as it should be, but switched off.
    DisabledOutOfBand,
}

/// Counts of schedules, unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Findings {
    /// Listed by EventBridge.
    pub listed: u64,
    /// Of those, with a name that is not ours; never touched.
    pub foreign: u64,
    /// Left out, because the publisher is at work on them or has just been.
    pub skipped: u64,
    /// Read whole: the suspects and the sample.
    pub read: u64,
    /// Of those, read only because it was their turn.
    pub sampled: u64,
    /// To be read, but EventBridge did not let us; the next sweep tries again.
    pub unread: u64,
    /// Wanted, and not there.
    pub missing: u64,
    /// There, and no workflow accounts for it.
    pub orphan: u64,
    /// Otherwise than wanted.
    pub changed: u64,
    /// In an older shape.
    pub stale_template: u64,
    /// Switched off by somebody else.
    pub disabled_out_of_band: u64,
    /// Differs only because a generation was raised: queued for its rollout.
    pub explained: u64,
    /// Workflows handed to the publisher to be put right.
    pub repaired: u64,
    /// Deletes, disables and changes that would have been made, but were too many without `force`.
    pub changes_refused: u64,
    /// Orphans handed to the publisher to be deleted.
    pub orphans_deleted: u64,
    /// Orphans that would have been deleted, but were too many without `force`.
    pub orphans_refused: u64,
    /// Orphans seen for the first time, or less than ten minutes ago.
    pub orphans_waiting: u64,
    /// Orphans that carry another database's identity: never deleted.
    pub orphans_foreign: u64,
    /// Why the sweep last had to stop in the middle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<String>,
}

impl Findings {
    /// Counts one difference.
    pub(crate) fn count(&mut self, class: Class) {
        *match class {
            Class::Missing => &mut self.missing,
            Class::Orphan => &mut self.orphan,
            Class::Changed => &mut self.changed,
            Class::StaleTemplate => &mut self.stale_template,
            Class::DisabledOutOfBand => &mut self.disabled_out_of_band,
        } += 1;
    }

    /// Forgets what was counted page by page: the list starts anew, and what is enqueued stays enqueued.
    pub(crate) fn restart(&mut self) {
        *self = Findings { repaired: self.repaired, stopped_by: self.stopped_by.take(), ..Findings::default() };
    }

    /// How many differences there are, orphans included.
    pub fn drift(&self) -> u64 {
        self.missing + self.orphan + self.changed + self.stale_template + self.disabled_out_of_band
    }
}

impl Class {
    /// As `publications.drift` spells it.
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
