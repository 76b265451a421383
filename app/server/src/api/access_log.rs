//! Steps 1 and 7 of 7: each request has one line in the log, and its answer the id of this line.
//!
//! A line has the route as the table names it, and never the path, the query or a body, which may contain secrets. The
//! metrics count the same requests by the same routes, and the span of a request is named by them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderName, Method};
use axum::response::Response;
use traces::{Kind, Parent, Span};

use super::deprecation::Deprecated;
use super::request::auth::KeyPrefix;
use super::request::extract::sent_traceparent;
use super::request::request_id::RequestId;
use super::routes::{ROUTES, Route};
use crate::metrics::Requests;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// What a line says of a request whose client has disconnected before its answer, as other servers do.
const DISCONNECTED: u16 = 499;
/// The route of a request that no route serves.
const NO_ROUTE: &str = "none";

/// Where the operations begin. Checks of health have no span: load balancers send several per second.
const TRACED: &str = "/api/";

/// The line of a request, which is logged and counted when it is dropped: also if the request is dropped with its connection.
pub(super) struct Line<'a> {
    requests: &'a Requests,
    method: &'static str,
    route: Cow<'static, str>,
    /// The same, if the table has it.
    counted_route: Option<&'static str>,
    id: RequestId,
    span: Span,
    key: KeyPrefix,
    began: Instant,
    status: u16,
}

impl<'a> Line<'a> {
    /// The line of this request, which gets its id and the place for the prefix of its key, and is counted.
    pub(super) fn begin(requests: &'a Requests, request: &mut Request) -> Self {
        requests.begin_request();
        let pattern = request.extensions().get::<MatchedPath>().map_or(NO_ROUTE, MatchedPath::as_str);
        let counted_route = find_route(request.method(), pattern, request.uri().path());
        let route = counted_route.map_or_else(|| Cow::Owned(pattern.to_owned()), Cow::Borrowed);
        let (method, key) = (known_method(request.method()), KeyPrefix::default());
        let sent = sent_traceparent(request.headers());
        let span = begin_span(method, &route, sent);
        // The id is that of the trace, whether the client has begun it or this instance.
        let id = span.traceparent().as_deref().or(sent).and_then(RequestId::of_traceparent);
        let id = id.unwrap_or_else(RequestId::random);
        request.extensions_mut().insert(key.clone());
        Self { requests, method, route, counted_route, id, span, key, began: Instant::now(), status: DISCONNECTED }
    }

    pub(super) fn id(&self) -> RequestId {
        self.id
    }

    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    /// Logs the line of an answer, which gets the id, and what a deprecated operation says.
    pub(super) fn end(mut self, response: &mut Response) {
        self.status = response.status().as_u16();
        if let Some(id) = self.id.header_value() {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        if let Some(deprecated) = Deprecated::find(self.method, &self.route) {
            deprecated.mark(response.headers_mut());
        }
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        self.requests.end_request(self.method, self.counted_route, self.status, self.began.elapsed());
        self.span.set("http.response.status_code", i64::from(self.status));
        if self.status >= 500 {
            self.span.fail_with_status(self.status);
        }
        tracing::info!(
            method = self.method,
            route = &*self.route,
            status = self.status,
            duration_ms = milliseconds_since(self.began),
            request_id = self.id.as_str(),
            key = self.key.as_str(),
            "request answered"
        );
    }
}

/// Begins the span of an operation; its parent is that of the client.
fn begin_span(method: &'static str, route: &str, sent: Option<&str>) -> Span {
    if !route.starts_with(TRACED) {
        return Span::default();
    }
    let span = Span::begin(Kind::Server, Parent::Header(sent), || format!("{method} {route}").into());
    span.set("http.request.method", method);
    span.set_text("http.route", route);
    span
}

/// Milliseconds with one decimal.
fn milliseconds_since(began: Instant) -> f64 {
    (began.elapsed().as_secs_f64() * 10_000.0).round() / 10.0
}

/// A client may send any word as its method.
fn known_method(method: &Method) -> &'static str {
    let known = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
    known.into_iter().find(|known| *known == method.as_str()).unwrap_or("other")
}

/// The path of an operation in the table.
fn find_route(method: &Method, pattern: &str, path: &str) -> Option<&'static str> {
    /// The operations of each pattern, which differ in method and verb.
    static OPERATIONS: LazyLock<HashMap<String, Vec<&Route>>> = LazyLock::new(|| {
        let mut operations: HashMap<String, Vec<&Route>> = HashMap::new();
        ROUTES.iter().for_each(|route| operations.entry(route.pattern()).or_default().push(route));
        operations
    });
    let is_served = |route: &&&Route| {
        let is_verb = route.path.split_once("{id}:").is_none_or(|(_, verb)| path.rsplit(':').next() == Some(verb));
        is_verb && method.as_str().eq_ignore_ascii_case(route.method)
    };
    let operations = OPERATIONS.get(pattern).map(Vec::as_slice).unwrap_or_default();
    operations.iter().find(is_served).map(|route| route.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `{target}` is `{id}` or `{id}:verb`.
    #[test]
    fn routes_are_named_as_in_the_table() {
        let route = |method, pattern, path| find_route(&method, pattern, path).unwrap_or(pattern).to_owned();
        let workflow = "/api/v1/workflows/{target}";
        assert_eq!(route(Method::GET, workflow, "/api/v1/workflows/7"), "/api/v1/workflows/{id}");
        assert_eq!(route(Method::POST, workflow, "/api/v1/workflows/7:pause"), "/api/v1/workflows/{id}:pause");
        assert_eq!(route(Method::POST, workflow, "/api/v1/workflows/7:secret"), workflow);
        assert_eq!(
            route(Method::POST, "/api/v1/cron/workflows/{target}", "/api/v1/cron/workflows/7:invoke"),
            "/api/v1/cron/workflows/{id}:invoke"
        );
        assert_eq!(route(Method::GET, "/docs/{*rest}", "/docs/index.css"), "/docs/{*rest}");
        for operation in ROUTES {
            let method = Method::from_bytes(operation.method.to_uppercase().as_bytes()).unwrap();
            let path = operation.path.replace("{id}", "7");
            assert_eq!(find_route(&method, &operation.pattern(), &path), Some(operation.path));
        }
    }
}
