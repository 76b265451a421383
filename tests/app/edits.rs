//! Steps 1 and 2 of 7: how many statements an edit executes.

use serde_json::json;
use tests::measure::StatementStatistics;
use tests::{Api, Story};

use crate::startup::{serve_with, stop};

const EDITS: i64 = 5;

/// Every edit waits for each of its statements, and the publisher for every edit.
#[tokio::test]
async fn edits_of_a_cron_are_written_enqueued_and_recorded_by_one_statement() {
    let s = Story::today().await;
    let id = s.create("0 9 * * *", "UTC").await;
    let mut statistics = StatementStatistics::enable_on(&s.owner_dsn()).await;
    let (mut serving, url) = serve_with(&s.dsn(), &[]).await;
    let (editor, path) = (Api::new(&url, &s.keys.editor), format!("/api/v1/workflows/{id}"));
    statistics.reset_figures().await;
    for nth in 1..=EDITS {
        editor.patch(&path, &json!({"cron_schedule": format!("{nth} 9 * * *")})).await.expect(200);
    }
    let figures = statistics.read_figures().await;
    let calls = |begin| -> i64 { figures.iter().filter(|one| one.label.starts_with(begin)).map(|one| one.calls).sum() };
    let expected = [
        ("lock and read a workflow", EDITS),
        ("update a workflow", EDITS),
        ("enqueue", 0),
        ("record an audit entry", 0),
    ];
    assert_eq!(expected.map(|(begin, _)| (begin, calls(begin))), expected);
    let entries = s.admin().get(&format!("/api/v1/audit?subject=workflow:{id}")).await.expect(200).json;
    assert_eq!(entries["items"].as_array().unwrap().len(), 1 + usize::try_from(EDITS).unwrap());
    stop(&mut serving).await;
    s.end().await;
}
