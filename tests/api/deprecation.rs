//! An operation that has a better one says so in each of its answers, and goes on as before.

use app::api::deprecation::DEPRECATED;
use app::api::describe;
use chrono::TimeDelta;
use tests::Story;

#[tokio::test]
async fn answers_of_deprecated_operations_say_until_when() {
    let s = Story::today().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    let answer = s.editor().get(&format!("/api/v1/schedules/{wf}/runs")).await.expect(200);
    assert_eq!(answer.headers["deprecation"], "@1795651200", "RFC 9745: a date as seconds");
    assert_eq!(answer.headers["sunset"], "Wed, 01 Dec 2027 00:00:00 GMT", "RFC 8594");
    assert!(answer.headers["link"].to_str().unwrap().contains("rel=\"deprecation\""));
    let better = s.editor().get(&format!("/api/v1/runs?workflow_id={wf}")).await.expect(200);
    assert_eq!(better.json, answer.json);
    assert!(!better.headers.contains_key("deprecation") && !better.headers.contains_key("sunset"));
    let refused = s.editor().get("/api/v1/schedules/0/runs").await.expect(404);
    assert!(refused.headers.contains_key("sunset"), "a refused call is a call, too");
    s.end().await;
}

/// docs/api.md promises a year.
#[test]
fn deprecated_operations_stay_for_a_year() {
    let described = describe();
    for deprecated in &DEPRECATED {
        assert!(deprecated.sunset - deprecated.since >= TimeDelta::days(365), "{}", deprecated.path);
        let operation = &described["paths"][deprecated.path][deprecated.method];
        assert_eq!(operation["deprecated"], true, "{operation}");
        assert!(operation["description"].as_str().unwrap().contains(deprecated.instead));
    }
}
