//! Requests of a test to the apps of a stack.

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

    /// The HTTP client, for requests without a function here.
    pub fn http(&self) -> &reqwest::Client {
        &self.http
    }
}
