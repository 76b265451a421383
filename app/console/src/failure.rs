//! A page that cannot be shown, and an act that was refused.

use api_types::problem::{FieldProblem, Problem};
use askama::Template;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};

use crate::assets;

/// Why a page is not shown, or an act not done.
#[derive(Debug)]
pub enum Failure {
    /// The API refused the request.
    Refused(StatusCode, Box<Problem>),
    /// The visitor has no session.
    SignedOut,
    /// cronbox itself failed: the sentence is for the log.
    Broken(String),
}

/// The page of a failure.
#[derive(Template)]
#[template(path = "failure.html")]
struct FailurePage<'a> {
    status: u16,
    title: &'a str,
    detail: &'a str,
    /// Whether the visitor belongs to so many teams that the page needs one of them.
    needs_team: bool,
    request_id: Option<&'a str>,
}

/// What an act shows if it was refused.
#[derive(Template)]
#[template(path = "refusal.html")]
struct Refusal<'a> {
    detail: &'a str,
    code: &'a str,
    errors: &'a [FieldProblem],
    field: Option<&'a str>,
    request_id: Option<&'a str>,
}

/// The answer to an act: a refusal is shown in the page, beside what the visitor typed.
#[derive(Debug)]
pub struct ActFailure(pub Failure);

impl From<Failure> for ActFailure {
    fn from(failure: Failure) -> Self {
        Self(failure)
    }
}

impl Failure {
    /// A refusal by the console itself: a field of a form.
    #[must_use]
    pub fn of_field(field: &str, detail: &str) -> Self {
        Self::own(StatusCode::BAD_REQUEST, "invalid_field", Some(field), detail)
    }

    /// A refusal by the console itself, of no field.
    #[must_use]
    pub fn of_request(detail: &str) -> Self {
        Self::own(StatusCode::BAD_REQUEST, "invalid_field", None, detail)
    }

    /// The visitor has confirmed another selection than the one that an act would change.
    #[must_use]
    pub fn of_changed_selection() -> Self {
        let detail = "the selection has changed since this page was made: load the page again";
        Self::own(StatusCode::CONFLICT, "selection_changed", None, detail)
    }

    /// There is no such page.
    #[must_use]
    pub fn not_found() -> Self {
        Self::own(StatusCode::NOT_FOUND, "not_found", None, "there is no such page")
    }

    /// The form was sent before, and what it created is not shown again.
    #[must_use]
    pub fn sent_before() -> Self {
        Self::own(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused", None, SENT_BEFORE)
    }

    /// The form of a rotation was sent before, and the secret that it made is not shown again.
    #[must_use]
    pub fn rotated_before() -> Self {
        Self::own(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused", None, ROTATED_BEFORE)
    }

    fn own(status: StatusCode, code: &str, field: Option<&str>, detail: &str) -> Self {
        let problem = Problem {
            kind: "about:blank".to_owned(),
            title: status.canonical_reason().unwrap_or_default().to_owned(),
            status: status.as_u16(),
            code: code.to_owned(),
            detail: detail.to_owned(),
            field: field.map(str::to_owned),
            cron_field: None,
            errors: Vec::new(),
            request_id: None,
        };
        Self::Refused(status, Box::new(problem))
    }

    /// Whether the visitor lacks the scope for it, so that a page leaves this part out.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused(StatusCode::FORBIDDEN, _))
    }

    /// Whether the database had no time for the list.
    #[must_use]
    pub fn is_too_slow(&self) -> bool {
        matches!(self, Self::Refused(_, problem) if problem.code == "read_too_slow")
    }

    /// Whether the API refused this field.
    #[must_use]
    pub fn names_field(&self, field: &str) -> bool {
        matches!(self, Self::Refused(_, problem) if problem.field.as_deref() == Some(field))
    }

    fn title(status: StatusCode) -> &'static str {
        match status {
            StatusCode::NOT_FOUND => "Not found",
            StatusCode::FORBIDDEN => "Not permitted",
            StatusCode::TOO_MANY_REQUESTS => "Too many requests",
            StatusCode::SERVICE_UNAVAILABLE => "Not available now",
            status if status.is_client_error() => "Not accepted",
            _ => "Something failed",
        }
    }

    fn page(status: StatusCode, detail: &str, needs_team: bool, request_id: Option<&str>) -> Response {
        let page = FailurePage { status: status.as_u16(), title: Self::title(status), detail, needs_team, request_id };
        (status, Html(page.render().unwrap_or_default())).into_response()
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        match self {
            Self::Refused(status, problem) => {
                let needs_team = problem.field.as_deref() == Some("team_id");
                Self::page(status, &problem.detail, needs_team, problem.request_id.as_deref())
            }
            Self::SignedOut => Redirect::to("/sign-in").into_response(),
            Self::Broken(detail) => {
                tracing::error!(%detail, "page of the console not made");
                Self::page(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "cronbox could not make this page: its log has the reason",
                    false,
                    None,
                )
            }
        }
    }
}

/// What a visitor reads after another visitor has changed the same object.
const OTHER_EDIT: &str = "another edit came first, so yours was not saved: load the page again, and repeat it";
/// What a visitor reads who sends a form again that was sent with success, with other values or for a text that is shown once.
const SENT_BEFORE: &str = "this form was sent before, and what it created exists: load the page again to see it, or to send another \
                           one. A secret is shown only once: replace one that is lost";
/// The same after a rotation: another one would end the secret that the receivers have.
const ROTATED_BEFORE: &str = "this form was sent before, and the signing secret was rotated then: the new secret is not shown again. The \
                              previous one signs, too, until its overlap ends, and another rotation ends it at once";

const RETARGET: HeaderName = HeaderName::from_static("hx-retarget");
const RESWAP: HeaderName = HeaderName::from_static("hx-reswap");
const REDIRECT: HeaderName = HeaderName::from_static("hx-redirect");

/// Says what to do in a page, where the API speaks of versions and keys.
fn explain_to_people(status: StatusCode, problem: &mut Problem) {
    if status == StatusCode::PRECONDITION_FAILED {
        problem.detail = OTHER_EDIT.to_owned();
    } else if problem.code == "idempotency_key_reused" && problem.detail != ROTATED_BEFORE {
        problem.detail = SENT_BEFORE.to_owned();
    }
}

impl IntoResponse for ActFailure {
    fn into_response(self) -> Response {
        let (status, problem) = match self.0 {
            Failure::Refused(status, mut problem) => {
                explain_to_people(status, &mut problem);
                (status, problem)
            }
            Failure::SignedOut => {
                return (StatusCode::UNAUTHORIZED, [(REDIRECT, HeaderValue::from_static("/sign-in"))]).into_response();
            }
            Failure::Broken(detail) => {
                tracing::error!(%detail, "act of the console not answered");
                let Failure::Refused(_, mut problem) =
                    Failure::of_field("", "cronbox could not do this: its log has the reason")
                else {
                    return StatusCode::INTERNAL_SERVER_ERROR.into_response();
                };
                problem.field = None;
                (StatusCode::INTERNAL_SERVER_ERROR, problem)
            }
        };
        let shown = Refusal {
            detail: &problem.detail,
            code: &problem.code,
            errors: &problem.errors,
            field: problem.field.as_deref(),
            request_id: problem.request_id.as_deref(),
        };
        let headers = [
            (RETARGET, HeaderValue::from_static("#notice")),
            (RESWAP, HeaderValue::from_static("outerHTML")),
            (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        ];
        (status, headers, shown.render().unwrap_or_default()).into_response()
    }
}
