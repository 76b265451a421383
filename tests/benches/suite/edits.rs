//! B6: what an edit costs because of the outbox.

use std::time::{Duration, Instant};

use futures::future::join_all;
use local::stack::StackOptions;
use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::Story;

use crate::table::{Row, median};

const SPAN: Duration = Duration::from_secs(2);

/// Compares a PATCH of the cron (version, schedule version, enqueue, notify) with a PATCH of the description, which the
/// same handler saves without these steps. So the difference contains more than the outbox.
pub(crate) async fn all() -> Vec<Row> {
    let s = Story::with(StackOptions::default()).await;
    let mut rows = Vec::new();
    for clients in [1, 8, 32] {
        let mut workflows = Vec::new();
        for _ in 0..clients {
            workflows.push(s.create("0 9 * * *", "UTC").await);
        }
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            without.push(edits_per_sec(&s, &workflows, |nth| json!({ "description": nth.to_string() })).await);
            with.push(
                // Due on one day in four years, because an edit within minutes of a due time reads the days of decisions.
                edits_per_sec(&s, &workflows, |nth| json!({ "cron_schedule": format!("{} 9 29 2 *", nth % 60) })).await,
            );
        }
        let (with, without) = (median(&with), median(&without));
        let figures = vec![
            ("PATCH/s", with),
            ("without outbox PATCH/s", without),
            ("overhead %", 100.0 * (1.0 - with / without)),
        ];
        let row = Row::new("B6", format!("edits through the API, {clients} clients"), figures);
        rows.push(if clients == 1 {
            row
        } else {
            row.against("with outbox against without", with / without, 0.75, 0.85)
        });
    }
    s.publish().await;
    s.end().await;
    rows
}

/// Each client edits a workflow of its own, one edit after the other.
async fn edits_per_sec(s: &Story, workflows: &[WorkflowId], change: impl Fn(u32) -> Value) -> f64 {
    let started = Instant::now();
    let clients = workflows.iter().map(|workflow| async {
        let mut edits = 0_u32;
        while started.elapsed() < SPAN {
            edits += 1;
            s.edit(*workflow, change(edits)).await;
        }
        edits
    });
    let edits: u32 = join_all(clients).await.into_iter().sum();
    f64::from(edits) / started.elapsed().as_secs_f64()
}
