//! Step 4 of 7: schedule groups.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::account::{Account, TOKEN_LIFE};
use super::error::Error;
use super::list::Page;
use super::stored_schedule::Key;
use super::wire::Tag;

/// The schedule group that always exists, and that contains schedules without another schedule group.
pub(super) const DEFAULT: &str = "default";

/// An account's schedule groups, by name; `default` always exists.
pub struct Groups(BTreeMap<String, Group>);

/// A schedule group.
#[derive(Clone, Debug)]
pub struct Group {
    /// The name
    pub name: String,
    /// The full name
    pub arn: String,
    /// When it was created
    pub created_on: DateTime<Utc>,
    /// When it last changed
    pub modified_on: DateTime<Utc>,
    /// The tags, by key
    pub tags: BTreeMap<String, String>,
    /// When its deletion ends; `None` = it is not being deleted
    pub deleted_at: Option<DateTime<Utc>>,
    client_token: Option<String>,
}

/// A schedule group to create.
pub struct NewGroup {
    /// The name
    pub name: String,
    /// The tags
    pub tags: Vec<Tag>,
    /// Makes a repeated create idempotent
    pub client_token: Option<String>,
}

impl Group {
    /// The full name for a caller of this region: each region has its own `default`.
    pub fn arn_in(&self, region: Option<&str>) -> String {
        let mut parts: Vec<&str> = self.arn.splitn(6, ':').collect();
        if let (DEFAULT, Some(region), Some(part)) = (self.name.as_str(), region, parts.get_mut(3)) {
            *part = region;
        }
        parts.join(":")
    }

    /// Whether a create with this client token created it.
    fn was_made_by(&self, token: Option<&str>, now: DateTime<Utc>) -> bool {
        let is_token = token.is_some() && self.client_token.as_deref() == token;
        is_token && now < self.created_on + TOKEN_LIFE && self.deleted_at.is_none()
    }
}

impl Groups {
    /// Creates only the schedule group `default`.
    pub fn new(account: &Account, now: DateTime<Utc>) -> Groups {
        let mut groups = Groups(BTreeMap::new());
        groups.insert(account, NewGroup { name: DEFAULT.to_owned(), tags: Vec::new(), client_token: None }, now);
        groups
    }

    /// Creates a schedule group; a repeated create with the same client token changes nothing.
    ///
    /// # Errors
    /// Fails if the name is taken, or if the account has reached its quota.
    pub fn create_group(&mut self, account: &Account, new: NewGroup, now: DateTime<Utc>) -> Result<String, Error> {
        match self.0.get(&new.name) {
            Some(existing) if existing.was_made_by(new.client_token.as_deref(), now) => Ok(existing.arn.clone()),
            Some(existing) => Err(Error::Conflict(format!("Schedule group {} already exists.", existing.name))),
            None if self.0.len() >= account.max_groups => {
                Err(Error::Quota("You have exceeded the quota of schedule groups for this account.".to_owned()))
            }
            None => Ok(self.insert(account, new, now)),
        }
    }

    /// Returns one schedule group.
    ///
    /// # Errors
    /// Fails if the schedule group does not exist.
    pub fn get(&self, name: &str) -> Result<&Group, Error> {
        self.0.get(name).ok_or_else(|| Error::no_group(name))
    }

    /// Returns one schedule group, for a call that changes its schedules.
    ///
    /// # Errors
    /// Fails if the schedule group does not exist or is being deleted.
    pub fn get_to_change(&self, name: &str) -> Result<&Group, Error> {
        let group = self.get(name)?;
        match group.deleted_at {
            None => Ok(group),
            Some(_) => Err(Error::Conflict(format!("Schedule group {name} is being deleted."))),
        }
    }

    /// Lists up to `limit` schedule groups by name, after `after`.
    pub fn list_groups(&self, prefix: &str, after: Option<Key>, limit: usize) -> Page<Group> {
        let after = after.map(|key| key.name);
        let items = self
            .0
            .values()
            .filter(|group| group.name.starts_with(prefix) && after.as_ref().is_none_or(|after| group.name > *after));
        Page::first_of(items.cloned(), limit, |group| Key { group: String::new(), name: group.name.clone() })
    }

    /// Returns the schedule group of an ARN, to read or change its tags.
    ///
    /// # Errors
    /// Fails if the schedule group does not exist.
    pub fn find_by_arn(&mut self, arn: &str) -> Result<&mut Group, Error> {
        let name = arn.rsplit('/').next().unwrap_or_default();
        let is_named = |group: &&mut Group| group.name == DEFAULT || group.arn == arn;
        self.0.get_mut(name).filter(is_named).ok_or_else(|| Error::no_group(name))
    }

    /// Starts the deletion of a schedule group.
    ///
    /// # Errors
    /// Fails if the schedule group does not exist, is already being deleted, or is `default`.
    pub fn begin_deletion(&mut self, name: &str, deleted_at: DateTime<Utc>, now: DateTime<Utc>) -> Result<(), Error> {
        if name == DEFAULT {
            return Err(Error::Validation("The default schedule group cannot be deleted.".to_owned()));
        }
        self.get_to_change(name)?;
        if let Some(group) = self.0.get_mut(name) {
            group.deleted_at = Some(deleted_at);
            group.modified_on = now;
        }
        Ok(())
    }

    /// Removes the schedule group whose deletion ended first, up to `now`.
    pub fn take_deleted(&mut self, now: DateTime<Utc>) -> Option<(String, DateTime<Utc>)> {
        let ended = self.0.values().filter_map(|group| Some((group.deleted_at?, &group.name)));
        let (deleted_at, name) = ended.filter(|(deleted_at, _)| *deleted_at <= now).min()?;
        let name = name.clone();
        self.0.remove(&name);
        Some((name, deleted_at))
    }

    fn insert(&mut self, account: &Account, new: NewGroup, now: DateTime<Utc>) -> String {
        let arn = format!("arn:aws:scheduler:{}:{}:schedule-group/{}", account.region, account.id, new.name);
        let group = Group {
            name: new.name.clone(),
            arn: arn.clone(),
            created_on: now,
            modified_on: now,
            tags: new.tags.into_iter().map(|tag| (tag.key, tag.value)).collect(),
            deleted_at: None,
            client_token: new.client_token,
        };
        self.0.insert(new.name, group);
        arn
    }
}
