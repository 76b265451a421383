//! Step 4 of 7: a schedule as the stand-in stores it.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::account::TOKEN_LIFE;
use super::spec::Spec;

/// The key of a schedule: the name is unique in its schedule group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The schedule group
    pub group: String,
    /// The name in the schedule group
    pub name: String,
}

/// A schedule.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The key
    pub key: Key,
    /// The full name
    pub arn: String,
    /// The settings
    pub spec: Spec,
    /// When it was created
    pub created_on: DateTime<Utc>,
    /// When it was last replaced
    pub modified_on: DateTime<Utc>,
    /// When it fires next
    pub next: Option<DateTime<Utc>>,
    pub(super) origin: DateTime<Utc>,
    pub(super) client_token: Option<String>,
}

/// A schedule that is due.
#[derive(Clone, Debug)]
pub struct Due {
    /// The time
    pub at: DateTime<Utc>,
    /// The schedule at that time
    pub schedule: Arc<Schedule>,
}

impl Schedule {
    /// Whether a create with this client token and this content created it.
    ///
    /// AWS does not document its answer to the same token with other content; here the name is taken.
    pub(super) fn was_made_by(&self, token: Option<&str>, spec: &Spec, now: DateTime<Utc>) -> bool {
        let is_token = token.is_some() && self.client_token.as_deref() == token;
        is_token && now < self.created_on + TOKEN_LIFE && self.spec == *spec
    }
}
