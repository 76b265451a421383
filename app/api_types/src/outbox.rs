//! The rows of the outbox.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// An outbox row.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct OutboxView {
    /// Its id.
    pub id: i64,
    /// The workflow.
    pub workflow_id: i64,
    /// `upsert` or `delete`.
    pub op: String,
    /// Its status.
    pub status: Status,
    /// The request of the edit; for audit, never replayed.
    #[schema(value_type = Object)]
    pub payload: Value,
    /// When it was created.
    pub created_on: DateTime<Utc>,
    /// When it was published.
    pub processed_on: Option<DateTime<Utc>>,
    /// When it failed permanently.
    pub failed_on: Option<DateTime<Utc>>,
    /// How often it was tried.
    pub attempt_count: i32,
    /// Why the last attempt failed.
    pub error_message: Option<String>,
    /// Class of the workflow's last error: `transient`, `environment`, `unclassified`, `permanent`.
    pub error_class: Option<String>,
    /// When the publisher processes the workflow next; null: it is not due.
    pub due_at: Option<DateTime<Utc>>,
}

/// The status of an outbox row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// To be published.
    Pending,
    /// Failed until the workflow's next edit, or a retry.
    Failed,
    /// Published.
    Processed,
    /// Failed, and discarded by an operator.
    Discarded,
}
