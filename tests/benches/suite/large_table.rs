//! B13: what statements read does not grow with the ledger.
//!
//! The real routes and jobs run on a small table and on a large one, and `pg_stat_statements` says how many buffers each
//! of their statements read. One statement that reads more at the large table is enough to fail.

use std::net::Ipv4Addr;
use std::path::Path;

use chrono::{DateTime, TimeDelta, Utc};
use executor::claim::{Finished, Lease, claim_due_runs, finish_run};
use ledger::runs::RunState;
use local::stack::{Database, Ground, KeysFrom, StackOptions};
use serde_json::json;
use tests::Story;
use tests::measure::{
    PostgresMeter, PostgresUsage, StatementFigures, StatementStatistics, growth_of_an_item, largest_growth,
};
use tokio::process::Command;
use uuid::Uuid;

use crate::history::{History, Rhythm};
use crate::table::Row;
use crate::{Size, free_slots};

/// Later than the time of the migrations, from which on each day may have a partition.
const NOW: &str = "2040-03-02T12:30:00Z";
const SMALL: u64 = 50_000;
const LARGE: u64 = 500_000;
/// In the full size, if half of the free disk suffices.
const FULL: u64 = 50_000_000;
/// The most that a statement may read at the large table, as a multiple of what it reads at the small one.
const GROWTH: f64 = 1.5;
/// What a pass of the watchdog may write that finds every due time decided.
const QUIET_WAL: f64 = 1024.0 * 1024.0;
/// So few that each has as many runs in the small table as a page passes over at most (5,000).
const TEAMS: usize = 10;
/// More than five, so that a prepared statement has the plan that it keeps.
const TIMES: usize = 12;
const RUNS: usize = 64;

/// The lists of a team; `{id}` is a workflow of it. Each page has as many rows at both sizes; some filters fit no row.
const LISTS: [(&str, &str); 15] = [
    ("workflows", "/api/v1/workflows?limit=20"),
    ("paused workflows", "/api/v1/workflows?limit=20&state=paused"),
    ("schedules", "/api/v1/schedules?limit=20"),
    ("one workflow", "/api/v1/workflows/{id}"),
    ("runs", "/api/v1/runs?limit=200"),
    ("failed runs", "/api/v1/runs?limit=40&state=failed"),
    ("timed-out runs", "/api/v1/runs?limit=200&state=timed_out"),
    ("runs of backfills", "/api/v1/runs?limit=200&trigger=backfill"),
    ("runs of an hour", "/api/v1/runs?limit=2&from=2040-02-20T06:00:00Z&to=2040-02-20T07:00:00Z"),
    ("failed runs of an hour", "/api/v1/runs?limit=2&state=failed&from=2040-02-20T06:00:00Z&to=2040-02-20T07:00:00Z"),
    ("runs of a workflow", "/api/v1/schedules/{id}/runs?limit=200"),
    ("failed runs of a workflow", "/api/v1/schedules/{id}/runs?limit=200&state=failed"),
    ("occurrences", "/api/v1/schedules/{id}/occurrences?limit=200"),
    ("missed occurrences", "/api/v1/schedules/{id}/occurrences?limit=200&decision=missed"),
    ("backfills", "/api/v1/backfills?limit=200"),
];

pub(crate) async fn all(size: Size) -> Vec<Row> {
    let mut ledger = LargeLedger::start().await;
    ledger.grow_to(SMALL).await;
    let small = ledger.measure_all().await;
    let rows = ledger.largest_rows(size).await;
    ledger.grow_to(rows).await;
    let large = ledger.measure_all().await;
    let mut compared: Vec<Row> = small.iter().zip(&large).map(|(small, large)| compare(rows, small, large)).collect();
    compared.push(ledger.show_quiet_pass(rows));
    ledger.story.end_early().await;
    compared
}

/// The statements of one operation.
struct Measured {
    name: &'static str,
    statements: Vec<StatementFigures>,
    /// How many workflows or due times it processed, if it processes more of them in a larger table.
    items: Option<f64>,
}

#[expect(clippy::cast_precision_loss, reason = "a number of buffers")]
fn compare(rows: u64, small: &Measured, large: &Measured) -> Row {
    let buffers = |measured: &Measured| measured.statements.iter().map(|one| one.buffers).sum::<i64>() as f64;
    let what = format!("{rows} occurrences and runs, {}", large.name);
    let figures = vec![("buffers at 50,000", buffers(small)), ("buffers", buffers(large))];
    let mut row = Row::new("B13", what, figures);
    if let (Some(few), Some(many)) = (small.items, large.items) {
        let (before, after) = (buffers(small) / few, buffers(large) / many);
        let read = large.statements.iter().map(|one| one.rows).sum::<i64>() as f64 / many;
        row.figures.extend([("an item at 50,000", before), ("an item", after), ("rows of an item", read)]);
        let growth = growth_of_an_item(before, after, read);
        return row.against("buffers an item, small against large", 1.0 / growth, 1.0 / GROWTH, 1.0 / GROWTH);
    }
    let Some(growth) = largest_growth(&small.statements, &large.statements) else { return row };
    row.what = format!("{}: {}", row.what, growth.label);
    row.figures.extend([("its buffers a call at 50,000", growth.small), ("a call", growth.large)]);
    row.against("buffers of that statement, small against large", 1.0 / growth.factor(), 1.0 / GROWTH, 1.0 / GROWTH)
}

/// The ledger, the app on it, and the statistics of its statements.
struct LargeLedger {
    story: Story,
    statistics: StatementStatistics,
    history: History,
    now: DateTime<Utc>,
    /// What the last pass of the watchdog used.
    last_pass: PostgresUsage,
}

impl LargeLedger {
    async fn start() -> LargeLedger {
        let database = Database::clone_template().await.unwrap();
        let statistics = StatementStatistics::enable_on(&database.dsn()).await;
        let any_port = || app::bind_listener((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let ground = Ground { database, app: any_port(), scheduler: any_port(), keys: KeysFrom::Nowhere };
        // Few connections, so that each executes every statement often enough to keep a plan.
        let app = |config: &mut app::Config| (config.executor_slots, config.db_max_connections) = (0, 8);
        let now: DateTime<Utc> = NOW.parse().unwrap();
        let story = Story::on(ground, StackOptions { now: Some(now), app, ..StackOptions::default() }).await;
        let mut teams = vec![story.keys.team_id];
        for nth in 1..TEAMS {
            let body = json!({"name": format!("history {nth}")});
            teams.push(story.admin().post("/api/v1/teams", &body).await.expect(201).id());
        }
        let history = History::new(now, teams, Rhythm::DAILY);
        LargeLedger { story, statistics, history, now, last_pass: PostgresUsage::default() }
    }

    async fn grow_to(&mut self, rows: u64) {
        self.history.grow_to(self.statistics.uncounted(), rows, self.now).await;
        // The new workflows are checked for the first time; what is measured is the daily pass. A version whose
        // statistics are sums adds up what the new rows counted.
        let jobs = app::jobs::all_jobs(&self.story.app().config);
        for job in jobs.iter().filter(|job| ["watchdog", "statistics"].contains(&job.name)) {
            self.story.job(job.name).await;
        }
        // They changed a row of each new workflow, so that autovacuum would process the table now; the server has none.
        sqlx::raw_sql("VACUUM").execute(self.statistics.uncounted()).await.unwrap();
    }

    /// The rows of the large table: in the full size as many as fit into half of the free disk.
    async fn largest_rows(&mut self, size: Size) -> u64 {
        if size == Size::Usual {
            return LARGE;
        }
        let size = "SELECT pg_database_size(current_database())";
        let bytes: i64 = sqlx::query_scalar(size).fetch_one(self.statistics.uncounted()).await.unwrap();
        let folder = "SELECT current_setting('data_directory')";
        let folder: String = sqlx::query_scalar(folder).fetch_one(self.statistics.uncounted()).await.unwrap();
        let bytes_a_row = u64::try_from(bytes).unwrap() / self.history.rows();
        FULL.min(free_bytes(Path::new(&folder)).await / 2 / bytes_a_row).max(LARGE)
    }

    async fn measure_all(&mut self) -> Vec<Measured> {
        let mut all = Vec::new();
        for (name, path) in LISTS {
            let path = path.replace("{id}", &self.history.some_workflow().to_string());
            all.push(self.measure_list(name, &path).await);
        }
        all.push(self.measure_list("statistics of a day", "/api/v1/stats?hours=24").await);
        all.push(self.measure_claim().await);
        all.push(self.measure_watchdog().await);
        all.push(self.measure_verify().await);
        all.push(self.measure_prune().await);
        all
    }

    async fn measure_list(&mut self, name: &'static str, path: &str) -> Measured {
        self.statistics.reset_figures().await;
        for _ in 0..TIMES {
            self.story.editor().get(path).await.expect(200);
        }
        self.measured(name).await
    }

    /// Claims and ends the runs, as an executor does.
    async fn measure_claim(&mut self) -> Measured {
        let fire = format!("/api/v1/schedules/{}:fire", self.history.some_workflow());
        let policies = json!({"overlap_policy": "concurrent", "max_concurrent": 100});
        self.story.edit(schedule::WorkflowId(self.history.some_workflow()), policies).await;
        for _ in 0..RUNS {
            self.story.editor().post(&fire, &json!({})).await.expect(202);
        }
        self.statistics.reset_figures().await;
        let lease = Lease { instance: Uuid::new_v4(), secs: 120.0 };
        let slots = free_slots(8);
        let succeeded = Finished { state: RunState::Succeeded, result: None, error: None, failed_tries: 0 };
        let (mut connection, mut ended) = (self.story.pool.acquire().await.unwrap(), 0);
        while ended < RUNS {
            let claimed = claim_due_runs(&mut connection, lease, &slots, &[], self.story.clock.now()).await.unwrap();
            assert!(!claimed.is_empty(), "{ended} runs were claimed");
            for run in &claimed {
                let now = self.story.clock.now();
                finish_run(&mut connection, lease.instance, run.fence(), &succeeded, now).await.unwrap();
            }
            ended += claimed.len();
        }
        drop(connection);
        self.measured("claim and end of 64 runs").await
    }

    /// A day passes, so that each workflow has a due time, and each of these is decided.
    #[expect(clippy::cast_precision_loss, reason = "a number of workflows")]
    async fn measure_watchdog(&mut self) -> Measured {
        self.now += TimeDelta::days(1) + TimeDelta::minutes(10);
        self.story.set_clock(self.now).await;
        let meter = PostgresMeter::of(&self.story.pool).await;
        self.statistics.reset_figures().await;
        let before = meter.read_usage().await;
        self.story.job("watchdog").await;
        self.last_pass = meter.read_usage().await.since(before);
        let items = Some(self.history.workflows() as f64);
        Measured { items, ..self.measured("quiet watchdog pass over all workflows").await }
    }

    /// Follows the pages of a day, at most ten.
    #[expect(clippy::cast_precision_loss, reason = "a number of due times")]
    async fn measure_verify(&mut self) -> Measured {
        self.statistics.reset_figures().await;
        let first = "/api/v1/verify?from=2040-03-01T11:00:00Z&to=2040-03-02T11:00:00Z".to_owned();
        let (mut next, mut due) = (Some(first.clone()), 0);
        for _ in 0..10 {
            let Some(path) = next.take() else { break };
            let page = self.story.admin().get(&path).await.expect(200).json;
            assert_eq!(page["differences"], json!([]), "the history agrees with its schedules");
            due += page["due"].as_u64().unwrap();
            next = page["next_cursor"].as_str().map(|cursor| format!("{first}&cursor={cursor}"));
        }
        Measured { items: Some(due as f64), ..self.measured("verify of a day").await }
    }

    /// By workflow, because its statements process up to 1,000 of them each, more than the small table has.
    #[expect(clippy::cast_precision_loss, reason = "a number of workflows")]
    async fn measure_prune(&mut self) -> Measured {
        self.history.add_old_day(self.statistics.uncounted()).await;
        self.statistics.reset_figures().await;
        self.story.job("prune").await;
        let items = Some(self.history.workflows() as f64);
        Measured { items, ..self.measured("prune of a day").await }
    }

    async fn measured(&mut self, name: &'static str) -> Measured {
        Measured { name, statements: self.statistics.read_figures().await, items: None }
    }

    /// What the last pass of the watchdog wrote, at the large table.
    #[expect(clippy::cast_precision_loss, reason = "a number of workflows and bytes")]
    fn show_quiet_pass(&self, rows: u64) -> Row {
        let wal_bytes = self.last_pass.wal_bytes.max(1) as f64;
        let figures = vec![
            ("workflows", self.history.workflows() as f64),
            ("WAL KB", wal_bytes / 1024.0),
            ("Postgres CPU s", self.last_pass.cpu_secs),
        ];
        Row::new("B13", format!("{rows} occurrences and runs, a quiet watchdog pass over all workflows"), figures)
            .against("1 MB against its WAL", QUIET_WAL / wal_bytes, 1.0, 1.0)
    }
}

/// The free bytes of the disk of a folder.
async fn free_bytes(folder: &Path) -> u64 {
    let printed = Command::new("df").arg("-Pk").arg(folder).output().await.unwrap();
    let text = String::from_utf8_lossy(&printed.stdout).into_owned();
    let line = text.lines().last().unwrap_or_default();
    let kilobytes: u64 = line.split_whitespace().nth(3).and_then(|free| free.parse().ok()).unwrap_or_default();
    kilobytes * 1024
}
