//! Previews of a cron that is not saved, and of an existing schedule.

use serde_json::json;
use tests::Story;

#[tokio::test]
async fn explanations_mark_gaps_and_folds() {
    let s = Story::at("2026-03-27T12:00:00Z").await;
    let ask = json!({"cron": "30 2 * * *", "timezone": "Europe/Paris", "count": 2});
    let reply = s.editor().post("/api/v1/cron:explain", &ask).await.expect(200).json;
    let expected = json!({
        "normalized": "30 2 * * *", "eventbridge": "cron(30 2 * * ? *)", "eventbridge_timezone": "Europe/Paris",
        "coverage": "exact", "description": "At 02:30, every day",
        "zone_data": schedule::ZoneSet::bundled().version().to_string(),
        "next": [
            {"utc": "2026-03-28T01:30:00Z", "local": "2026-03-28T02:30:00+01:00", "offset": "+01:00", "note": null},
            {"utc": "2026-03-30T00:30:00Z", "local": "2026-03-30T02:30:00+02:00", "offset": "+02:00", "note": "gap"},
        ],
    });
    assert_eq!(reply, expected);
    let ask = json!({"cron": "30 2 * * *", "timezone": "Europe/Paris", "count": 1, "from": "2026-10-24T12:00:00Z"});
    let reply = s.editor().post("/api/v1/cron:explain", &ask).await.expect(200).json;
    assert_eq!((&reply["next"][0]["note"], &reply["next"][0]["offset"]), (&json!("fold"), &json!("+02:00")));
    let ask = json!({"cron": "0 9 13 * FRI"});
    assert_eq!(s.editor().post("/api/v1/cron:explain", &ask).await.expect(200).json["coverage"], "superset");
    s.end().await;
}

#[tokio::test]
async fn wrong_preview_fields_are_named() {
    let s = Story::at("2026-03-27T12:00:00Z").await;
    let cases = [
        (json!({"cron": "75 * * * *"}), "invalid_field", "cron"),
        (json!({"cron": "0 0 9 1 1 ? 2020"}), "never_fires", "cron"),
        (json!({"cron": "* * * * *", "timezone": "Europe/Pari"}), "invalid_timezone", "timezone"),
        (json!({"cron": "* * * * *", "count": 0}), "invalid_field", "count"),
        (json!({"cron": "* * * * *", "count": 101}), "invalid_field", "count"),
        (json!({"cron": "* * * * *", "from": "now"}), "invalid_field", "from"),
        (json!({"expr": "* * * * *"}), "unknown_field", "expr"),
        (json!({}), "missing_field", "cron"),
    ];
    for (body, code, field) in cases {
        s.editor().post("/api/v1/cron:explain", &body).await.refused(400, code, Some(field));
    }
    let wf = s.create("0 9 * * *", "UTC").await;
    let next = format!("/api/v1/schedules/{wf}/next");
    s.editor().get(&format!("{next}?n=0")).await.refused(400, "invalid_field", Some("n"));
    s.editor().get(&format!("{next}?n=x")).await.refused(400, "invalid_field", Some("n"));
    for n in ["-1", "0", "101"] {
        let refused = s.editor().get(&format!("{next}?n={n}")).await;
        refused.refused(400, "invalid_field", Some("n"));
        assert_eq!(refused.json["detail"], "n must be from 1 to 100");
    }
    s.end().await;
}

/// A refusal names the field of the body, the field of the cron, and the position. The command line prints the last
/// two.
#[tokio::test]
async fn refused_crons_name_field_and_character() {
    let s = Story::at("2026-03-27T12:00:00Z").await;
    let wf = s.create("0 9 * * *", "UTC").await;
    let body = json!({"cron_schedule": "0 9 1,32 * *"});
    let edited = s.editor().patch(&format!("/api/v1/workflows/{wf}"), &body).await;
    edited.refused(400, "invalid_field", Some("cron_schedule"));
    let requested = s.editor().post("/api/v1/cron:explain", &json!({"cron": "0 9 1,32 * *"})).await;
    requested.refused(400, "invalid_field", Some("cron"));
    for refused in [edited, requested] {
        assert_eq!(refused.json["detail"], "day-of-month field: 32 is above 31 (character 7)");
        assert_eq!(refused.json["cron_field"], "day-of-month");
    }
    let never = s.editor().post("/api/v1/cron:explain", &json!({"cron": "0 0 30 2 *"})).await;
    assert_eq!(never.json.get("cron_field"), None, "no single field is wrong");
    s.end().await;
}

#[tokio::test]
async fn previewed_times_are_those_that_fire() {
    let s = Story::at("2026-10-24T20:00:00Z").await;
    let wf = s.create("0 * * * *", "Europe/Paris").await;
    s.publish().await;
    let next = format!("/api/v1/schedules/{wf}/next?n=6");
    let reply = s.editor().get(&next).await.expect(200).json;
    let line = |item: &serde_json::Value| {
        let word = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
        format!("{} {} {} {}", word("utc"), word("local"), word("offset"), word("note"))
    };
    let lines: Vec<_> = reply["items"].as_array().unwrap().iter().map(line).collect();
    insta::assert_snapshot!(lines.join("\n"), @"
    2026-10-24T21:00:00Z 2026-10-24T23:00:00+02:00 +02:00 
    2026-10-24T22:00:00Z 2026-10-25T00:00:00+02:00 +02:00 
    2026-10-24T23:00:00Z 2026-10-25T01:00:00+02:00 +02:00 
    2026-10-25T00:00:00Z 2026-10-25T02:00:00+02:00 +02:00 fold
    2026-10-25T01:00:00Z 2026-10-25T02:00:00+01:00 +01:00 fold
    2026-10-25T02:00:00Z 2026-10-25T03:00:00+01:00 +01:00 
    ");
    s.clock_to("2026-10-25T02:00:30Z").await;
    let fired = s.occurrences(wf).await;
    let promised: Vec<_> = lines.iter().map(|line| format!("{}Z fired", &line[..16])).collect();
    assert_eq!(fired, promised.join("\n"));
    s.end().await;
}

#[tokio::test]
async fn previews_respect_window_and_pause() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let wf = s.create("0 * * * *", "UTC").await;
    let window = json!({"starts_at": "2026-03-02T11:00:00Z", "ends_at": "2026-03-02T13:00:00Z"});
    s.edit(wf, window).await;
    let next = format!("/api/v1/schedules/{wf}/next");
    let reply = s.editor().get(&next).await.expect(200).json;
    let times: Vec<_> = reply["items"].as_array().unwrap().iter().map(|item| item["utc"].clone()).collect();
    assert_eq!(times, ["2026-03-02T11:00:00Z", "2026-03-02T12:00:00Z"]);
    s.pause(wf).await;
    assert_eq!(s.editor().get(&next).await.json["items"][0]["note"], "paused");
    s.archive(wf).await;
    assert_eq!(s.editor().get(&next).await.json["items"], json!([]));
    s.end().await;
}

/// The answer has a warning, and the other fields can still be edited.
#[tokio::test]
async fn unknown_timezones_are_previewed_in_utc() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let wf = s.create("0 9 * * *", "Europe/Paris").await;
    s.publish().await;
    s.execute("UPDATE workflows SET timezone = 'Mars/Phobos', revision = revision + 1").await;
    let reply = s.editor().get(&format!("/api/v1/schedules/{wf}/next?n=1")).await.expect(200).json;
    assert_eq!((&reply["timezone"], &reply["items"][0]["utc"]), (&json!("UTC"), &json!("2026-03-02T09:00:00Z")));
    assert!(reply["warning"].as_str().unwrap().contains("Mars/Phobos"));
    s.edit(wf, json!({"description": "a rename needs no timezone"})).await;
    s.end().await;
}
