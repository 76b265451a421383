//! A page of a list.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One page of a list.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct Page<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// Send it as `cursor` for the next page; null: this is the last.
    pub next_cursor: Option<String>,
    /// How many items all pages together have, if the request has `total=true`. At most 10,000: that many, or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<usize>,
}
