//! Step 4 of 7: what stood before the last changes, because AWS's reads may lag behind its writes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::store::{Key, Schedule};

/// So many changes back can be seen.
pub(super) const KEPT: usize = 3;

/// The last changes, each as what stood before it.
#[derive(Default)]
pub(super) struct Past(VecDeque<(Key, Option<Arc<Schedule>>)>);

impl Past {
    /// Notes that `key` is about to change from `before`.
    pub(super) fn note(&mut self, key: Key, before: Option<Arc<Schedule>>) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back((key, before));
    }

    /// What `key` was `changes_back` changes ago; `None` = it has not changed since.
    pub(super) fn of(&self, key: &Key, changes_back: usize) -> Option<Option<Arc<Schedule>>> {
        // Of several changes in that span, what stood before the first.
        let oldest = self.0.len().saturating_sub(changes_back);
        let mut changed = self.0.range(oldest..).filter(|(changed, _)| changed == key);
        changed.next().map(|(_, before)| before.clone())
    }

    /// All that stood `changes_back` changes ago.
    pub(super) fn all(&self, now: &BTreeMap<Key, Arc<Schedule>>, changes_back: usize) -> BTreeMap<Key, Arc<Schedule>> {
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
