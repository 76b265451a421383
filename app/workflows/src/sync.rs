//! Step 4 of 7: how far EventBridge has applied the edits of a workflow, by the publisher's records.

use chrono::{DateTime, Utc};

use crate::aws_errors::{StoredError, error_for_team};

/// How far EventBridge has applied the edits of a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[sqlx(type_name = "text", rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum SyncStatus {
    /// The publisher has not applied the newest revision yet.
    Pending,
    /// EventBridge has the schedule that the workflow needs.
    Synced,
    /// It failed permanently; the next edit tries again.
    Failed,
    /// EventBridge was changed by another program; the publisher will repair it.
    Drifted,
    /// The workflow never had a schedule.
    None,
}

/// How far EventBridge has applied the workflow's edits.
#[derive(Clone, Debug)]
pub struct Sync {
    /// The result of `sync_status()`.
    pub status: SyncStatus,
    /// The newest requested revision.
    pub desired_revision: Option<i64>,
    /// The revision that EventBridge has acknowledged.
    pub applied_revision: Option<i64>,
    /// The class of the last error; `None` if the next attempt decides.
    pub error_class: Option<String>,
    /// The last error. Admins read the words of EventBridge; for others see `without_words_of_aws`.
    pub last_error: Option<String>,
    /// When EventBridge last acknowledged an edit.
    pub applied_at: Option<DateTime<Utc>>,
}

impl Sync {
    /// For the members of a team: the words of EventBridge name the account, its roles and its quotas.
    #[must_use]
    pub fn without_words_of_aws(self) -> Self {
        let class = self.error_class.as_deref();
        let stored = self.last_error.as_deref().map(|error| StoredError::Publication { class, error });
        Self { last_error: stored.map(error_for_team), ..self }
    }
}
