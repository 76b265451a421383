//! Requests of a test to the apps of a stack, and their answers.

use anyhow::{Context, Result};
use reqwest::{Method, RequestBuilder};
use serde_json::Value;

use super::Stack;

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

impl Stack {
    /// Calls the API as the team's editor; `path` follows `/api/v1`.
    ///
    /// # Panics
    /// Panics if the app does not answer.
    pub async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        self.request(method, &format!("{}/api/v1{path}", self.url()), &self.keys.editor, body).await
    }

    /// Calls any URL with any key.
    ///
    /// # Panics
    /// Panics if no server answers.
    pub async fn request(&self, method: Method, url: &str, key: &str, body: Option<Value>) -> Answer {
        let mut request = self.http.request(method, url).header("X-API-Key", key);
        if let Some(body) = body {
            request = request.json(&body);
        }
        answer(request).await.unwrap_or_else(|error| panic!("no answer from {url}: {error:#}"))
    }

    /// The HTTP client, for requests without a function here.
    pub fn http(&self) -> &reqwest::Client {
        &self.http
    }
}

pub(super) async fn answer(request: RequestBuilder) -> Result<Answer> {
    let response = request.send().await?;
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (etag, location) = (header("etag"), header("location"));
    let status = response.status().as_u16();
    let text = response.text().await.context("the body broke off")?;
    Ok(Answer { status, body: serde_json::from_str(&text).unwrap_or_default(), etag, location })
}
