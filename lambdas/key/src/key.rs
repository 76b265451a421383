//! Step 6 of 7: the key that is kept, and the keys that may be right for one request.

use std::fmt;

use anyhow::Context;
use tokio::sync::Mutex;

use crate::secret::{Version, fetch_version};

/// Where the scheduler key comes from.
#[derive(Clone)]
pub enum KeySource {
    /// The key itself.
    Value(String),
    /// The ARN of a secret in Secrets Manager.
    Secret(String),
}

/// The scheduler key of a process, fetched when it is needed first.
pub struct SchedulerKey {
    source: KeySource,
    kept: Mutex<Option<String>>,
}

/// The keys for one request, in this order: the one that is kept, the secret's current version, its previous version. The
/// app may not know the current one yet.
pub struct Candidates<'a> {
    key: &'a SchedulerKey,
    /// Without repeats, the newest last.
    tried: Vec<String>,
    next: Next,
}

/// Which key is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Kept,
    Current,
    Previous,
    End,
}

impl SchedulerKey {
    /// Creates the key of a process; it fetches nothing yet.
    #[must_use]
    pub fn new(source: KeySource) -> Self {
        SchedulerKey { source, kept: Mutex::new(None) }
    }

    /// Begins a request.
    #[must_use]
    pub fn begin_request(&self) -> Candidates<'_> {
        Candidates { key: self, tried: Vec::new(), next: Next::Kept }
    }

    /// Returns the key that is kept; fetches it first, if none is.
    async fn load_kept(&self) -> anyhow::Result<String> {
        let arn = match &self.source {
            KeySource::Value(key) => return Ok(key.clone()),
            KeySource::Secret(arn) => arn,
        };
        let mut kept = self.kept.lock().await;
        if let Some(key) = &*kept {
            return Ok(key.clone());
        }
        let key = fetch_current(arn).await?;
        *kept = Some(key.clone());
        Ok(key)
    }

    async fn keep(&self, key: &str) {
        *self.kept.lock().await = Some(key.to_owned());
    }
}

impl Candidates<'_> {
    /// Returns the next key to send the request with, after the app has refused the one before. `None` = it has refused all.
    ///
    /// # Errors
    /// Returns one sentence if the secret cannot be read; it never contains a key.
    pub async fn next_key(&mut self) -> anyhow::Result<Option<String>> {
        loop {
            let candidate = match (self.next, &self.key.source) {
                (Next::Kept, _) => Some(self.key.load_kept().await?),
                (Next::Current, KeySource::Secret(arn)) => {
                    let current = fetch_current(arn).await?;
                    self.key.keep(&current).await;
                    Some(current)
                }
                (Next::Previous, KeySource::Secret(arn)) => fetch_version(arn, Version::Previous).await?,
                // A key that was given cannot change.
                (Next::Current | Next::Previous, KeySource::Value(_)) | (Next::End, _) => return Ok(None),
            };
            self.next = self.next.following();
            if let Some(key) = candidate.filter(|key| !self.tried.contains(key)) {
                self.tried.push(key.clone());
                return Ok(Some(key));
            }
        }
    }

    /// Keeps the last key for the next requests, because the app has not refused it.
    pub async fn keep_last(self) {
        if let (Some(key), KeySource::Secret(_)) = (self.tried.last(), &self.key.source) {
            self.key.keep(key).await;
        }
    }
}

impl Next {
    fn following(self) -> Next {
        match self {
            Next::Kept => Next::Current,
            Next::Current => Next::Previous,
            Next::Previous | Next::End => Next::End,
        }
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySource::Value(_) => f.write_str("Value(..)"),
            KeySource::Secret(arn) => f.debug_tuple("Secret").field(arn).finish(),
        }
    }
}

async fn fetch_current(arn: &str) -> anyhow::Result<String> {
    let key = fetch_version(arn, Version::Current).await?;
    key.with_context(|| format!("the secret {arn} cannot be read: it does not exist, or has no value"))
}
