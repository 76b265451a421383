//! Step 7 of 7: how many slots of this instance each team uses.
//!
//! Counted from the attempts that this process executes, not from rows: a slot is used as long as its task lives.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Settings;
use crate::claim::Slots;

/// The slots in use, by team; clones share them.
#[derive(Clone, Default)]
pub(super) struct Shares(Arc<Mutex<HashMap<i64, i64>>>);

/// A slot in use; dropping it frees it.
pub(super) struct UsedSlot {
    shares: Shares,
    team_id: i64,
}

impl Shares {
    /// Counts a slot for a team until the result is dropped.
    pub(super) fn use_slot(&self, team_id: i64) -> UsedSlot {
        *self.used().entry(team_id).or_default() += 1;
        UsedSlot { shares: self.clone(), team_id }
    }

    /// Returns what a claim may take if `free` slots are free.
    pub(super) fn slots_to_claim(&self, free: usize, settings: &Settings) -> Slots {
        Slots {
            free: i64::try_from(free).unwrap_or(i64::MAX),
            of_a_team: i64::try_from(settings.slots_of_a_team).unwrap_or(i64::MAX),
            used: self.used().iter().map(|(team_id, slots)| (*team_id, *slots)).collect(),
        }
    }

    fn used(&self) -> MutexGuard<'_, HashMap<i64, i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UsedSlot {
    fn drop(&mut self) {
        let mut used = self.shares.used();
        if let Some(slots) = used.get_mut(&self.team_id) {
            *slots -= 1;
            if *slots == 0 {
                used.remove(&self.team_id);
            }
        }
    }
}
