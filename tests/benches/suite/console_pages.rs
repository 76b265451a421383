//! B17: what a page of the console costs over a large ledger: statements, compressed bytes and time.
//!
//! The app that ships reads a ledger of 100 workflows, and then the same ledger grown to 10,000. A page whose statements
//! grow with the workflows fails, and so does a page that is too large.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Instant;

use chrono::{DateTime, Utc};
use local::stack::{Database, Ground, KeysFrom, StackOptions};
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderValue};
use serde_json::json;
use sqlx::AssertSqlSafe;
use tests::measure::StatementStatistics;
use tests::{Story, Visitor};

use crate::history::{History, Rhythm};
use crate::service::Service;
use crate::table::{Row, percentile};
use crate::{Size, millis};

/// Later than the time of the migrations, from which on each day may have a partition. The day has just begun, so that the
/// last complete day of the history is the last one that was due.
const NOW: &str = "2040-03-03T00:00:30Z";
const FEW: u64 = 100;
const MANY: u64 = 10_000;
const TEAMS: usize = 4;
/// How often each page is read. A statement that is executed less often does not belong to the page: the app reads a session
/// and the time of the database again after some seconds.
const READS: usize = 100;
/// More than five, so that a prepared statement has the plan that it keeps.
const WARM_UP: usize = 12;
/// The labels of statements by which the pool checks connections. How many there are depends on how long these were idle.
const CHECKS: [&str; 2] = ["prove_server", "SELECT now() <> statement_timestamp()"];
/// The most that a page may have, compressed.
const PAGE_KB: f64 = 60.0;

/// Who reads a page.
#[derive(Clone, Copy, Debug)]
enum Role {
    /// Sees the workflows of all teams.
    Admin,
    /// Sees a quarter of the workflows.
    Editor,
    /// An editor of a team that has no workflow yet: no statement of its pages may read those of other teams.
    Newcomer,
}

/// The pages; `{id}` is a workflow.
const PAGES: [(Role, &str); 23] = [
    (Role::Admin, "/"),
    (Role::Admin, "/workflows"),
    (Role::Admin, "/workflows?sort=next_fire_at"),
    (Role::Admin, "/workflows?sync=failed"),
    (Role::Admin, "/workflows/{id}"),
    (Role::Admin, "/workflows/{id}?day=2040-03-02"),
    (Role::Admin, "/workflows/{id}/runs"),
    (Role::Admin, "/workflows/{id}/next"),
    (Role::Admin, "/workflows/{id}/settings"),
    (Role::Admin, "/workflows/{id}/history"),
    (Role::Admin, "/workflows/{id}/sync"),
    (Role::Admin, "/runs"),
    (Role::Admin, "/runs?state=failed&hours=24"),
    (Role::Admin, "/runs?state=timed_out"),
    (Role::Admin, "/proof"),
    (Role::Admin, "/proof/times?decision=missed&hours=24"),
    (Role::Editor, "/"),
    (Role::Editor, "/workflows"),
    (Role::Editor, "/runs"),
    (Role::Editor, "/proof"),
    (Role::Newcomer, "/"),
    (Role::Newcomer, "/workflows"),
    (Role::Newcomer, "/runs"),
];

pub(crate) async fn all(size: Size) -> Vec<Row> {
    let mut ledger = ConsoleLedger::start(size).await;
    ledger.grow_to(FEW).await;
    let few = ledger.measure_pages().await;
    ledger.grow_to(MANY).await;
    let many = ledger.measure_pages().await;
    let rows = ledger.history.rows();
    ledger.story.end_early().await;
    let mut compared: Vec<Row> = few.iter().zip(&many).map(|(few, many)| compare(rows, few, many)).collect();
    compared.push(largest_page(rows, &many));
    compared
}

/// What a page cost its visitor once.
#[derive(Clone, Copy, Debug)]
struct PageRead {
    taken_ms: f64,
    /// The bytes of the compressed body.
    gz_bytes: usize,
}

/// Reads a page to its end.
async fn read_page(visitor: &Visitor, path: &str) -> PageRead {
    let request = visitor.request_page(path).header(ACCEPT_ENCODING, "gzip");
    let sent = Instant::now();
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 200, "{path}");
    let encoding = answer.headers().get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
    assert_eq!(encoding, Some(&b"gzip"[..]), "{path}");
    let gz_bytes = answer.bytes().await.unwrap().len();
    PageRead { taken_ms: millis(sent), gz_bytes }
}

/// The reads of one page.
struct Measured {
    name: String,
    /// How often each statement is executed for one page, by its label.
    statements: BTreeMap<String, i64>,
    reads: Vec<PageRead>,
}

impl Measured {
    /// The statements of one page, with those that begin and end transactions.
    #[expect(clippy::cast_precision_loss, reason = "a number of statements")]
    fn statements(&self) -> f64 {
        self.statements.values().sum::<i64>() as f64
    }

    fn share_ms(&self, share: f64) -> f64 {
        percentile(&self.reads.iter().map(|read| read.taken_ms).collect::<Vec<_>>(), share)
    }

    #[expect(clippy::cast_precision_loss, reason = "a number of bytes")]
    fn largest_kb(&self) -> f64 {
        self.reads.iter().map(|read| read.gz_bytes).max().unwrap_or_default() as f64 / 1024.0
    }
}

fn compare(rows: u64, few: &Measured, many: &Measured) -> Row {
    let figures = vec![
        ("statements at 100", few.statements()),
        ("statements", many.statements()),
        ("gz KB at 100", few.largest_kb()),
        ("gz KB", many.largest_kb()),
        ("p95 ms at 100", few.share_ms(0.95)),
        ("p50 ms", many.share_ms(0.5)),
        ("p95 ms", many.share_ms(0.95)),
    ];
    let labels = few.statements.keys().chain(many.statements.keys());
    let grown = labels.filter(|label| few.statements.get(*label) != many.statements.get(*label));
    let grown: BTreeSet<&str> = grown.map(String::as_str).collect();
    let mut what = format!("{MANY} workflows, {rows} occurrences, {}", many.name);
    if !grown.is_empty() {
        what = format!("{what}: {}", grown.into_iter().collect::<Vec<_>>().join("; "));
    }
    let ratio = few.statements() / many.statements();
    Row::new("B17", what, figures).against("statements at 100 against them", ratio, 1.0, 1.0)
}

fn largest_page(rows: u64, pages: &[Measured]) -> Row {
    let largest = pages.iter().max_by(|one, other| one.largest_kb().total_cmp(&other.largest_kb())).unwrap();
    let what = format!("{MANY} workflows, {rows} occurrences, the largest page: {}", largest.name);
    let row = Row::new("B17", what, vec![("gz KB", largest.largest_kb())]);
    row.against("60 KB against it", PAGE_KB / largest.largest_kb(), 1.0, 1.0)
}

/// The ledger, and the statistics of the statements on it. The stack's own app has a clock that does not run, and executes
/// only the jobs that the case requests.
struct ConsoleLedger {
    story: Story,
    statistics: StatementStatistics,
    history: History,
    now: DateTime<Utc>,
    newcomer_key: String,
}

impl ConsoleLedger {
    async fn start(size: Size) -> ConsoleLedger {
        let database = Database::clone_template().await.unwrap();
        let statistics = StatementStatistics::enable_on(&database.dsn()).await;
        let any_port = || app::bind_listener((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let ground = Ground { database, app: any_port(), scheduler: any_port(), keys: KeysFrom::Nowhere };
        let app = |config: &mut app::Config| config.executor_slots = 0;
        let now: DateTime<Utc> = NOW.parse().unwrap();
        let story = Story::on(ground, StackOptions { now: Some(now), app, ..StackOptions::default() }).await;
        let mut teams = vec![story.keys.team_id];
        for nth in 1..TEAMS {
            let body = json!({"name": format!("console {nth}")});
            teams.push(story.admin().post("/api/v1/teams", &body).await.expect(201).id());
        }
        let newcomers = story.admin().post("/api/v1/teams", &json!({"name": "newcomers"})).await.expect(201).id();
        let key = json!({"name": "newcomer", "kind": "team", "team_id": newcomers, "role": "editor"});
        let key = story.admin().post("/api/v1/keys", &key).await.expect(201).json;
        let newcomer_key = key["key"].as_str().unwrap().to_owned();
        let days = match size {
            Size::Usual => -10..0,
            Size::Full => -88..0,
        };
        let history = History::new(now, teams, Rhythm { days, fires_a_day: 6, missed_of: 97 });
        ConsoleLedger { story, statistics, history, now, newcomer_key }
    }

    /// Grows to this many workflows; the last one is refused by EventBridge.
    async fn grow_to(&mut self, workflows: u64) {
        let rows = self.history.rows_of(workflows);
        self.history.grow_to(self.statistics.uncounted(), rows, self.now).await;
        sqlx::raw_sql(REFUSE_LAST).execute(self.statistics.uncounted()).await.unwrap();
        sqlx::query(VERIFY_DAYS).bind(self.now).execute(self.statistics.uncounted()).await.unwrap();
        self.story.job("watchdog").await;
        while let app::jobs::Did::Some(_) = self.story.job("statistics").await {}
        sqlx::raw_sql("VACUUM (ANALYZE)").execute(self.statistics.uncounted()).await.unwrap();
    }

    /// Reads all pages from an app that has just started.
    async fn measure_pages(&mut self) -> Vec<Measured> {
        self.run_clock().await;
        let app = Service::of_story(&self.story).await;
        let base = format!("http://{}", app.address);
        let admin = Visitor::sign_in(&base, &self.story.keys.admin).await;
        let editor = Visitor::sign_in(&base, &self.story.keys.editor).await;
        let newcomer = Visitor::sign_in(&base, &self.newcomer_key).await;
        let mut measured = Vec::new();
        for (role, path) in PAGES {
            let visitor = match role {
                Role::Admin => &admin,
                Role::Editor => &editor,
                Role::Newcomer => &newcomer,
            };
            let name = format!("{role:?} {path}");
            let path = path.replace("{id}", &self.history.some_workflow().to_string());
            measured.push(self.measure_page(visitor, name, &path).await);
        }
        measured
    }

    async fn measure_page(&mut self, visitor: &Visitor, name: String, path: &str) -> Measured {
        for _ in 0..WARM_UP {
            read_page(visitor, path).await;
        }
        self.statistics.reset_figures().await;
        let mut reads = Vec::with_capacity(READS);
        for _ in 0..READS {
            reads.push(read_page(visitor, path).await);
        }
        let mut statements = BTreeMap::new();
        for figures in self.statistics.read_figures().await {
            let of_a_page = figures.calls / i64::try_from(READS).unwrap();
            if of_a_page > 0 && !CHECKS.iter().any(|check| figures.label.starts_with(check)) {
                *statements.entry(figures.label).or_default() += of_a_page;
            }
        }
        Measured { name, statements, reads }
    }

    /// Makes the clock of the database run from the time of the ledger on. The app takes its time from it, and no jobs,
    /// because its machine has another time.
    async fn run_clock(&mut self) {
        let now = "SELECT clock_timestamp()::text";
        let began: String = sqlx::query_scalar(now).fetch_one(self.statistics.uncounted()).await.unwrap();
        let run = format!(
            "CREATE OR REPLACE FUNCTION cronbox_now() RETURNS timestamptz LANGUAGE plpgsql STABLE PARALLEL SAFE
                 AS $$ BEGIN RETURN (SELECT now + (clock_timestamp() - '{began}'::timestamptz) FROM settable_clock); END $$"
        );
        sqlx::raw_sql(AssertSqlSafe(run)).execute(self.statistics.uncounted()).await.unwrap();
    }
}

/// EventBridge has refused the newest workflow, and no other one. So a page that scans workflows in the order of their ids
/// finds it last.
const REFUSE_LAST: &str = "
    UPDATE publications SET error_class = NULL, last_error = NULL WHERE error_class IS NOT NULL;
    UPDATE publications SET error_class = 'permanent', last_error = 'ValidationException'
     WHERE workflow_id = (SELECT max(id) FROM workflows);
";

/// The five weeks that the page of the proof shows are verified, without a difference.
const VERIFY_DAYS: &str = "
    INSERT INTO daily_verifications (day, due, decided, started_on, finished_on)
    SELECT $1::date - nth, 60000, 60000, $1 - make_interval(days => nth - 1), $1 - make_interval(days => nth - 1)
      FROM generate_series(1, 35) AS nth
        ON CONFLICT DO NOTHING";
