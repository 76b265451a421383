//! A backfill, as its pages show it.

use api_types::backfills::{BackfillState, BackfillView};

/// A backfill with what a page computes of it.
pub(super) struct Progress {
    pub(super) backfill: BackfillView,
    /// How many of its runs have ended.
    pub(super) ended: i64,
}

impl From<BackfillView> for Progress {
    fn from(backfill: BackfillView) -> Self {
        Self { ended: backfill.started - backfill.live, backfill }
    }
}

impl Progress {
    /// Whether it may be paused, resumed or cancelled.
    pub(super) fn is_open(&self) -> bool {
        self.is_running() || self.is_paused()
    }

    pub(super) fn is_running(&self) -> bool {
        self.backfill.state == BackfillState::Running
    }

    pub(super) fn is_paused(&self) -> bool {
        self.backfill.state == BackfillState::Paused
    }
}
