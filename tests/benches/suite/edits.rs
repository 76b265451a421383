//! B6: what an edit costs because of the outbox.

use std::time::{Duration, Instant};

use futures::future::join_all;
use local::stack::StackOptions;
use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::Story;
use tests::measure::{PostgresMeter, ProcessTimes};

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
            without.push(measure_edits(&s, &workflows, |nth| json!({ "description": nth.to_string() })).await);
            with.push(
                // Due on one day in four years, because an edit within minutes of a due time reads the days of decisions.
                measure_edits(&s, &workflows, |nth| json!({ "cron_schedule": format!("{} 9 29 2 *", nth % 60) })).await,
            );
        }
        let of_all = |edits: &[Edits], figure: fn(&Edits) -> f64| median(&edits.iter().map(figure).collect::<Vec<_>>());
        let rates = (of_all(&with, |edits| edits.per_sec), of_all(&without, |edits| edits.per_sec));
        let figures = vec![
            ("PATCH/s", rates.0),
            ("without outbox PATCH/s", rates.1),
            ("overhead %", 100.0 * (1.0 - rates.0 / rates.1)),
            ("Postgres CPU ms / 1,000 PATCH", of_all(&with, |edits| edits.postgres_ms)),
            ("app and clients CPU ms / 1,000 PATCH", of_all(&with, |edits| edits.app_ms)),
            ("WAL bytes a PATCH", of_all(&with, |edits| edits.wal_bytes)),
        ];
        let row = Row::new("B6", format!("edits through the API, {clients} clients"), figures);
        rows.push(if clients == 1 {
            row
        } else {
            row.against("with outbox against without", rates.0 / rates.1, 0.75, 0.85)
        });
    }
    s.publish().await;
    s.end().await;
    rows
}

/// What edits cost.
struct Edits {
    per_sec: f64,
    /// Processor time of Postgres for 1,000 edits.
    postgres_ms: f64,
    /// Processor time of this process for 1,000 edits: the app and its clients.
    app_ms: f64,
    wal_bytes: f64,
}

/// Each client edits a workflow of its own, one edit after the other.
#[expect(clippy::cast_precision_loss, reason = "a number of bytes")]
async fn measure_edits(s: &Story, workflows: &[WorkflowId], change: impl Fn(u32) -> Value) -> Edits {
    let meter = PostgresMeter::of(&s.pool).await;
    let (server, own) = (meter.read_usage().await, own_cpu_secs());
    let started = Instant::now();
    let clients = workflows.iter().map(|workflow| async {
        let mut edits = 0_u32;
        while started.elapsed() < SPAN {
            edits += 1;
            s.edit(*workflow, change(edits)).await;
        }
        edits
    });
    let edits: f64 = join_all(clients).await.into_iter().sum::<u32>().into();
    let took = started.elapsed().as_secs_f64();
    let (server, own) = (meter.read_usage().await.since(server), own_cpu_secs() - own);
    Edits {
        per_sec: edits / took,
        postgres_ms: 1e6 * server.cpu_secs / edits,
        app_ms: 1e6 * own / edits,
        wal_bytes: server.wal_bytes as f64 / edits,
    }
}

fn own_cpu_secs() -> f64 {
    ProcessTimes::read(std::process::id()).map_or(0.0, |times| times.own_secs)
}
