//! Requests of a test to the apps of a stack.

use anyhow::Context as _;
use reqwest::Method;
use serde_json::Value;

use super::Stack;
use super::answer::{Answer, send_request};

impl Stack {
    /// Calls the API as the team's editor; `path` follows `/api/v1`.
    ///
    /// # Panics
    /// Panics if the app does not answer.
    pub async fn send_as_editor(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        self.send_with_key(method, &format!("{}/api/v1{path}", self.url()), &self.keys.editor, body).await
    }

    /// Calls any URL with any key.
    ///
    /// # Panics
    /// Panics if no server answers.
    pub async fn send_with_key(&self, method: Method, url: &str, key: &str, body: Option<Value>) -> Answer {
        let mut request = self.http.request(method, url).header("X-API-Key", key);
        if let Some(body) = body {
            request = request.json(&body);
        }
        send_request(request).await.unwrap_or_else(|error| panic!("no answer from {url}: {error:#}"))
    }

    /// Makes a link that signs in to the console once, with the admin key: its path.
    ///
    /// # Errors
    /// Fails if the app does not make one.
    pub async fn sign_in_link(&self) -> anyhow::Result<String> {
        let url = format!("{}/api/v1/sign-in-links", self.url());
        let answer = send_request(self.http.post(url).header("X-API-Key", &self.keys.admin)).await?;
        let path = answer.body["path"].as_str();
        path.map(str::to_owned).with_context(|| format!("the app answered {}", answer.status))
    }

    /// The HTTP client, for requests without a function here.
    pub fn http(&self) -> &reqwest::Client {
        &self.http
    }
}
