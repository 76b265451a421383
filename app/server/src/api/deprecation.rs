//! Steps 1 and 7 of 7: the operations that a later version of the API will not have, and how their answers say so.
//!
//! `Deprecation` (RFC 9745) has the day since which there is a better operation, `Sunset` (RFC 8594) the first day on which it
//! may be gone, and `Link` leads to the description. docs/api.md has the policy.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use chrono::{DateTime, NaiveDate, NaiveTime, Utc};

const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
const SUNSET: HeaderName = HeaderName::from_static("sunset");

/// An operation that has a better one.
pub struct Deprecated {
    /// The HTTP method, in lower case.
    pub method: &'static str,
    /// The path in the table of routes.
    pub path: &'static str,
    /// The day since which it is deprecated.
    pub since: NaiveDate,
    /// The first day on which it may be gone, at least a year later.
    pub sunset: NaiveDate,
    /// What to use instead, for the description of the API.
    pub instead: &'static str,
}

/// All of them.
pub static DEPRECATED: [Deprecated; 1] = [Deprecated {
    method: "get",
    path: "/api/v1/schedules/{id}/runs",
    since: day(2026, 11, 26),
    sunset: day(2027, 12, 1),
    instead: "GET /api/v1/runs?workflow_id=",
}];

const fn day(year: i32, month: u32, day: u32) -> NaiveDate {
    match NaiveDate::from_ymd_opt(year, month, day) {
        Some(date) => date,
        None => panic!("no such day"),
    }
}

impl Deprecated {
    /// The operation, if it is deprecated.
    pub(super) fn find(method: &str, path: &str) -> Option<&'static Deprecated> {
        DEPRECATED.iter().find(|deprecated| deprecated.path == path && deprecated.method.eq_ignore_ascii_case(method))
    }

    /// Adds the three headers to an answer.
    pub(super) fn mark(&self, headers: &mut HeaderMap) {
        let link = "</docs/>; rel=\"deprecation\"; type=\"text/html\"".to_owned();
        let since = format!("@{}", midnight(self.since).timestamp());
        let sunset = midnight(self.sunset).format("%a, %d %b %Y %H:%M:%S GMT").to_string();
        for (name, value) in [(DEPRECATION, since), (SUNSET, sunset), (header::LINK, link)] {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.append(name, value);
            }
        }
    }
}

fn midnight(day: NaiveDate) -> DateTime<Utc> {
    day.and_time(NaiveTime::MIN).and_utc()
}
