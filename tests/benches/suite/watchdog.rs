//! B11: the watchdog of the app that ships, over 100,000 schedules.

use std::time::{Duration, Instant};

use tests::measure::high_water_mb;

use crate::backlog::Backlog;
use crate::service::Service;
use crate::table::Row;

const WORKFLOWS: i64 = 100_000;
/// One in this many fires was never delivered.
const LOST: i64 = 20;

/// Three cases: no time is due; all times are due and decided; some fires are missed and caught up.
pub(crate) async fn all() -> Vec<Row> {
    let backlog = Backlog::new(0, None).await;
    backlog.fill(WORKFLOWS, WORKFLOWS).await;
    sqlx::raw_sql(HOURLY).execute(&backlog.pool).await.unwrap();
    let app = Service::app(&backlog, 0).await;
    until(&backlog, RAN, |ran| ran > 0).await;
    let idle_ms = backlog.scalar::<i64>("SELECT last_duration_ms FROM jobs WHERE name = 'watchdog'").await;
    let mut rows = vec![row("none due", vec![("ms", idle_ms as f64)], &app)];
    for (what, lost) in [("all due, all decided", 0), ("all due, one in twenty never delivered", LOST)] {
        sqlx::raw_sql(ONE_HOUR_DUE).execute(&backlog.pool).await.unwrap();
        if lost > 0 {
            let lose = format!("DELETE FROM occurrences WHERE workflow_id % {lost} = 0");
            sqlx::raw_sql(sqlx::AssertSqlSafe(lose)).execute(&backlog.pool).await.unwrap();
        }
        let began = Instant::now();
        sqlx::raw_sql("UPDATE jobs SET next_run = cronbox_now() WHERE name = 'watchdog'")
            .execute(&backlog.pool)
            .await
            .unwrap();
        until(&backlog, DUE, |due| due == 0).await;
        let secs = began.elapsed().as_secs_f64();
        rows.push(row(what, vec![("s", secs), ("workflows/s", WORKFLOWS as f64 / secs)], &app));
    }
    drop(app);
    backlog.end().await;
    rows
}

fn row(what: &str, mut figures: Vec<(&'static str, f64)>, app: &Service) -> Row {
    figures.push(("peak RSS MB", high_water_mb(app.pid())));
    Row::new("B11", format!("the watchdog over 100,000 schedules, {what}"), figures)
}

async fn until(backlog: &Backlog, query: &'static str, is_reached: impl Fn(i64) -> bool) {
    let began = Instant::now();
    while !is_reached(backlog.scalar(query).await) {
        assert!(began.elapsed() < Duration::from_secs(600), "never: {query}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// 1 after the first pass has ended.
const RAN: &str = "SELECT COUNT(last_duration_ms) FROM jobs WHERE name = 'watchdog'";
const DUE: &str = "SELECT COUNT(*) FROM ledger WHERE watch_at <= now() - INTERVAL '300 seconds'";

/// One minute of every hour is due for each workflow, and all earlier times are decided.
const HOURLY: &str = "
    ALTER TABLE workflows DISABLE TRIGGER workflows_guard_revision;
    UPDATE workflows SET cron_schedule = (id % 60) || ' * * * *';
    DELETE FROM ledger;
    INSERT INTO ledger (workflow_id, cursor, watch_at, activated_on)
    SELECT id, now(), now() + INTERVAL '1 day', now() - INTERVAL '1 day' FROM workflows;
    ALTER TABLE workflows ENABLE TRIGGER workflows_guard_revision;
    INSERT INTO schedule_versions (workflow_id, revision, valid_from, cron, state)
    SELECT id, revision, now() - INTERVAL '1 day', cron_schedule, state FROM workflows;
    ANALYZE workflows, schedule_versions;
";

/// The times of the last hour are due and already decided.
const ONE_HOUR_DUE: &str = "
    DELETE FROM runs;
    DELETE FROM occurrences;
    INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, revision, run_id, lateness_s, decided_on, created_on, updated_on)
    SELECT gen_random_uuid(), w.id, t.time, 'fired', w.revision, gen_random_uuid(), 1, t.time, t.time, t.time
      FROM workflows AS w,
           LATERAL (SELECT hour + make_interval(mins => (w.id % 60)::int) AS time
                      FROM generate_series(date_trunc('hour', now()) - INTERVAL '1 hour', now(), INTERVAL '1 hour') AS hour) AS t
     WHERE t.time > now() - INTERVAL '1 hour' AND t.time <= now();
    UPDATE ledger SET cursor = now() - INTERVAL '1 hour', watch_at = now() - INTERVAL '50 minutes';
    ANALYZE occurrences;
";
