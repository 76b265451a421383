//! Requests to the API in this process, under the caller of a session.

use api_types::keys::Scope;
use api_types::nesting::read_answer;
use api_types::problem::Problem;
use axum::Router;
use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use axum::response::Response;
use chrono::{DateTime, Utc};
use http_body_util::{BodyExt as _, Limited};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Display;
use tower::ServiceExt as _;

use crate::failure::Failure;

/// The largest answer in bytes; a page of a list has 1 MiB.
const LARGEST_ANSWER: usize = 8 * 1024 * 1024;
/// Names a form of a page, so that it creates nothing twice: `templates/act.html` writes it into each form.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// What all handlers of the console use.
#[derive(Clone)]
pub struct Console {
    /// The API in this process.
    api: Router,
}

/// Who looks at a page, and when. The server adds it to a request with a valid session.
#[derive(Clone, Debug)]
pub struct Visit {
    /// What requests to the API carry, so that it knows the caller without a key.
    pub identity: Extensions,
    /// What the caller may do, with all that its scopes include.
    pub permitted: Vec<Scope>,
    /// The time of the app.
    pub now: DateTime<Utc>,
}

/// The API, as the visitor of a page may use it.
#[derive(Clone)]
pub struct Api {
    console: Console,
    visit: Visit,
    /// The name of the form that the visitor has sent.
    form: Option<String>,
}

/// An answer of the API.
#[derive(Debug)]
pub struct Answer {
    /// Its status, below 400.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    body: Vec<u8>,
}

/// A write.
#[derive(Clone, Debug, Default)]
pub struct Write<'a> {
    /// The JSON body.
    pub body: Option<Value>,
    /// The version that the visitor has seen, as an entity tag.
    pub if_match: Option<&'a str>,
    /// The media type of the body, if it is not JSON.
    pub content_type: Option<&'static str>,
}

/// A version that the visitor has seen, as an entity tag.
#[must_use]
pub fn etag_of(version: &impl Display) -> String {
    format!("\"{version}\"")
}

impl Console {
    /// The console of this API.
    #[must_use]
    pub fn new(api: Router) -> Self {
        Self { api }
    }
}

impl FromRequestParts<Console> for Api {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, Failure> {
        let visit = parts.extensions.get::<Visit>().cloned().ok_or(Failure::SignedOut)?;
        let form = parts.headers.get(IDEMPOTENCY_KEY).and_then(|key| key.to_str().ok()).map(str::to_owned);
        Ok(Self { console: console.clone(), visit, form })
    }
}

impl Api {
    /// The time of the app.
    #[must_use]
    pub fn now(&self) -> DateTime<Utc> {
        self.visit.now
    }

    /// What the visitor may do.
    #[must_use]
    pub fn permitted(&self) -> &[Scope] {
        &self.visit.permitted
    }

    /// Reads an object or a list.
    ///
    /// # Errors
    /// Returns the problem that the API answers, or says that the answer cannot be read.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.send(Method::GET, path, Write::default()).await?.json()
    }

    /// Reads an object with its entity tag, which a later write sends back.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub async fn get_tagged<T: DeserializeOwned>(&self, path: &str) -> Result<(T, String), Failure> {
        let answer = self.send(Method::GET, path, Write::default()).await?;
        Ok((answer.json()?, answer.etag().unwrap_or_default()))
    }

    /// Writes without a body.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub async fn post(&self, path: &str) -> Result<Answer, Failure> {
        self.send(Method::POST, path, Write { body: Some(Value::Object(serde_json::Map::new())), ..Write::default() })
            .await
    }

    /// Writes a body.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub async fn post_json(&self, path: &str, body: Value) -> Result<Answer, Failure> {
        self.send(Method::POST, path, Write { body: Some(body), ..Write::default() }).await
    }

    /// Sends a request.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub async fn send(&self, method: Method, path: &str, write: Write<'_>) -> Result<Answer, Failure> {
        let response = self.request(method, path, write, None).await?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, LARGEST_ANSWER).collect().await;
        let body = body.map_err(|error| Failure::Broken(format!("the answer of the API was not read: {error}")))?;
        let body = body.to_bytes().to_vec();
        if parts.status.is_success() || parts.status == StatusCode::NOT_MODIFIED {
            return Ok(Answer { status: parts.status, headers: parts.headers, body });
        }
        Err(match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => Failure::Refused(parts.status, Box::new(problem)),
            Err(_) => Failure::Broken(format!("the API answered {}", parts.status)),
        })
    }

    /// Opens a stream of events; its body is not read here.
    ///
    /// # Errors
    /// Fails only if the request cannot be made.
    pub async fn stream(&self, path: &str, last_event_id: Option<HeaderValue>) -> Result<Response, Failure> {
        self.request(Method::GET, path, Write::default(), Some(last_event_id)).await
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        write: Write<'_>,
        stream: Option<Option<HeaderValue>>,
    ) -> Result<Response, Failure> {
        const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
        let form = self.form.as_deref().filter(|_| method == Method::POST);
        let mut request =
            Request::builder().method(method).uri(format!("/api/v1{path}")).header(header::HOST, "console");
        if let Some(if_match) = write.if_match {
            request = request.header(header::IF_MATCH, if_match);
        }
        if let Some(form) = form {
            request = request.header(IDEMPOTENCY_KEY, key_of(form, write.body.as_ref()));
        }
        if let Some(last) = stream {
            request = request.header(header::ACCEPT, "text/event-stream");
            if let Some(last) = last {
                request = request.header(LAST_EVENT_ID, last);
            }
        }
        let body = match &write.body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, write.content_type.unwrap_or("application/json"));
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        let mut request = request.body(body).map_err(|error| Failure::Broken(format!("no such page: {error}")))?;
        *request.extensions_mut() = self.visit.identity.clone();
        match self.console.api.clone().oneshot(request).await {
            Ok(response) => Ok(response),
            Err(never) => match never {},
        }
    }
}

/// The key of a request that creates something. One form may create something for each of several teams.
fn key_of(form: &str, body: Option<&Value>) -> String {
    match body.and_then(|body| body["team_id"].as_i64()) {
        Some(team_id) => format!("{form}-{team_id}"),
        None => form.to_owned(),
    }
}

impl Answer {
    /// Reads the body.
    ///
    /// # Errors
    /// Fails if it is not what the type says.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        read_answer(&self.body).map_err(|error| Failure::Broken(format!("the answer of the API is not read: {error}")))
    }

    /// The entity tag, which a later write sends back.
    #[must_use]
    pub fn etag(&self) -> Option<String> {
        self.headers.get(header::ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_team_has_its_own_key() {
        let bodies =
            [Some(json!({ "team_id": 7 })), Some(json!({ "team_id": 8 })), Some(json!({ "team_id": null })), None];
        let keys = bodies.map(|body| key_of("form", body.as_ref()));
        assert_eq!(keys, ["form-7", "form-8", "form", "form"]);
    }
}
