//! Step 4 of 7: the schedules and schedule groups of the stand-in, in memory.
//!
//! An index has the next time of each schedule, so that a fire costs the same with ten and with 100,000.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use super::account::Account;
use super::clock_change::Fold;
use super::error::Error;
use super::expression::Expression;
use super::groups::{Groups, NewGroup};
use super::list::{Filter, Page};
use super::recent_changes::RecentChanges;
use super::spec::{Completion, Spec, State};
use super::stored_schedule::{Due, Key, Schedule};

/// Everything of one account in one region.
pub struct Store {
    account: Account,
    fold: Fold,
    groups: Groups,
    schedules: BTreeMap<Key, Arc<Schedule>>,
    next: BTreeSet<(DateTime<Utc>, Key)>,
    overdue: Vec<Due>,
    recent_changes: RecentChanges,
}

impl Store {
    /// Creates an account with only an empty schedule group `default`.
    pub fn new(account: Account, fold: Fold, now: DateTime<Utc>) -> Store {
        Store {
            groups: Groups::new(&account, now),
            account,
            fold,
            schedules: BTreeMap::new(),
            next: BTreeSet::new(),
            overdue: Vec::new(),
            recent_changes: RecentChanges::default(),
        }
    }

    /// Creates a schedule, named by `region`; a repeated create with the same client token changes nothing.
    ///
    /// # Errors
    /// Fails if the schedule group is missing or being deleted, the name is taken, or the quota is reached.
    pub fn create_schedule(
        &mut self,
        key: Key,
        spec: Spec,
        token: Option<String>,
        region: Option<String>,
        now: DateTime<Utc>,
    ) -> Result<String, Error> {
        self.groups.get_to_change(&key.group)?;
        if let Some(existing) = self.schedules.get(&key) {
            return if existing.was_made_by(token.as_deref(), &spec, now) {
                Ok(existing.arn.clone())
            } else {
                Err(Error::Conflict(format!("Schedule {} already exists.", key.name)))
            };
        }
        if self.schedules.len() >= self.account.max_schedules {
            return Err(Error::Quota("You have exceeded the quota of schedules for this account.".to_owned()));
        }
        self.recent_changes.record_change(key.clone(), None);
        let Account { region, id, .. } = self.account.in_region(region);
        let arn = format!("arn:aws:scheduler:{region}:{id}:schedule/{}/{}", key.group, key.name);
        let origin = Expression::rate_origin(now, spec.start_date);
        self.put(Schedule {
            key,
            arn: arn.clone(),
            spec,
            created_on: now,
            modified_on: now,
            next: None,
            origin,
            client_token: token,
        });
        Ok(arn)
    }

    /// Replaces all settings of a schedule; the client token of its create is no longer valid.
    ///
    /// # Errors
    /// Fails if the schedule group or the schedule does not exist, or if the schedule group is being deleted.
    pub fn update_schedule(&mut self, key: Key, spec: Spec, now: DateTime<Utc>) -> Result<String, Error> {
        let existing = self.remove(&key, now)?;
        let origin = Expression::rate_origin(now, spec.start_date);
        // Recorded as one change: `remove` has recorded the state before it.
        let replaced = Arc::unwrap_or_clone(existing);
        let arn = replaced.arn.clone();
        self.put(Schedule { spec, modified_on: now, next: None, origin, client_token: None, ..replaced });
        Ok(arn)
    }

    /// Deletes a schedule.
    ///
    /// # Errors
    /// Fails if the schedule group or the schedule does not exist, or if the schedule group is being deleted.
    pub fn delete_schedule(&mut self, key: &Key, now: DateTime<Utc>) -> Result<(), Error> {
        self.remove(key, now).map(drop)
    }

    /// Returns one schedule.
    ///
    /// # Errors
    /// Fails if the schedule group or the schedule does not exist.
    pub fn get(&self, key: &Key) -> Result<Arc<Schedule>, Error> {
        self.groups.get(&key.group)?;
        self.schedules.get(key).cloned().ok_or_else(|| Error::no_schedule(&key.name))
    }

    /// Returns one schedule, as it was `changes_back` changes ago.
    ///
    /// # Errors
    /// Fails if the schedule group or the schedule does not exist.
    pub fn get_past(&self, key: &Key, changes_back: usize) -> Result<Arc<Schedule>, Error> {
        self.groups.get(&key.group)?;
        match self.recent_changes.state_before(key, changes_back) {
            Some(before) => before.ok_or_else(|| Error::no_schedule(&key.name)),
            None => self.get(key),
        }
    }

    /// Lists up to `limit` schedules by schedule group and name, after `after`.
    ///
    /// # Errors
    /// Fails if the requested schedule group does not exist.
    pub fn list_schedules(
        &self,
        filter: &Filter,
        after: Option<Key>,
        limit: usize,
    ) -> Result<Page<Arc<Schedule>>, Error> {
        if let Some(group) = &filter.group {
            self.groups.get(group)?;
        }
        Ok(filter.list_page(&self.schedules, after, limit))
    }

    /// Like [`Store::list_schedules`], but as the account was `changes_back` changes ago.
    ///
    /// # Errors
    /// Fails if the requested schedule group does not exist.
    pub fn list_past(
        &self,
        filter: &Filter,
        after: Option<Key>,
        limit: usize,
        changes_back: usize,
    ) -> Result<Page<Arc<Schedule>>, Error> {
        if let Some(group) = &filter.group {
            self.groups.get(group)?;
        }
        Ok(filter.list_page(&self.recent_changes.schedules_before(&self.schedules, changes_back), after, limit))
    }

    /// Creates a schedule group.
    ///
    /// # Errors
    /// Fails if the name is taken, or if the account has reached its quota.
    pub fn create_group(&mut self, new: NewGroup, now: DateTime<Utc>) -> Result<String, Error> {
        self.create_group_in(None, new, now)
    }

    /// Creates a schedule group, named by `region`.
    ///
    /// # Errors
    /// Fails if the name is taken, or if the account has reached its quota.
    pub fn create_group_in(
        &mut self,
        region: Option<String>,
        new: NewGroup,
        now: DateTime<Utc>,
    ) -> Result<String, Error> {
        self.groups.create_group(&self.account.in_region(region), new, now)
    }

    /// Deletes a schedule group with all its schedules, which fire until the deletion ends.
    ///
    /// # Errors
    /// Fails if the schedule group does not exist, is already being deleted, or is `default`.
    pub fn delete_group(&mut self, name: &str, takes: TimeDelta, now: DateTime<Utc>) -> Result<(), Error> {
        self.groups.begin_deletion(name, now + takes, now)?;
        self.end_deletions(now);
        Ok(())
    }

    /// Removes the schedule groups whose deletion has ended by `now`, with all their schedules.
    pub fn end_deletions(&mut self, now: DateTime<Utc>) {
        while let Some((name, deleted_at)) = self.groups.take_deleted(now) {
            let due = self.pop_due(deleted_at);
            self.overdue.extend(due);
            let keys: Vec<Key> = self.schedules.keys().filter(|key| key.group == name).cloned().collect();
            for key in keys {
                self.take(&key, deleted_at);
            }
        }
    }

    /// The schedule groups, to read them and to change their tags.
    pub fn groups(&mut self) -> &mut Groups {
        &mut self.groups
    }

    /// The next time at which any schedule fires.
    pub fn next_due(&self) -> Option<DateTime<Utc>> {
        let overdue = self.overdue.iter().map(|due| due.at).min();
        overdue.into_iter().chain(self.next.first().map(|(at, _)| *at)).min()
    }

    /// Takes the schedules that are due at `now`, in the order of time; each advances to its next time.
    pub fn take_due(&mut self, now: DateTime<Utc>) -> Vec<Due> {
        self.end_deletions(now);
        let mut due = std::mem::take(&mut self.overdue);
        due.extend(self.pop_due(now));
        due.sort_by_key(|due| due.at);
        due
    }

    fn pop_due(&mut self, now: DateTime<Utc>) -> Vec<Due> {
        let mut due = Vec::new();
        while let Some((at, key)) = self.next.pop_first() {
            if at > now {
                self.next.insert((at, key));
                break;
            }
            let Some(schedule) = self.schedules.remove(&key) else { continue };
            let next = self.next_of(&schedule, at);
            due.push(Due { at, schedule: Arc::clone(&schedule) });
            match next {
                None if schedule.spec.completion == Completion::Delete => {}
                _ => self.insert_schedule(Schedule { next, ..Arc::unwrap_or_clone(schedule) }),
            }
        }
        due
    }

    /// Inserts a schedule that was created or replaced now.
    fn put(&mut self, mut schedule: Schedule) {
        let from = schedule.spec.expression.first_evaluated_after(schedule.modified_on);
        schedule.next = self.next_of(&schedule, from);
        self.insert_schedule(schedule);
    }

    fn insert_schedule(&mut self, schedule: Schedule) {
        if let Some(next) = schedule.next {
            self.next.insert((next, schedule.key.clone()));
        }
        self.schedules.insert(schedule.key.clone(), Arc::new(schedule));
    }

    fn remove(&mut self, key: &Key, now: DateTime<Utc>) -> Result<Arc<Schedule>, Error> {
        self.groups.get_to_change(&key.group)?;
        self.take(key, now).ok_or_else(|| Error::no_schedule(&key.name))
    }

    /// Removes a schedule. A fire that is already due remains, because AWS would send it, too.
    fn take(&mut self, key: &Key, now: DateTime<Utc>) -> Option<Arc<Schedule>> {
        let schedule = self.schedules.remove(key)?;
        self.recent_changes.record_change(key.clone(), Some(Arc::clone(&schedule)));
        if let Some(at) = schedule.next {
            self.next.remove(&(at, key.clone()));
            if at <= now {
                self.overdue.push(Due { at, schedule: Arc::clone(&schedule) });
            }
        }
        Some(schedule)
    }

    fn next_of(&self, schedule: &Schedule, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let spec = &schedule.spec;
        if spec.state == State::Disabled {
            return None;
        }
        let (start_date, end_date) = spec.fire_limits();
        let just_before_start = start_date.map(|start| start - TimeDelta::milliseconds(1));
        let from = just_before_start.map_or(after, |start| start.max(after));
        let next = spec.expression.next_after(from, schedule.origin, &spec.timezone, self.fold)?;
        end_date.is_none_or(|end| next <= end).then_some(next)
    }
}
