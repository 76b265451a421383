//! Step 7 of 7: what a pass of the watchdog reports.

use crate::occurrences::Decision;
use crate::occurrences::span::NotRun;

/// The result of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Workflows with due times that were processed.
    pub workflows: u64,
    /// Workflows whose pause had ended.
    pub resumed: u64,
    /// Times recorded as missed.
    pub missed: u64,
    /// Times recorded as skipped by a pause or an archiving.
    pub skipped_paused: u64,
    /// Times that are run late.
    pub caught_up: u64,
    /// Workflows whose timezone or cron is not known any more, so that their due times cannot be computed.
    pub unjudged: u64,
    /// Workflows whose statements failed.
    pub failed: u64,
    /// Whether the pass ended before it had processed all shards.
    pub may_be_more: bool,
}

impl Pass {
    /// Adds what a part of the pass did.
    pub(super) fn add(&mut self, part: Self) {
        let Self { workflows, resumed, missed, skipped_paused, caught_up, unjudged, failed, may_be_more } = part;
        self.workflows += workflows;
        self.resumed += resumed;
        self.missed += missed;
        self.skipped_paused += skipped_paused;
        self.caught_up += caught_up;
        self.unjudged += unjudged;
        self.failed += failed;
        self.may_be_more |= may_be_more;
    }

    /// Adds times that do not run.
    pub(super) fn count_not_run(&mut self, times: &[(i64, NotRun)]) {
        let is_skipped = |not_run: &NotRun| not_run.decision == Decision::SkippedPaused;
        let skipped = times.iter().filter(|(_, not_run)| is_skipped(not_run)).count() as u64;
        self.skipped_paused += skipped;
        self.missed += times.len() as u64 - skipped;
    }

    /// Returns what it did, in a sentence.
    #[must_use]
    pub fn in_words(self) -> String {
        let Self { workflows, resumed, missed, skipped_paused, caught_up, unjudged, failed: _, may_be_more: _ } = self;
        format!(
            "{workflows} workflows checked: {missed} times missed, {caught_up} caught up, {skipped_paused} skipped \
             by a pause; {resumed} pauses ended, {unjudged} workflows not evaluated"
        )
    }
}
