//! B7: what a fire writes from its decision to the end of its run, and how fast fires are decided that overlap.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use executor::claim::{Lease, claim_due_runs};
use schedule::Clock;
use tests::measure::PostgresMeter;
use uuid::Uuid;

use crate::backlog::Backlog;
use crate::free_slots;
use crate::load_generator::{Answered, Request, invoke, send};
use crate::service::Service;
use crate::table::{Row, median};

const CONNECTIONS: usize = 64;
/// Fires of one measurement, each of another workflow.
const FIRES: usize = 5_000;
const TIMES: usize = 3;
/// Bytes of WAL that a fire may write in all, and those that it wrote at the commit aaba736.
const WAL_BYTES: f64 = 1.4 * 1024.0;
const WAL_BYTES_THEN: f64 = 2_488.0;

pub(crate) async fn all() -> Vec<Row> {
    vec![written_by_fires().await, overlapping_fires().await]
}

/// Fires whose runs the app executes. Their action only logs.
#[expect(clippy::cast_precision_loss, reason = "a number of bytes and rows")]
async fn written_by_fires() -> Row {
    let backlog = Backlog::new(0, None).await;
    let mut app = app_with_workflows(&backlog, 2 * FIRES, 256).await;
    let minute = this_minute();
    // The first fires fill caches and the pages of empty tables.
    fire_and_end(&backlog, &app, 0..FIRES, minute).await;
    // Its sessions report their updates when they end.
    app.restart().await;
    sqlx::raw_sql("VACUUM (ANALYZE)").execute(&backlog.pool).await.unwrap();
    let meter = PostgresMeter::of(&backlog.pool).await;
    let before = (meter.read_usage().await, meter.read_row_updates().await);
    fire_and_end(&backlog, &app, FIRES..2 * FIRES, minute).await;
    let used = meter.read_usage().await.since(before.0);
    app.stop(&backlog).await;
    let updates = meter.read_row_updates().await.since(before.1);
    backlog.end().await;
    let wal_bytes = used.wal_bytes as f64 / FIRES as f64;
    let figures = vec![
        ("WAL bytes a fire", wal_bytes),
        ("updates a fire", updates.updated as f64 / FIRES as f64),
        ("% of updates HOT", 100.0 * updates.hot_share()),
        ("Postgres CPU ms / 1,000 fires", 1_000.0 * 1_000.0 * used.cpu_secs / FIRES as f64),
    ];
    Row::new("B7", "WAL of a fire from its decision to the end of its run", figures).against(
        "1.4 KB against its WAL",
        WAL_BYTES / wal_bytes,
        // A tenth more than at that commit.
        WAL_BYTES / (1.1 * WAL_BYTES_THEN),
        1.0,
    )
}

/// Fires whose workflow still has a running run, so that none takes the fast path, and fresh fires, in turn.
async fn overlapping_fires() -> Row {
    let backlog = Backlog::new(0, None).await;
    let app = app_with_workflows(&backlog, (TIMES + 1) * FIRES, 0).await;
    let (before, now) = (this_minute() - TimeDelta::minutes(1), this_minute());
    decided(&app, 0..FIRES, before, 202).await;
    sqlx::raw_sql("ANALYZE").execute(&backlog.pool).await.unwrap();
    let (mut fresh, mut overlapping) = (Vec::new(), Vec::new());
    let mut latest = Answered::default();
    for nth in 1..=TIMES {
        let workflows = nth * FIRES..(nth + 1) * FIRES;
        fresh.push(decided(&app, workflows.clone(), before, 202).await.per_sec());
        start_all(&backlog).await;
        latest = decided(&app, workflows, now, 200).await;
        overlapping.push(latest.per_sec());
    }
    drop(app);
    backlog.end().await;
    let (fresh, overlapping) = (median(&fresh), median(&overlapping));
    let mut row = Row::of_times("B7", format!("overlapping invokes, {CONNECTIONS} connections"), latest.taken_ms);
    row.figures.extend([("req/s", overlapping), ("fresh req/s", fresh)]);
    row.against("overlapping against fresh", overlapping / fresh, 0.4, 0.7)
}

/// An app on a database whose workflows are due every minute.
pub(crate) async fn app_with_workflows(backlog: &Backlog, workflows: usize, slots: usize) -> Service {
    let workflows = i64::try_from(workflows).unwrap();
    backlog.fill(workflows, workflows).await;
    sqlx::raw_sql(EVERY_MINUTE).execute(&backlog.pool).await.unwrap();
    backlog.begin_versions().await;
    Service::app(backlog, slots).await
}

pub(crate) async fn fire_and_end(
    backlog: &Backlog,
    app: &Service,
    workflows: std::ops::Range<usize>,
    time: DateTime<Utc>,
) {
    decided(app, workflows, time, 202).await;
    while backlog.scalar::<bool>(IS_ANY_LIVE).await {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Sends one fire of each workflow; each must be answered with this status.
pub(crate) async fn decided(
    app: &Service,
    workflows: std::ops::Range<usize>,
    time: DateTime<Utc>,
    status: u16,
) -> Answered {
    let time = time.to_rfc3339_opts(SecondsFormat::Secs, true);
    let fires: Vec<Request> =
        workflows.map(|nth| invoke(&app.scheduler, i64::try_from(nth).unwrap() + 1, &time)).collect();
    let sent = fires.len();
    let answered = send(app.address, CONNECTIONS, fires).await;
    assert_eq!(answered.of(status), sent, "{:?}", answered.by_status);
    answered
}

/// Claims all accepted runs for an instance that never ends them.
async fn start_all(backlog: &Backlog) {
    let lease = Lease { instance: Uuid::new_v4(), secs: 3_600.0 };
    let mut connection = backlog.pool.acquire().await.unwrap();
    loop {
        let claimed =
            claim_due_runs(&mut connection, lease, &free_slots(1_000), &[], Clock::System.now()).await.unwrap();
        if claimed.is_empty() {
            return;
        }
    }
}

/// The current minute. All fires of a measurement are within the grace, so that they are on time.
pub(crate) fn this_minute() -> DateTime<Utc> {
    let now = Clock::System.now();
    now - TimeDelta::seconds(now.timestamp() % 60)
}

const IS_ANY_LIVE: &str = "SELECT EXISTS (SELECT FROM runs WHERE state IN ('accepted', 'queued', 'running'))";

/// Every minute is due for each workflow, and a fire is skipped while a run is active.
const EVERY_MINUTE: &str = "
    ALTER TABLE workflows DISABLE TRIGGER workflows_guard_revision;
    UPDATE workflows SET cron_schedule = '* * * * *', schedule_activated_at = clock_timestamp() - INTERVAL '1 hour';
    ALTER TABLE workflows ENABLE TRIGGER workflows_guard_revision;
";
