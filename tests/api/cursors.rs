//! Cursors are positions of the list that a client reads; every other one is refused, and reads nothing.

use app::api::request::page::encode_cursor;
use serde_json::Value;
use tests::{Api, Story};

/// Asserts that each of these keys is refused as a cursor.
async fn assert_refused(api: &Api, path: &str, keys: &[&str]) {
    for key in keys {
        let cursor = encode_cursor(key);
        let answer = api.get(&format!("{path}cursor={cursor}")).await;
        assert_eq!(answer.json["code"], "invalid_cursor", "{path} {key}: {}", answer.text);
        answer.refused(400, "invalid_cursor", Some("cursor"));
    }
}

/// Follows a list page by page; returns how many items it has.
async fn count_items(api: &Api, path: &str) -> usize {
    let (mut items, mut next) = (0, path.to_owned());
    loop {
        let page = api.get(&next).await.expect(200).json;
        items += page["items"].as_array().unwrap().len();
        let Some(cursor) = page["next_cursor"].as_str() else { return items };
        next = format!("{path}&cursor={cursor}");
    }
}

/// Times that Postgres cannot store were answered 500, each with an error in the log.
#[tokio::test]
async fn cursors_lie_within_their_list() {
    let s = Story::at("2026-03-02T08:59:30Z").await;
    let id = s.create("* * * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T09:04:30Z").await;
    let api = s.editor();
    let occurrences = format!("/api/v1/schedules/{id}/occurrences?");
    let never = ["-9999-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "+10000-01-01T00:00:00Z", "+262142-12-31T23:59:59Z"];
    assert_refused(&api, &occurrences, &never).await;
    let bounded = format!("{occurrences}from=2026-03-02T09:01:00Z&to=2026-03-02T09:04:00Z&limit=1");
    let outside = ["2026-03-02T09:00:59.999999Z", "2026-03-02T09:04:00Z"];
    assert_refused(&api, &format!("{bounded}&"), &outside).await;
    assert_eq!(count_items(&api, &bounded).await, 3, "its own cursors are accepted");
    let runs = "/api/v1/runs?from=2026-03-02T09:01:00Z&to=2026-03-02T09:04:00Z&limit=1";
    let ids = ["00000000-0000-7000-8000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"];
    assert_refused(&api, &format!("{runs}&"), &ids).await;
    assert_eq!(count_items(&api, runs).await, 3);
    for id in ids {
        let cursor = encode_cursor(id);
        for list in ["runs", "backfills"] {
            api.get(&format!("/api/v1/{list}?cursor={cursor}")).await.expect(200);
        }
        s.admin().get(&format!("/api/v1/keys?cursor={cursor}")).await.expect(200);
    }
    for id in [i64::MIN, -1, 0, i64::MAX] {
        let cursor = encode_cursor(id.to_string());
        for list in ["workflows", "schedules", "outbox"] {
            s.admin().get(&format!("/api/v1/{list}?cursor={cursor}")).await.expect(200);
        }
    }
    s.end().await;
}

/// A verification that continues elsewhere would accept a span that it did not read.
#[tokio::test]
async fn verifications_continue_only_where_they_stopped() {
    let s = Story::at("2026-03-04T12:00:00Z").await;
    let admin = s.admin();
    let path = "/api/v1/verify?from=2026-03-02T00:00:00Z&to=2026-03-04T06:00:00Z&";
    assert_eq!(admin.get(path.trim_end_matches('&')).await.expect(200).json["next_cursor"], Value::Null);
    // The start of the span and of its last slice, in microseconds.
    let (begin, last) = (1_772_409_600_000_000_i64, 1_772_582_400_000_000_i64);
    let forged = [
        "-8334601228800000000/0".to_owned(),
        "0/0".to_owned(),
        "8210266876799999999/0".to_owned(),
        format!("{begin}/-8334601228800000000/0/"),
        format!("{begin}/0/0/"),
        format!("{begin}/8210266876799999999/0/"),
        format!("{begin}/{}/0/", begin - 86_400_000_000),
        format!("{begin}/{}/0/", begin + 1),
        format!("{begin}/{begin}/-1/"),
        format!("{begin}/{begin}/0/{}", begin - 1),
        format!("{begin}/{begin}/0/{}", begin + 86_400_000_000),
        format!("{begin}/{last}/0/{}", last + 6 * 3_600_000_000),
    ];
    assert_refused(&admin, path, &forged.each_ref().map(String::as_str)).await;
    for own in [format!("{begin}/{begin}/7/"), format!("{begin}/{last}/7/{last}")] {
        admin.get(&format!("{path}cursor={}", encode_cursor(own))).await.expect(200);
    }
    s.end().await;
}
