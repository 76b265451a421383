//! The decisions of all schedules in one list: what an operator asks after a bad night.

use app::api::request::page::encode_cursor;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use tests::{Api, Story};

use crate::tenant_isolation::another_team;

/// Follows the list to its end; returns `<time> <workflow> <decision>` of each item.
async fn listed(api: &Api, query: &str) -> Vec<String> {
    let (path, mut found) = (format!("/api/v1/occurrences?{query}"), Vec::new());
    let mut next = path.clone();
    loop {
        let page = api.get(&next).await.expect(200).json;
        found.extend(page["items"].as_array().unwrap().iter().map(|item| {
            let text = |name: &str| item[name].as_str().unwrap().to_owned();
            format!("{} {} {}", &text("scheduled_time")[11..16], text("workflow_name"), text("decision"))
        }));
        let Some(cursor) = page["next_cursor"].as_str() else { return found };
        next = format!("{path}&cursor={cursor}");
    }
}

/// Two workflows run each minute. Then no fire arrives, and the watchdog decides what became due.
async fn bad_night() -> Story {
    let s = Story::at("2026-03-02T08:59:30Z").await;
    for name in ["a", "b"] {
        let fields = json!({"name": name, "cron_schedule": "* * * * *", "timezone": "UTC", "catch_up_policy": "none"});
        s.create_with(fields).await;
    }
    s.publish().await;
    s.clock_to("2026-03-02T09:01:30Z").await;
    s.set_clock("2026-03-02T09:09:30Z".parse().unwrap()).await;
    s.job("watchdog").await;
    s
}

#[tokio::test]
async fn what_was_missed_is_one_list() {
    let s = bad_night().await;
    let missed =
        ["09:04 b missed", "09:04 a missed", "09:03 b missed", "09:03 a missed", "09:02 b missed", "09:02 a missed"];
    for limit in [1, 4, 200] {
        assert_eq!(listed(&s.editor(), &format!("decision=missed&limit={limit}")).await, missed, "{limit}");
    }
    let all = listed(&s.editor(), "limit=3").await;
    assert_eq!(all[..6], missed);
    assert_eq!(all[6..], ["09:01 b fired", "09:01 a fired", "09:00 b fired", "09:00 a fired"]);
    assert_eq!(listed(&s.editor(), "decision=caught_up&decision=fired").await, all[6..]);
    assert_eq!(listed(&s.editor(), "decision=caught_up&decision=abandoned").await, Vec::<String>::new());
    let span = "from=2026-03-02T09:01:00Z&to=2026-03-02T09:03:00Z&limit=1";
    assert_eq!(listed(&s.editor(), span).await, ["09:02 b missed", "09:02 a missed", "09:01 b fired", "09:01 a fired"]);
    assert_eq!(listed(&s.admin(), span).await.len(), 4, "an admin sees all teams");
    s.end_early().await;
}

/// A list with ordinary fires reads all decisions of its span, so the span is bounded. The usual span is the last day.
#[tokio::test]
async fn a_list_with_fires_has_a_bounded_span() {
    let s = bad_night().await;
    s.editor().get("/api/v1/occurrences?from=2026-02-01T00:00:00Z").await.refused(400, "invalid_field", Some("from"));
    let of_old = "from=2026-02-01T00:00:00Z&decision=missed";
    assert_eq!(listed(&s.editor(), of_old).await.len(), 6);
    assert_eq!(listed(&s.editor(), "from=2026-02-01T00:00:00Z&to=2026-02-03T00:00:00Z").await, Vec::<String>::new());
    // Seven days that end now, as the console asks for them.
    assert_eq!(listed(&s.editor(), "from=2026-02-23T09:09:30Z").await.len(), 10);
    s.editor().get("/api/v1/occurrences?from=2026-02-23T09:09:29Z").await.refused(400, "invalid_field", Some("from"));
    s.editor().get("/api/v1/occurrences?decision=lost").await.refused(400, "invalid_field", Some("decision"));
    for key in ["7", "2026-03-02T09:00:00Z", "2026-03-02T09:03:00Z,1", "+10000-01-01T00:00:00Z,1"] {
        for cursor in [key.to_owned(), format!("{key},2026-03-01T09:09:30Z")] {
            let cursor = encode_cursor(cursor);
            let path = format!("/api/v1/occurrences?to=2026-03-02T09:03:00Z&cursor={cursor}");
            s.editor().get(&path).await.refused(400, "invalid_cursor", Some("cursor"));
        }
    }
    s.end_early().await;
}

/// The span of a list ends now, and its pages are read one after the other.
#[tokio::test]
async fn pages_belong_to_the_span_of_the_first() {
    let s = bad_night().await;
    s.set_clock("2026-03-03T09:00:00Z".parse().unwrap()).await;
    for span in ["", "&from=2026-02-24T09:00:00Z"] {
        let path = format!("/api/v1/occurrences?limit=9{span}");
        let first = s.editor().get(&path).await.expect(200).json;
        s.set_clock("2026-03-03T09:20:00Z".parse().unwrap()).await;
        let next = format!("{path}&cursor={}", first["next_cursor"].as_str().unwrap());
        let last = s.editor().get(&next).await.expect(200).json;
        assert_eq!(last["items"][0]["scheduled_time"], "2026-03-02T09:00:00Z", "{last}");
        s.set_clock("2026-03-03T09:00:00Z".parse().unwrap()).await;
    }
    s.set_clock("2026-03-03T09:02:30Z".parse().unwrap()).await;
    for limit in [1, 3, 200] {
        assert_eq!(
            listed(&s.editor(), &format!("limit={limit}")).await.len(),
            4,
            "a day has no more with pages of {limit}"
        );
    }
    let of_a_year = encode_cursor("2026-03-02T09:03:00Z,1,2025-03-02T09:03:00Z");
    let path = format!("/api/v1/occurrences?cursor={of_a_year}");
    s.editor().get(&path).await.refused(400, "invalid_field", Some("from"));
    s.end_early().await;
}

/// A client reads its first page from the version before, and the next one during the deployment. That version wrote no span.
#[tokio::test]
async fn cursors_of_the_version_before_stay_valid() {
    let s = bad_night().await;
    let path = "/api/v1/occurrences?limit=3";
    let first = s.editor().get(path).await.expect(200).json;
    let last = &first["items"][2];
    let old = encode_cursor(format!("{},{}", last["scheduled_time"].as_str().unwrap(), last["workflow_id"]));
    let after_old = s.editor().get(&format!("{path}&cursor={old}")).await.expect(200).json;
    let next = first["next_cursor"].as_str().unwrap();
    let after_new = s.editor().get(&format!("{path}&cursor={next}")).await.expect(200).json;
    assert_eq!(after_old["items"], after_new["items"]);
    assert_eq!(after_old["items"].as_array().unwrap().len(), 3);
    s.end_early().await;
}

/// The next page is read from the version before, which reads no cursor with a span. Only a list that has no other span needs one.
#[tokio::test]
async fn cursors_are_those_of_the_version_before() {
    let s = bad_night().await;
    for (query, has_span) in [("&from=2026-03-02T00:00:00Z", false), ("&decision=missed", false), ("", true)] {
        let first = format!("/api/v1/occurrences?limit=2{query}");
        let mut path = first.clone();
        for page in 1..=2 {
            let found = s.editor().get(&path).await.expect(200).json;
            let cursor = found["next_cursor"].as_str().unwrap();
            let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).unwrap()).unwrap();
            assert_eq!(text.matches(',').count(), if has_span { 2 } else { 1 }, "{query}, page {page}: {text}");
            path = format!("{first}&cursor={cursor}");
        }
    }
    s.end_early().await;
}

#[tokio::test]
async fn another_team_sees_none_of_them() {
    let s = bad_night().await;
    let stranger = another_team(&s, "strangers").await;
    assert_eq!(listed(&stranger, "").await, Vec::<String>::new());
    let own = s.editor().get("/api/v1/me").await.expect(200).json;
    let foreign = stranger.get(&format!("/api/v1/occurrences?team_id={}", own["teams"][0]["team_id"])).await;
    assert_eq!(foreign.expect(200).json["items"], json!([]), "as for a team that does not exist");
    s.end_early().await;
}
