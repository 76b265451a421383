//! A client of the app's API that shows the answer when an assertion fails.

use std::fmt;

use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Method, RequestBuilder};
use serde_json::Value;

/// A client of one app with one key, or none.
#[derive(Clone)]
pub struct Api {
    base: String,
    key: Option<String>,
    http: reqwest::Client,
}

/// An answer of the app.
#[derive(Clone)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as JSON; null if it is not JSON.
    pub json: Value,
    /// The body as text.
    pub text: String,
}

impl Api {
    /// A client that sends `key`.
    pub fn new(base: &str, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..Self::without_key(base) }
    }

    /// A client that sends no key.
    pub fn without_key(base: &str) -> Self {
        // The app ends a connection that is idle for 10 s: none is used again when that may happen at the same moment.
        // No root certificates: all calls are http, and reading those of the system takes 20 ms for each client.
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([]);
        let http = http.pool_idle_timeout(std::time::Duration::from_secs(3)).build().expect("a client");
        Self { base: base.trim_end_matches('/').to_owned(), key: None, http }
    }

    /// GET; the path includes the leading slash and the query.
    pub async fn get(&self, path: &str) -> Answer {
        send_request(self.request(Method::GET, path)).await
    }

    /// GET from an app that may be down.
    ///
    /// # Errors
    /// The app does not answer.
    pub async fn try_get(&self, path: &str) -> reqwest::Result<Answer> {
        try_request(self.request(Method::GET, path)).await
    }

    /// POST with a JSON body.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        send_request(self.request(Method::POST, path).json(body)).await
    }

    /// POST with no body.
    pub async fn post_empty(&self, path: &str) -> Answer {
        send_request(self.request(Method::POST, path)).await
    }

    /// PATCH with `application/json`.
    pub async fn patch(&self, path: &str, body: &Value) -> Answer {
        send_request(self.request(Method::PATCH, path).json(body)).await
    }

    /// PATCH with `application/merge-patch+json`.
    pub async fn merge_patch(&self, path: &str, body: &Value) -> Answer {
        let request = self.request(Method::PATCH, path).header(CONTENT_TYPE, "application/merge-patch+json");
        send_request(request.body(body.to_string())).await
    }

    /// DELETE.
    pub async fn delete(&self, path: &str) -> Answer {
        send_request(self.request(Method::DELETE, path)).await
    }

    /// A request that the caller completes and sends.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.key {
            Some(key) => request.header("x-api-key", key),
            None => request,
        }
    }
}

/// Sends a request and reads the answer.
pub async fn send_request(request: RequestBuilder) -> Answer {
    try_request(request).await.unwrap_or_else(|error| panic!("no answer: {error:?}"))
}

async fn try_request(request: RequestBuilder) -> reqwest::Result<Answer> {
    let response = request.send().await?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = response.text().await?;
    Ok(Answer { status, headers, json: serde_json::from_str(&text).unwrap_or(Value::Null), text })
}

impl Answer {
    /// The answer, if it has this status; panics otherwise.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text);
        self
    }

    /// Asserts that the answer is a problem with this status, code and field.
    #[track_caller]
    pub fn refused(&self, status: u16, code: &str, field: Option<&str>) {
        let reply = (self.status, self.json["code"].as_str(), self.json["field"].as_str());
        assert_eq!(reply, (status, Some(code), field), "{}", self.text);
        assert_eq!(self.headers[CONTENT_TYPE], "application/problem+json");
        assert!(self.json["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{}", self.text);
    }

    /// The `id` in the answer.
    #[track_caller]
    pub fn id(&self) -> i64 {
        self.json["id"].as_i64().unwrap_or_else(|| panic!("no id in {}", self.text))
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status, self.text)
    }
}
