//! `/cron/explain`: what a cron means, while it is typed.

use api_types::previews::ExplanationView;
use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::post;
use serde::Deserialize;
use serde_json::json;

use crate::answer::show_page;
use crate::api::{Api, Console};
use crate::failure::{ActFailure, Failure};
use crate::form::Sent;

pub(super) fn routes() -> Router<Console> {
    Router::new().route("/cron/explain", post(show))
}

/// What a cron means, or why it is not valid.
pub(super) enum Explanation {
    /// There is no cron.
    None,
    /// Its meaning.
    Meaning(Box<ExplanationView>),
    /// What is wrong, and in which part of the cron.
    Refused(String, Option<String>),
}

#[derive(Template)]
#[template(path = "cron_explanation.html")]
struct Fragment {
    explanation: Explanation,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Typed {
    cron_schedule: String,
    timezone: String,
}

async fn show(api: Api, Sent(typed): Sent<Typed>) -> Result<Response, ActFailure> {
    let explanation = explain(&api, &typed.cron_schedule, &typed.timezone).await?;
    Ok(show_page(&Fragment { explanation })?)
}

/// Reads from the API what a cron means.
pub(super) async fn explain(api: &Api, cron: &str, timezone: &str) -> Result<Explanation, Failure> {
    let (cron, timezone) = (cron.trim(), Some(timezone.trim()).filter(|zone| !zone.is_empty()));
    if cron.is_empty() {
        return Ok(Explanation::None);
    }
    match api.post_json("/cron:explain", json!({ "cron": cron, "timezone": timezone, "count": 5 })).await {
        Ok(answer) => Ok(Explanation::Meaning(Box::new(answer.json()?))),
        Err(Failure::Refused(status, problem)) if status.as_u16() == 400 || status.as_u16() == 422 => {
            Ok(Explanation::Refused(problem.detail, problem.cron_field))
        }
        Err(failure) => Err(failure),
    }
}
