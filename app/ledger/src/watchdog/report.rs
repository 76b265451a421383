//! Step 7 of 7: what a pass of the watchdog reports.

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
}

impl Pass {
    /// Returns what it did, in a sentence.
    #[must_use]
    pub fn in_words(self) -> String {
        let Self { workflows, resumed, missed, skipped_paused, caught_up, unjudged, failed: _ } = self;
        format!(
            "{workflows} workflows checked: {missed} times missed, {caught_up} caught up, {skipped_paused} skipped \
             by a pause; {resumed} pauses ended, {unjudged} workflows not evaluated"
        )
    }
}
