//! Answers of pages: their HTML, and texts that are shown once.

use askama::Template;
use axum::response::{Html, IntoResponse as _, Response};

use crate::failure::Failure;

/// The HTML of a page.
///
/// # Errors
/// Fails if the template fails.
pub(crate) fn show_page(page: &impl Template) -> Result<Response, Failure> {
    Ok(Html(page.render().map_err(|error| Failure::Broken(error.to_string()))?).into_response())
}

/// What is shown or not, by the scopes of the visitor.
///
/// # Errors
/// Passes on every failure but a refusal because of a missing scope.
pub(crate) fn if_permitted<T>(read: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match read {
        Ok(view) => Ok(Some(view)),
        Err(failure) if failure.is_forbidden() => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// A text that no page shows again. It replaces `#once` of the page, so that no address and no history has it.
#[derive(Template)]
#[template(path = "once.html")]
pub(crate) struct ShownOnce<'a> {
    /// What it is.
    pub(crate) title: String,
    /// What to do with it.
    pub(crate) hint: &'a str,
    /// Each text, with its label.
    pub(crate) texts: Vec<(&'a str, String)>,
    /// The page without it.
    pub(crate) next: &'a str,
}
