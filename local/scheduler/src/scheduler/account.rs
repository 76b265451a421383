//! Step 4 of 7: the account of the stand-in, and its quotas.

use chrono::TimeDelta;

/// How long a create may be repeated with its client token: as long as a signed request may still arrive.
///
/// AWS does not document how long it keeps a token.
pub(super) const TOKEN_LIFE: TimeDelta = TimeDelta::minutes(15);

/// The account and its quotas.
#[derive(Clone, Debug)]
pub struct Account {
    /// The region in resource names for unsigned requests; a signed request names its own
    pub region: String,
    /// Twelve digits
    pub id: String,
    /// AWS allows ten million
    pub max_schedules: usize,
    /// AWS allows 500
    pub max_groups: usize,
}

impl Default for Account {
    fn default() -> Self {
        Account {
            region: "us-east-1".to_owned(),
            id: "123456789012".to_owned(),
            max_schedules: 10_000_000,
            max_groups: 500,
        }
    }
}

impl Account {
    pub(super) fn in_region(&self, region: Option<String>) -> Account {
        Account { region: region.unwrap_or_else(|| self.region.clone()), ..self.clone() }
    }
}
