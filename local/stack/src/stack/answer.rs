//! The answer of an app to a test's request.

use anyhow::{Context, Result};
use reqwest::RequestBuilder;
use serde_json::Value;

/// An answer of the app.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code
    pub status: u16,
    /// The body; `null` if it is not JSON
    pub body: Value,
    /// The header `ETag`
    pub etag: Option<String>,
    /// The header `Location`
    pub location: Option<String>,
}

impl Answer {
    /// The code of the problem, if it is a refusal.
    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }
}

pub(super) async fn send_request(request: RequestBuilder) -> Result<Answer> {
    let response = request.send().await?;
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (etag, location) = (header("etag"), header("location"));
    let status = response.status().as_u16();
    let text = response.text().await.context("the body ended early")?;
    Ok(Answer { status, body: serde_json::from_str(&text).unwrap_or_default(), etag, location })
}
