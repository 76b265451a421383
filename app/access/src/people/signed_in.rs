//! Step 1 of 7: a person whose token was verified, with the teams in which the person may act.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use moka::future::Cache;
use sha2::{Digest as _, Sha256};

use super::memberships::Membership;
use super::person::Person;
use super::token::has_ended;

/// A person whose token was verified.
#[derive(Clone, Debug)]
pub struct SignedIn {
    /// Who it is.
    pub person: Person,
    /// Whether the person may do what an admin key permits.
    pub is_admin: bool,
    /// The teams, in the order of their ids, with their limits; none of an admin.
    pub memberships: Vec<Membership>,
    /// The end of the token.
    pub expires_on: DateTime<Utc>,
}

/// The person behind a caller.
#[derive(Clone, Debug)]
pub struct PersonOfCaller {
    /// Who it is, and where.
    pub signed_in: Arc<SignedIn>,
    /// Whether the caller acts in one team, because the request named it or because there is no other one.
    pub has_chosen: bool,
}

/// The persons whose tokens were verified some seconds ago.
#[derive(Clone, Debug)]
pub struct KnownTokens(Cache<[u8; 32], Arc<SignedIn>>);

impl PersonOfCaller {
    /// The teams of which the request has yet to choose one.
    #[must_use]
    pub fn teams_to_choose(&self) -> &[Membership] {
        if self.has_chosen { &[] } else { &self.signed_in.memberships }
    }
}

impl KnownTokens {
    /// An empty cache, which keeps a token for this time.
    #[must_use]
    pub fn kept_for(time: Duration) -> Self {
        Self(Cache::builder().max_capacity(10_000).time_to_live(time).build())
    }

    /// Returns the person of a token, if it has not ended since.
    pub async fn find(&self, token: &str, now: DateTime<Utc>) -> Option<Arc<SignedIn>> {
        self.0.get(&digest_of(token)).await.filter(|known| !has_ended(known.expires_on, now))
    }

    /// Keeps the person of a token.
    pub async fn keep(&self, token: &str, signed_in: Arc<SignedIn>) {
        self.0.insert(digest_of(token), signed_in).await;
    }

    /// Empties the cache at once.
    pub fn forget_all(&self) {
        self.0.invalidate_all();
    }
}

/// By its digest, so that the cache has no token.
fn digest_of(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}
