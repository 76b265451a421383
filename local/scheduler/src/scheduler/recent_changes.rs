//! Step 4 of 7: the state before the last changes, because AWS's reads may lag behind its writes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::stored_schedule::{Key, Schedule};

/// How many changes are kept.
pub(super) const KEPT: usize = 3;

/// The last changes, each with the state before it.
#[derive(Default)]
pub(super) struct RecentChanges(VecDeque<(Key, Option<Arc<Schedule>>)>);

impl RecentChanges {
    /// Records that `key` is about to change from `before`.
    pub(super) fn record_change(&mut self, key: Key, before: Option<Arc<Schedule>>) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back((key, before));
    }

    /// Returns what `key` was `changes_back` changes ago; `None` = it has not changed since.
    pub(super) fn state_before(&self, key: &Key, changes_back: usize) -> Option<Option<Arc<Schedule>>> {
        // If there were several changes in that span, the state before the first of them.
        let oldest = self.0.len().saturating_sub(changes_back);
        let mut changed = self.0.range(oldest..).filter(|(changed, _)| changed == key);
        changed.next().map(|(_, before)| before.clone())
    }

    /// Returns all schedules of `changes_back` changes ago.
    pub(super) fn schedules_before(
        &self,
        now: &BTreeMap<Key, Arc<Schedule>>,
        changes_back: usize,
    ) -> BTreeMap<Key, Arc<Schedule>> {
        let mut then = now.clone();
        for (key, before) in self.0.iter().rev().take(changes_back) {
            match before {
                Some(before) => then.insert(key.clone(), Arc::clone(before)),
                None => then.remove(key),
            };
        }
        then
    }
}
