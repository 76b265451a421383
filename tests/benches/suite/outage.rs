//! B14: the watchdog after an hour without fires: what it costs to decide every due time of that hour.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use tests::measure::{PostgresMeter, StatementStatistics, high_water_mb, tree_cpu_secs};

use crate::Size;
use crate::backlog::Backlog;
use crate::service::Service;
use crate::table::Row;

/// At the commit aaba736 a workflow took 14 round trips and 15 ms, one workflow after the other.
const STATEMENTS_THEN: f64 = 14_000.0;
const SECS_THEN: f64 = 15.0;
/// How many times less it must cost.
const GOAL: f64 = 25.0;
/// A workflow that fires every minute misses as many times.
const MINUTES: i64 = 60;
/// Longer than 1,000,000 workflows took at that commit.
const PATIENCE: Duration = Duration::from_secs(6 * 60 * 60);

/// Workflows with one undecided time, and workflows with sixty.
struct Outage {
    hourly: i64,
    every_minute: i64,
}

pub(crate) async fn all(size: Size) -> Vec<Row> {
    let outage = match size {
        Size::Usual => Outage { hourly: 10_000, every_minute: 100 },
        Size::Full => Outage { hourly: 1_000_000, every_minute: 10_000 },
    };
    let backlog = Backlog::new(0, None).await;
    backlog.fill(outage.hourly + outage.every_minute, outage.hourly + outage.every_minute).await;
    let mut statistics = StatementStatistics::enable_on(&backlog.dsn()).await;
    let app = Service::app(&backlog, 0).await;
    until(&mut statistics, FIRST_TURN).await;
    let rows = outage.decided_by(&app, &backlog, &mut statistics).await;
    drop(app);
    backlog.end().await;
    rows
}

impl Outage {
    /// Makes the times due, and waits until the app has decided them.
    #[expect(clippy::cast_precision_loss, reason = "a number of workflows and statements")]
    async fn decided_by(&self, app: &Service, backlog: &Backlog, statistics: &mut StatementStatistics) -> Vec<Row> {
        self.begin(statistics).await;
        let meter = PostgresMeter::of(&backlog.pool).await;
        let (server, client) = (meter.read_usage().await, tree_cpu_secs(app.pid()));
        statistics.reset_figures().await;
        let began = Instant::now();
        sqlx::raw_sql(TURN).execute(statistics.uncounted()).await.unwrap();
        self.until_decided(statistics).await;
        let secs = began.elapsed().as_secs_f64();
        let (server, client) = (meter.read_usage().await.since(server), tree_cpu_secs(app.pid()) - client);
        let statements: i64 = statistics.read_figures().await.iter().map(|statement| statement.calls).sum();
        let thousands = (self.hourly + self.every_minute) as f64 / 1_000.0;
        let (statements, cpu) = (statements as f64 / thousands, (server.cpu_secs + client) / thousands);
        let what = format!("{} workflows with one due time, {} with {MINUTES}", self.hourly, self.every_minute);
        let figures = vec![
            ("minutes", secs / 60.0),
            ("statements / 1,000 workflows", statements),
            ("WAL KB / 1,000 workflows", server.wal_bytes as f64 / 1024.0 / thousands),
            ("peak RSS MB", high_water_mb(app.pid())),
        ];
        let cpu_figures = vec![
            ("app CPU s / 1,000 workflows", client / thousands),
            ("Postgres CPU s / 1,000 workflows", server.cpu_secs / thousands),
        ];
        vec![
            Row::new("B14", format!("{what}: statements"), figures).against(
                "14,000 statements at aaba736 against them",
                STATEMENTS_THEN / statements,
                GOAL,
                GOAL,
            ),
            Row::new("B14", format!("{what}: processor time"), cpu_figures).against(
                "15 s at aaba736 against it",
                SECS_THEN / cpu,
                GOAL,
                GOAL,
            ),
        ]
    }

    /// The number of due times.
    fn due_times(&self) -> i64 {
        self.hourly + MINUTES * self.every_minute
    }

    /// Waits until every time is decided. It counts seldom, so that the wait itself costs next to nothing.
    async fn until_decided(&self, statistics: &mut StatementStatistics) {
        let (began, pause) = (Instant::now(), Duration::from_secs(1 + self.due_times().unsigned_abs() / 100_000));
        while sqlx::query_scalar::<_, i64>(DECIDED).fetch_one(statistics.uncounted()).await.unwrap() < self.due_times()
        {
            assert!(began.elapsed() < PATIENCE, "the watchdog never ends");
            tokio::time::sleep(pause).await;
        }
    }

    /// Writes what an hour without fires leaves.
    async fn begin(&self, statistics: &mut StatementStatistics) {
        let db = statistics.uncounted();
        let now: DateTime<Utc> = sqlx::query_scalar("SELECT cronbox_now()").fetch_one(&mut *db).await.unwrap();
        // No turn begins before everything is written.
        sqlx::raw_sql(NO_TURN).execute(&mut *db).await.unwrap();
        sqlx::raw_sql("ALTER TABLE workflows DISABLE TRIGGER workflows_guard_revision")
            .execute(&mut *db)
            .await
            .unwrap();
        sqlx::query(NO_FIRES).bind(now).bind(self.hourly).execute(&mut *db).await.unwrap();
        sqlx::raw_sql("ALTER TABLE workflows ENABLE TRIGGER workflows_guard_revision").execute(&mut *db).await.unwrap();
        sqlx::query(VERSIONS).bind(now).execute(&mut *db).await.unwrap();
        sqlx::raw_sql("VACUUM (ANALYZE)").execute(&mut *db).await.unwrap();
    }
}

async fn until(statistics: &mut StatementStatistics, is_reached: &'static str) {
    let began = Instant::now();
    while !sqlx::query_scalar::<_, bool>(is_reached).fetch_one(statistics.uncounted()).await.unwrap() {
        assert!(began.elapsed() < Duration::from_secs(60), "never: {is_reached}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

// There may be several jobs of the watchdog, which share its work.
const FIRST_TURN: &str =
    "SELECT count(*) > 0 AND count(*) = count(last_duration_ms) FROM jobs WHERE name LIKE 'watchdog%'";
const NO_TURN: &str = "UPDATE jobs SET next_run = cronbox_now() + INTERVAL '1 day' WHERE name LIKE 'watchdog%'";
const TURN: &str = "UPDATE jobs SET next_run = cronbox_now() WHERE name LIKE 'watchdog%'";
const DECIDED: &str = "SELECT count(*) FROM occurrences";

/// No fire arrived in the hour before `$1`: the first `$2` workflows miss one time, 10 to 59 minutes ago, and the others
/// one a minute, up to the grace of 300 s.
const NO_FIRES: &str = "
    WITH numbered AS (
        SELECT id, row_number() OVER (ORDER BY id) AS nth FROM workflows
    ), timed AS (
        SELECT id, nth <= $2 AS is_hourly, date_trunc('minute', $1 - make_interval(mins => (10 + id % 50)::int)) AS due FROM numbered
    ), edited AS (
        UPDATE workflows w
           SET cron_schedule = CASE WHEN is_hourly THEN EXTRACT(MINUTE FROM due)::int || ' * * * *' ELSE '* * * * *' END
          FROM timed
         WHERE timed.id = w.id
    )
    INSERT INTO ledger AS l (workflow_id, cursor, watch_at, activated_on)
    SELECT id, date_trunc('minute', $1) - INTERVAL '65 minutes',
           CASE WHEN is_hourly THEN due ELSE date_trunc('minute', $1) - INTERVAL '64 minutes' END, $1 - INTERVAL '1 day'
      FROM timed
    ON CONFLICT (workflow_id) DO UPDATE
       SET cursor = excluded.cursor, watch_at = excluded.watch_at, activated_on = excluded.activated_on
";

const VERSIONS: &str = "
    INSERT INTO schedule_versions (workflow_id, revision, valid_from, cron, state)
    SELECT id, revision, $1 - INTERVAL '1 day', cron_schedule, state FROM workflows
";
