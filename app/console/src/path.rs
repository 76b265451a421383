//! Ids in the paths of pages.

use std::str::FromStr;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use crate::failure::Failure;

/// The id in a path. What is no id has no page.
pub(crate) struct PathId<T>(pub T);

impl<T: FromStr, S: Send + Sync> FromRequestParts<S> for PathId<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let Path(text) = Path::<String>::from_request_parts(parts, state).await.map_err(|_| Failure::not_found())?;
        text.parse().map(Self).map_err(|_| Failure::not_found())
    }
}
