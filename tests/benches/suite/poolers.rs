//! B16: what a pooler costs the app: directly, and through pgbouncer in each of its modes.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use futures::future::join_all;
use local::postgres::{Login, log_in_as};
use schedule::Clock;
use serde_json::json;
use tests::PgBouncer;

use crate::backlog::Backlog;
use crate::invoke::{EVERY_MINUTE, fires_of_workflows};
use crate::load_generator::send;
use crate::service::Service;
use crate::table::Row;

const WORKFLOWS: i64 = 4_000;
const CONNECTIONS: usize = 64;
const EDITORS: i64 = 8;
const SPAN: Duration = Duration::from_secs(3);

/// Fresh fires and edits of one description, in each mode. No run is executed.
pub(crate) async fn all() -> Vec<Row> {
    let backlog = Backlog::new(0, None).await;
    backlog.fill(WORKFLOWS, WORKFLOWS).await;
    sqlx::raw_sql(EVERY_MINUTE).execute(&backlog.pool).await.unwrap();
    backlog.begin_versions().await;
    let dsn = log_in_as(&backlog.dsn(), Login::App);
    let now = Clock::System.now();
    let mut rows = Vec::new();
    let mut direct = None;
    for (minutes, mode) in [(1, "none"), (2, "session"), (3, "transaction")] {
        let pooler = if mode == "none" { None } else { Some(PgBouncer::start(&backlog.dsn(), mode).await) };
        let way = pooler.as_ref().map_or_else(|| dsn.clone(), |pooler| pooler.dsn(&dsn));
        let app = Service::app_through(&backlog, 0, &way, mode).await;
        let time = now - TimeDelta::seconds(now.timestamp() % 60) - TimeDelta::minutes(minutes);
        let fires = fires_of_workflows(&app, 0..usize::try_from(WORKFLOWS).unwrap(), time);
        let answered = send(app.address, CONNECTIONS, fires).await;
        assert_eq!(answered.by_status.keys().collect::<Vec<_>>(), [&202], "{mode}: {:?}", answered.by_status);
        let (fires, edits) = (answered.per_sec(), edits_per_sec(&app).await);
        let (direct_fires, direct_edits) = *direct.get_or_insert((fires, edits));
        let figures = vec![
            ("fires/s", fires),
            ("PATCH/s", edits),
            ("fires % of direct", 100.0 * fires / direct_fires),
            ("PATCH % of direct", 100.0 * edits / direct_edits),
        ];
        rows.push(Row::new("B16", format!("CRONBOX_POOLER={mode}"), figures));
    }
    backlog.end().await;
    rows
}

/// Each client edits a workflow of its own, one edit after the other.
async fn edits_per_sec(app: &Service) -> f64 {
    let (api, started) = (app.as_admin(), Instant::now());
    let clients = (1..=EDITORS).map(|workflow| {
        let api = &api;
        async move {
            let mut edits = 0_u32;
            while started.elapsed() < SPAN {
                edits += 1;
                let path = format!("/api/v1/workflows/{workflow}");
                api.merge_patch(&path, &json!({"description": edits.to_string()})).await.expect(200);
            }
            edits
        }
    });
    let edits: u32 = join_all(clients).await.into_iter().sum();
    f64::from(edits) / started.elapsed().as_secs_f64()
}
