//! The proof's pages: none is too long or too late, and a workflow that cannot be evaluated delays none.

use serde_json::{Value, json};
use tests::Story;

use crate::verifying::{SPAN, cronbox, differences, fired, settle, verify};

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

/// The page of a proof after the page `before`.
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
    let owed: u64 = parts.iter().map(|part| part["owed"].as_u64().unwrap()).sum();
    assert_eq!((named.len(), owed, parts.len()), (3 * 1_440, 3 * 1_440, 5));
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
         UPDATE workflows SET ledger_cursor = '2026-03-02T09:10:00Z', watch_at = '2026-03-02T09:30:00Z'
          WHERE timezone = 'Europe/Paris'",
    )
    .await;
    s.job("watchdog").await;
    settle_known(&s).await;
    let found = verify(&s, SPAN).await.expect(200);
    assert_eq!(differences(&found), Vec::<String>::new());
    assert_eq!((&found.json["owed"], &found.json["decided"]), (&json!(3), &json!(3)), "of the other workflow");
    assert_eq!(found.json["unjudged_workflows"], json!([{"workflow_id": lost.0, "revision": 1}]));
    let words = ["verify", "--from", "2026-03-02T09:00:00Z", "--to", "2026-03-02T10:01:00Z"];
    let (code, said) = cronbox(&s, &words).await;
    assert_eq!(code, Some(1), "a workflow without a proof is not proven: {said}");
    assert!(said.contains(&format!("workflow {:<10} not proven", lost.0)), "{said}");
    assert!(said.contains("3 times owed, 3 decided: 1 workflows are not proven"), "{said}");
    // A workflow with a known timezone still delays the proof if the watchdog is behind.
    s.execute("UPDATE workflows SET watch_at = '2026-03-02T09:30:00Z' WHERE timezone IS NULL OR timezone = 'UTC'")
        .await;
    verify(&s, SPAN).await.refused(400, "span_not_settled", Some("to"));
    s.publish().await;
    s.end_early().await;
}

/// Sets the state in which the watchdog leaves the workflows that it can evaluate.
async fn settle_known(s: &Story) {
    settle(s).await;
    s.execute("UPDATE workflows SET watch_at = '2026-03-02T09:30:00Z' WHERE timezone = 'Europe/Paris'").await;
}
