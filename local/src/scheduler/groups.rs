//! Step 4 of 7: the groups that schedules live in.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::error::Error;
use super::list::Page;
use super::store::{Account, Key};
use super::wire::Tag;

/// An account's groups, by name; `default` always stands.
pub struct Groups(BTreeMap<String, Group>);

/// A group of schedules.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its name
    pub name: String,
    /// Its full name
    pub arn: String,
    /// When it was made
    pub created_on: DateTime<Utc>,
    /// When it last changed
    pub modified_on: DateTime<Utc>,
    /// Its tags, by key
    pub tags: BTreeMap<String, String>,
    client_token: Option<String>,
}

/// A group to be made.
pub struct NewGroup {
    /// Its name
    pub name: String,
    /// Its tags
    pub tags: Vec<Tag>,
    /// Makes a repeat harmless
    pub client_token: Option<String>,
}

impl Groups {
    /// The group `default` alone.
    pub fn new(account: &Account, now: DateTime<Utc>) -> Groups {
        let mut groups = Groups(BTreeMap::new());
        groups.insert(account, NewGroup { name: "default".to_owned(), tags: Vec::new(), client_token: None }, now);
        groups
    }

    /// Makes a group; a repeat with the same client token changes nothing.
    ///
    /// # Errors
    /// The name is taken, or the account is full.
    pub fn create(&mut self, account: &Account, new: NewGroup, now: DateTime<Utc>) -> Result<String, Error> {
        match self.0.get(&new.name) {
            Some(standing) if new.client_token.is_some() && standing.client_token == new.client_token => {
                Ok(standing.arn.clone())
            }
            Some(standing) => Err(Error::Conflict(format!("Schedule group {} already exists.", standing.name))),
            None if self.0.len() >= account.max_groups => {
                Err(Error::Quota("You have exceeded the quota of schedule groups for this account.".to_owned()))
            }
            None => Ok(self.insert(account, new, now)),
        }
    }

    /// One group.
    ///
    /// # Errors
    /// The group is missing.
    pub fn get(&self, name: &str) -> Result<&Group, Error> {
        self.0.get(name).ok_or_else(|| Error::no_group(name))
    }

    /// Up to `limit` groups by name, after `after`.
    pub fn list(&self, prefix: &str, after: Option<Key>, limit: usize) -> Page<Group> {
        let after = after.map(|key| key.name);
        let items = self
            .0
            .values()
            .filter(|group| group.name.starts_with(prefix) && after.as_ref().is_none_or(|after| group.name > *after));
        Page::of(items.cloned(), limit, |group| Key { group: String::new(), name: group.name.clone() })
    }

    /// The group of an ARN, to read or change its tags.
    ///
    /// # Errors
    /// The group is missing.
    pub fn by_arn(&mut self, arn: &str) -> Result<&mut Group, Error> {
        let name = arn.rsplit('/').next().unwrap_or_default();
        self.0.get_mut(name).filter(|group| group.arn == arn).ok_or_else(|| Error::no_group(name))
    }

    /// Takes a group away.
    ///
    /// # Errors
    /// The group is missing, or is `default`.
    pub fn remove(&mut self, name: &str) -> Result<(), Error> {
        if name == "default" {
            return Err(Error::Validation("The default schedule group cannot be deleted.".to_owned()));
        }
        self.0.remove(name).map(drop).ok_or_else(|| Error::no_group(name))
    }

    fn insert(&mut self, account: &Account, new: NewGroup, now: DateTime<Utc>) -> String {
        let arn = format!("arn:aws:scheduler:{}:{}:schedule-group/{}", account.region, account.id, new.name);
        let group = Group {
            name: new.name.clone(),
            arn: arn.clone(),
            created_on: now,
            modified_on: now,
            tags: new.tags.into_iter().map(|tag| (tag.key, tag.value)).collect(),
            client_token: new.client_token,
        };
        self.0.insert(new.name, group);
        arn
    }
}
