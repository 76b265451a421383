//! The proof's pages: none is too long or too late, and a workflow that cannot be evaluated delays none.

use serde_json::{Value, json};
use tests::measure::StatementStatistics;
use tests::{Api, CountingWay, Story};

use crate::verify::due_times::{SPAN, cronbox, differences, fired, settle, verify};

/// Workflows for which every minute of a day was due, without any decision.
async fn undecided(s: &Story) {
    s.execute(
        "INSERT INTO workflows (team_id, name, action, cron_schedule, revision, created_on, updated_on, watch_at)
         SELECT 1, 'w' || n, '{\"type\":\"log\",\"message\":\"m\"}', '* * * * *', 1, now(), now(), '2026-03-02T10:30:00Z'
           FROM generate_series(1, 3) n;
         INSERT INTO schedule_versions (workflow_id, revision, valid_from, cron, state)
         SELECT id, 1, '2025-10-01T00:00:00Z', '* * * * *', 'active' FROM workflows WHERE name IN ('w1', 'w2', 'w3')",
    )
    .await;
}

/// Twenty workflows with a decision for each minute of a day, and one of them for each of the 19 days before; beside
/// them many without a schedule.
async fn decided(s: &Story) {
    s.execute_long(
        "INSERT INTO workflows (team_id, name, action, cron_schedule, revision, created_on, updated_on, watch_at)
         SELECT 1, 'w' || n, '{\"type\":\"log\",\"message\":\"m\"}', '* * * * *', 1, now(), now(), '2026-03-02T10:30:00Z'
           FROM generate_series(1, 20) n;
         INSERT INTO workflows (team_id, name, action, created_on, updated_on)
         SELECT 1, 'idle' || n, '{\"type\":\"log\",\"message\":\"m\"}', now(), now() FROM generate_series(1, 600) n;
         INSERT INTO schedule_versions (workflow_id, revision, valid_from, cron, state)
         SELECT id, 1, (CASE name WHEN 'w1' THEN '2026-01-31T23:59:30Z' ELSE '2026-02-19T23:59:30Z' END)::timestamptz,
                '* * * * *', 'active'
           FROM workflows WHERE name ~ '^w[0-9]';
         INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, lateness_s, decided_on, created_on, updated_on)
         SELECT gen_random_uuid(), w.id, due, 'missed', 600, due, due, due
           FROM workflows w
           JOIN schedule_versions v ON v.workflow_id = w.id
          CROSS JOIN generate_series(v.valid_from + INTERVAL '30 s', '2026-02-20T23:59:00Z', INTERVAL '1 min') AS due
          WHERE w.name ~ '^w[0-9]'",
    )
    .await;
}

/// Follows a proof to its end, without a difference; says how many times were due.
async fn count_proven(admin: &Api, span: &str) -> u64 {
    let (mut due, mut cursor) = (0, String::new());
    loop {
        let part = admin.get(&format!("/api/v1/verify?{span}{cursor}")).await.expect(200).json;
        assert_eq!(part["differences"], json!([]));
        due += part["due"].as_u64().unwrap();
        let Some(next) = part["next_cursor"].as_str() else { return due };
        cursor = format!("&cursor={next}");
    }
}

/// However long the span and however many the workflows: no statement of a proof has a longer answer than a page has
/// due times, those of its last workflow included.
#[tokio::test]
async fn proofs_read_bounded_pages() {
    const A_DAY: u64 = 1_440;
    let (mut s, _) = fired().await;
    decided(&s).await;
    let way = CountingWay::to(&s.dsn()).await;
    let admin = Api::new(&s.another_url_at(way.dsn(&s.dsn())).await, &s.keys.admin);
    for (from, due) in [("2026-02-20", 20 * A_DAY), ("2026-02-01", (20 + 19) * A_DAY)] {
        way.take_rows();
        let span = format!("from={from}T00:00:00Z&to=2026-02-21T00:00:00Z");
        assert_eq!(count_proven(&admin, &span).await, due);
        let rows = way.take_rows();
        assert!(rows.values().all(|rows| rows.most <= 20_000 + A_DAY), "{from}: {rows:?}");
        assert_eq!(rows["the decisions of a slice"].all, due, "each is read once");
        assert_eq!(rows["a page of workflows"].most, 500, "of 621");
    }
    s.end().await;
}

/// The timing of one workflow changes each millisecond, and that of 19 others each minute. Only the version that is in force
/// at a full minute counts, and the answers are not longer.
#[tokio::test]
async fn proofs_read_no_version_between_minutes() {
    const A_DAY: u64 = 1_440;
    let (mut s, _) = fired().await;
    decided(&s).await;
    // Of those of a millisecond only that of exactly 12:01 is active, and the last one.
    s.execute_long(
        "INSERT INTO schedule_versions (workflow_id, revision, valid_from, cron, state)
         SELECT id, 1 + n, '2026-02-20T12:00:00.500Z'::timestamptz + n * INTERVAL '1 ms', '* * * * *',
                CASE WHEN n IN (59500, 100000) THEN 'active' ELSE 'paused' END
           FROM workflows, generate_series(1, 100000) AS n
          WHERE name = 'w1';
         INSERT INTO schedule_versions (workflow_id, revision, valid_from, cron, state)
         SELECT id, 1 + n, '2026-02-19T23:59:45Z'::timestamptz + n * INTERVAL '1 min', '* * * * *', 'active'
           FROM workflows, generate_series(1, 1439) AS n
          WHERE name ~ '^w[0-9]' AND name <> 'w1'",
    )
    .await;
    let way = CountingWay::to(&s.dsn()).await;
    let admin = Api::new(&s.another_url_at(way.dsn(&s.dsn())).await, &s.keys.admin);
    way.take_rows();
    assert_eq!(count_proven(&admin, "from=2026-02-20T00:00:00Z&to=2026-02-21T00:00:00Z").await, 20 * A_DAY);
    let rows = way.take_rows();
    assert!(rows.values().all(|rows| rows.most <= 20_000 + A_DAY), "{rows:?}");
    s.end().await;
}

/// 400 workflows with one time a day for 100 days; every tenth id belongs to none.
async fn daily(s: &Story) {
    s.execute_long(
        "INSERT INTO workflows (id, team_id, name, action, cron_schedule, revision, created_on, updated_on, watch_at)
         OVERRIDING SYSTEM VALUE
         SELECT 1000 + n + n / 9, 1, 'w' || n, '{\"type\":\"log\",\"message\":\"m\"}', '0 9 * * *', 1, now(), now(), '2026-03-02T10:30:00Z'
           FROM generate_series(1, 400) n;
         INSERT INTO schedule_versions (workflow_id, revision, valid_from, cron, state)
         SELECT id, 1, '2025-11-13T00:00:00Z', '0 9 * * *', 'active' FROM workflows WHERE name ~ '^w[0-9]';
         INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, lateness_s, decided_on, created_on, updated_on)
         SELECT gen_random_uuid(), id, due, 'missed', 600, due, due, due
           FROM generate_series('2025-11-13T09:00:00Z'::timestamptz, '2026-02-20T09:00:00Z', INTERVAL '1 day') AS due,
                workflows
          WHERE name ~ '^w[0-9]';
         ANALYZE occurrences",
    )
    .await;
}

/// The decisions and runs of workflows without a gap between their ids are found by one search of an index, not by one for each
/// workflow and each day since.
#[tokio::test]
async fn a_page_searches_indexes_once_for_neighbours() {
    let (mut s, _) = fired().await;
    daily(&s).await;
    let mut statistics = StatementStatistics::enable_on(&s.owner_dsn()).await;
    let admin = Api::new(&s.another_url().await, &s.keys.admin);
    let span = "from=2026-02-20T00:00:00Z&to=2026-02-21T00:00:00Z";
    assert_eq!(count_proven(&admin, span).await, 400);
    let figures = statistics.read_figures().await;
    for label in ["the decisions of a slice", "the runs of a slice's times"] {
        let read = figures.iter().find(|one| one.label.starts_with(label)).unwrap();
        assert!(read.buffers < 2 * 400, "two for each workflow: {read:?}");
    }
    s.end().await;
}

/// The next page of a proof, by its cursor.
async fn page(s: &Story, span: &str, before: Option<&Value>) -> Value {
    let cursor = before.map(|before| format!("&cursor={}", before["next_cursor"].as_str().unwrap()));
    verify(s, &format!("{span}{}", cursor.unwrap_or_default())).await.expect(200).json
}

#[tokio::test]
async fn each_page_names_a_thousand_differences() {
    let (s, _) = fired().await;
    undecided(&s).await;
    let span = "from=2026-02-20T00:00:00Z&to=2026-02-21T00:00:00Z";
    let (mut named, mut parts) = (Vec::new(), vec![page(&s, span, None).await]);
    loop {
        let part = parts.last().unwrap();
        let differences = part["differences"].as_array().unwrap();
        assert!(differences.len() <= 1_000, "{}", differences.len());
        named.extend(differences.iter().map(|one| format!("{} {}", one["workflow_id"], one["scheduled_time"])));
        if part["next_cursor"].is_null() {
            break;
        }
        parts.push(page(&s, span, Some(part)).await);
    }
    let due: u64 = parts.iter().map(|part| part["due"].as_u64().unwrap()).sum();
    assert_eq!((named.len(), due, parts.len()), (3 * 1_440, 3 * 1_440, 5));
    named.sort();
    named.dedup();
    assert_eq!(named.len(), 3 * 1_440, "none is named twice");
    s.end().await;
}

#[tokio::test]
async fn the_longest_proof_comes_to_its_end() {
    let (s, _) = fired().await;
    undecided(&s).await;
    // Exactly 90 days before the story's time.
    let span = "from=2025-12-02T10:10:00Z&to=2025-12-03T10:10:00Z";
    let mut part = page(&s, span, None).await;
    s.now_is("2026-03-02T10:10:08Z").await;
    let mut named = 0;
    loop {
        named += part["differences"].as_array().unwrap().len();
        if part["next_cursor"].is_null() {
            break;
        }
        part = page(&s, span, Some(&part)).await;
    }
    assert_eq!(named, 3 * 1_440);
    let again = verify(&s, span).await;
    again.refused(400, "span_too_old", Some("from"));
    s.end().await;
}

/// A later page omits rows that a prune may have removed in the meantime, and the answer says so.
#[tokio::test]
async fn a_prune_between_pages_is_no_difference() {
    let (s, _) = fired().await;
    undecided(&s).await;
    let span = "from=2025-12-02T10:10:00Z&to=2025-12-03T10:10:00Z";
    let mut parts = vec![page(&s, span, None).await];
    s.now_is("2026-03-02T22:10:00Z").await;
    s.job("prune").await;
    while parts[parts.len() - 1]["next_cursor"].is_string() {
        parts.push(page(&s, span, parts.last()).await);
    }
    let named: usize = parts.iter().map(|part| part["differences"].as_array().unwrap().len()).sum();
    assert_eq!(named, 1_440 + 2 * 720, "the first workflow was compared, half a day of the others is left");
    assert_eq!(parts[0]["compared_from"], "2025-12-02T10:10:00Z");
    assert_eq!(parts[parts.len() - 1]["compared_from"], "2025-12-02T22:10:00Z");
    s.end().await;
}

#[tokio::test]
async fn a_cursor_of_another_span_is_refused() {
    let (s, _) = fired().await;
    undecided(&s).await;
    let part = page(&s, "from=2026-02-20T00:00:00Z&to=2026-02-21T00:00:00Z", None).await;
    let cursor = part["next_cursor"].as_str().unwrap();
    verify(&s, &format!("{SPAN}&cursor={cursor}")).await.refused(400, "invalid_cursor", Some("cursor"));
    verify(&s, &format!("{SPAN}&cursor=MS8y")).await.refused(400, "invalid_cursor", Some("cursor"));
    s.end().await;
}

#[tokio::test]
async fn an_unknown_timezone_delays_no_other_proof() {
    let (s, _) = fired().await;
    let lost = s.create("*/30 * * * *", "Europe/Paris").await;
    s.execute(
        "UPDATE schedule_versions SET timezone = 'Mars/Olympus', valid_from = '2026-03-02T09:10:00Z' WHERE timezone IS NOT NULL
            AND timezone <> 'UTC';
         UPDATE ledger SET cursor = '2026-03-02T09:10:00Z', watch_at = '2026-03-02T09:30:00Z'
          WHERE workflow_id IN (SELECT id FROM workflows WHERE timezone = 'Europe/Paris')",
    )
    .await;
    s.job("watchdog").await;
    settle_known(&s).await;
    let found = verify(&s, SPAN).await.expect(200);
    assert_eq!(differences(&found), Vec::<String>::new());
    assert_eq!((&found.json["due"], &found.json["decided"]), (&json!(3), &json!(3)), "of the other workflow");
    assert_eq!(found.json["unjudged_workflows"], json!([{"workflow_id": lost.0, "revision": 1}]));
    let words = ["verify", "--from", "2026-03-02T09:00:00Z", "--to", "2026-03-02T10:01:00Z"];
    let (code, said) = cronbox(&s, &words).await;
    assert_eq!(code, Some(1), "a workflow without a proof is not proven: {said}");
    assert!(said.contains(&format!("{:<8}  not proven ", lost.0)), "{said}");
    assert!(said.contains("3 due times, 3 decided: 1 workflows are not proven"), "{said}");
    // A workflow with a known timezone still delays the proof if the watchdog is behind.
    s.execute(
        "UPDATE ledger SET cursor = '2026-03-02T09:29:00Z', watch_at = '2026-03-02T09:30:00Z'
          WHERE workflow_id IN (SELECT id FROM workflows WHERE timezone IS NULL OR timezone = 'UTC')",
    )
    .await;
    verify(&s, SPAN).await.refused(400, "span_not_settled", Some("to"));
    s.publish().await;
    s.end_early().await;
}

/// Sets the state in which the watchdog leaves the workflows that it can evaluate.
async fn settle_known(s: &Story) {
    settle(s).await;
    s.execute(
        "UPDATE ledger SET watch_at = '2026-03-02T09:30:00Z'
          WHERE workflow_id IN (SELECT id FROM workflows WHERE timezone = 'Europe/Paris')",
    )
    .await;
}
