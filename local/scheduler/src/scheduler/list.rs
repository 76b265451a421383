//! Step 4 of 7: pages of the two lists.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::stored_schedule::{Key, Schedule};

/// A page of a list, and where the next one starts.
pub struct Page<T> {
    /// The items
    pub items: Vec<T>,
    /// The key of the last item, if there are more
    pub last: Option<Key>,
}

/// Filters of a list of schedules.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only schedules of this schedule group
    pub group: Option<String>,
    /// Only schedules whose names begin with this
    pub name_prefix: Option<String>,
    /// Only schedules in this state
    pub state: Option<String>,
}

impl<T> Page<T> {
    /// A page of the first `limit` of `items`.
    pub fn first_of(items: impl Iterator<Item = T>, limit: usize, key: impl Fn(&T) -> Key) -> Page<T> {
        let mut items: Vec<T> = items.take(limit + 1).collect();
        let more = items.len() > limit;
        items.truncate(limit);
        Page { last: items.last().filter(|_| more).map(key), items }
    }
}

impl Filter {
    /// Lists up to `limit` of `schedules` by schedule group and name, after `after`.
    pub(super) fn list_page(
        &self,
        schedules: &BTreeMap<Key, Arc<Schedule>>,
        after: Option<Key>,
        limit: usize,
    ) -> Page<Arc<Schedule>> {
        let first = Key {
            group: self.group.clone().unwrap_or_default(),
            name: self.group.as_ref().and(self.name_prefix.clone()).unwrap_or_default(),
        };
        let start = match after {
            Some(after) if after >= first => Bound::Excluded(after),
            _ => Bound::Included(first),
        };
        let items = schedules
            .range((start, Bound::Unbounded))
            .map(|(_, schedule)| schedule)
            .take_while(|schedule| self.group.as_ref().is_none_or(|group| *group == schedule.key.group))
            .filter(|schedule| self.name_prefix.as_ref().is_none_or(|prefix| schedule.key.name.starts_with(prefix)))
            .filter(|schedule| self.state.as_ref().is_none_or(|state| state == schedule.spec.state.as_str()));
        Page::first_of(items.cloned(), limit, |schedule| schedule.key.clone())
    }
}
