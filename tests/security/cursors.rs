//! Cursors that no page has returned: they are refused, cost no error, and never make a verification say yes.

use base64_text::encode;
use chrono::{DateTime, SecondsFormat, SubsecRound as _, TimeDelta, Utc};
use serde_json::json;
use tests::{Answer, Api};

use crate::Size;
use crate::ground::{create_team, idle_story, team_key};
use crate::process::App;
use crate::report::Tally;

/// Parts of a cursor, at the ends of what their types can have.
const NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "1",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "8210266876799999999",
    "-8334601228800000000",
    "253402300800000000",
    "-62135596800000001",
    "1e3",
    "+1",
];
const TIMES: [&str; 12] = [
    "-9999-01-01T00:00:00Z",
    "-4713-01-01T00:00:00Z",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "1969-12-31T23:59:59Z",
    "9999-12-31T23:59:59Z",
    "+10000-01-01T00:00:00Z",
    "+262142-12-31T23:59:59Z",
    "-262143-01-01T00:00:00Z",
    "+294276-12-31T23:59:59Z",
    "2026-02-30T00:00:00Z",
    "2026-01-01T00:00:60Z",
];
const TEXTS: [&str; 16] = [
    "",
    "a",
    "null",
    "true",
    "[]",
    "{}",
    "' OR 1=1 --",
    "1; DROP TABLE runs",
    "\0",
    "\n",
    "\u{feff}1",
    "１",
    "1 ",
    " 1",
    "00000000-0000-0000-0000-000000000000",
    "ffffffff-ffff-ffff-ffff-ffffffffffff",
];
/// Texts that are no base64 of a key.
const RAW: [&str; 10] = ["%00", "=", "====", "A", "AA==", "-_-_", "+/+/", "%2e%2e%2f", "..", "%F0%9F%98%80"];

/// Standard cursors: base64 without padding, which the tests have no crate for.
mod base64_text {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

    /// Encodes a text for a URL.
    pub(crate) fn encode(text: &str) -> String {
        let mut encoded = String::new();
        for chunk in text.as_bytes().chunks(3) {
            let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
            for nth in 0..=chunk.len() {
                encoded.push(char::from(SIGNS[(bits >> (18 - 6 * nth) & 63) as usize]));
            }
        }
        encoded
    }
}

/// Sends forged cursors to every list.
pub(crate) async fn attack_cursors(size: Size) -> Tally {
    let s = idle_story().await;
    let app = App::start(&s.dsn(), &[]).await;
    let other = create_team(&s, "attacked").await;
    let attacked = app.api(&team_key(&s, other, "editor").await);
    let body =
        json!({"name": "attacked-9b1e", "cron_schedule": "0 9 * * *", "action": {"type": "log", "message": "x"}});
    attacked.post("/api/v1/workflows", &body).await.expect(201);
    let workflow = s.create("0 9 * * *", "UTC").await;
    let (viewer, admin) = (app.api(&team_key(&s, s.keys.team_id, "viewer").await), app.api(&s.keys.admin));
    let lists = [
        (&viewer, "/api/v1/workflows".to_owned()),
        (&viewer, "/api/v1/schedules".to_owned()),
        (&viewer, "/api/v1/runs".to_owned()),
        (&viewer, "/api/v1/backfills".to_owned()),
        (&viewer, format!("/api/v1/schedules/{workflow}/runs")),
        (&viewer, format!("/api/v1/schedules/{workflow}/occurrences")),
        (&admin, "/api/v1/keys".to_owned()),
        (&admin, "/api/v1/outbox".to_owned()),
    ];
    let mut tally = Tally::default();
    for cursor in cursors(size) {
        for (api, path) in &lists {
            let answer = api.get(&format!("{path}?cursor={cursor}")).await;
            let is_own = path.contains("keys") || path.contains("outbox") || !answer.text.contains("attacked-9b1e");
            tally.record(answer.status < 500 && is_own, || format!("{path}?cursor={cursor}: {answer:?}"));
        }
    }
    tally.add(attack_verify(&admin, s.clock.now(), size).await);
    tally.record(app.answers().await, || "an honest client has no answer".to_owned());
    app.stop().await;
    s.end_early().await;
    tally
}

fn cursors(size: Size) -> Vec<String> {
    let texts = NUMBERS.iter().chain(&TIMES).chain(&TEXTS).map(|text| encode(text));
    let mut cursors: Vec<String> = texts.chain(RAW.map(str::to_owned)).collect();
    cursors.push(encode(&"9".repeat(5_000)));
    cursors.push("A".repeat(10_000));
    if size == Size::Full {
        for a in NUMBERS {
            cursors.extend(
                NUMBERS
                    .iter()
                    .chain(&TIMES)
                    .flat_map(|b| [format!("{a}/{b}"), format!("{b}/{a}")])
                    .map(|text| encode(&text)),
            );
        }
    }
    cursors
}

/// A span that is not decided has differences or is refused; a cursor outside of it must not skip what it names.
async fn attack_verify(admin: &Api, now: DateTime<Utc>, size: Size) -> Tally {
    let mut tally = Tally::default();
    // A slice begins a number of days after the span, whose text has full seconds: without them, all slices were refused
    // for that reason only.
    let now = now.trunc_subsecs(0);
    let time = |days| (now - TimeDelta::days(days)).to_rfc3339_opts(SecondsFormat::Secs, true);
    let span = format!("/api/v1/verify?from={}&to={}", time(3), time(1));
    let inside = (now - TimeDelta::days(2)).timestamp_micros().to_string();
    let outside = (now - TimeDelta::days(30)).timestamp_micros().to_string();
    let later = (now + TimeDelta::days(30)).timestamp_micros().to_string();
    let slices: Vec<&str> = NUMBERS.into_iter().chain([&*outside, &later]).collect();
    let mut cursors: Vec<String> =
        slices.iter().flat_map(|slice| [format!("{slice}/0"), format!("0/{slice}")]).collect();
    let requested = [&*inside, &later, "0", "9223372036854775807"];
    for slice in &slices {
        for requested in requested {
            cursors.extend([
                format!("{requested}/{slice}/0/"),
                format!("{requested}/{slice}/9223372036854775807/"),
                format!("{requested}/{slice}/1/{slice}"),
            ]);
        }
    }
    for after in &slices {
        cursors.push(format!("{inside}/{inside}/1/{after}"));
    }
    cursors.extend(TEXTS.iter().chain(&TIMES).map(|text| (*text).to_owned()));
    if size == Size::Full {
        for (a, b) in slices.iter().flat_map(|a| slices.iter().map(move |b| (a, b))) {
            cursors.extend([format!("{a}/{b}/0/"), format!("{a}/{b}/-1/{a}"), format!("{a}/{b}/{a}/{b}")]);
        }
    }
    for cursor in cursors {
        let answer = admin.get(&format!("{span}&cursor={}", encode(&cursor))).await;
        tally.record(is_honest(&answer, &cursor), || format!("verify with the cursor {cursor}: {answer:?}"));
    }
    tally
}

/// Whether a cursor was refused, or names a place inside of the span.
fn is_honest(answer: &Answer, cursor: &str) -> bool {
    let parts: Vec<&str> = cursor.split('/').collect();
    let slice = parts.get(1).and_then(|slice| slice.parse::<i64>().ok()).and_then(DateTime::from_timestamp_micros);
    let time = |name: &str| answer.json[name].as_str().and_then(|time| time.parse::<DateTime<Utc>>().ok());
    match answer.status {
        400..500 => true,
        200 => slice.zip(time("from")).zip(time("to")).is_some_and(|((slice, from), to)| from <= slice && slice < to),
        _ => false,
    }
}
