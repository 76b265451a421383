//! The statements on runs and occurrences plan and read the partitions of few days, however many days there are.

use chrono::{DateTime, Utc};
use executor::claim::{Lease, Slots, claim_due_runs};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use tests::Story;
use uuid::Uuid;

use crate::steps::{ended, fire_on_time, hourly, story_without_executor};

/// Each table has days from March to April, so eight of them are ahead, as the job `prune` makes them.
const NOW: &str = "2035-04-22T09:00:00Z";
const DAYS: &str =
    "SELECT make_day_partitions(parent, '2035-03-17T00:00:00Z', 45) FROM partition_bounds WHERE unit = 'day'";

/// How many partitions a plan has at most: twice the last seven days, and those ahead.
const MOST: usize = 30;

/// Statements that read all days, and why they may.
const ALL_DAYS: [(&str, &str); 13] = [
    ("remove runs of deleted workflows", "a job, once a day"),
    ("remove occurrences of deleted workflows", "a job, once a day"),
    ("remove_tombstones", "a job, once a day"),
    ("remove_backfills", "a job, once a day"),
    ("remove old runs", "a job, once a day, until the rows without a day are removed"),
    ("remove old occurrences", "a job, once a day, until the rows without a day are removed"),
    ("decisions of the last hour", "a gauge: the indexes of exceptions are almost empty"),
    ("runs abandoned in the last hour", "a gauge: the indexes of abandoned runs are almost empty"),
    ("delay of the fires of a workflow", "on request: a time of any age may have run in the span"),
    (
        "notify of workflows of a team without success",
        "a job, once a minute: each rule has a span of its own, by which it leaves days out",
    ),
    ("end the condition of workflows", "the same"),
    ("the runs that a bulk operation repeats", "on request: a retry of a run of any age, each day read once"),
    ("occurrences of a workflow by decision", "on request: a time of any age may have run in the span"),
];

/// Updates of a decision by its run. Their generic plan has all days and costs much more, so Postgres does not choose it.
const ALWAYS_CUSTOM: [&str; 2] = ["skip the times of replaced runs", "the times of abandoned runs"];

/// The texts of the statements of the programs, from the data by which sqlx checks them.
pub(super) fn shipped_statements() -> Vec<String> {
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.sqlx")).unwrap();
    let texts = files.map(|file| {
        let described = std::fs::read_to_string(file.unwrap().path()).unwrap();
        serde_json::from_str::<Value>(&described).unwrap()["query"].as_str().unwrap().to_owned()
    });
    texts.collect()
}

/// The statements that name a table with days.
fn statements_on_days() -> Vec<String> {
    let words = ["FROM", "JOIN", "UPDATE", "USING"];
    let names_days = |text: &String| {
        let mut pairs = text.split_whitespace().zip(text.split_whitespace().skip(1));
        pairs.any(|(word, table)| {
            let table = table.trim_end_matches([',', ')', ';']);
            words.contains(&word) && ["occurrences", "runs", "runs_ended", "run_results"].contains(&table)
        })
    };
    shipped_statements().into_iter().filter(names_days).collect()
}

/// A literal of a parameter's type. All times are the same, so a bound by time permits one day, and what is open to one
/// side those up to it.
fn literal(kind: &str, now: DateTime<Utc>) -> String {
    let element = |kind: &str| match kind {
        "bigint" | "integer" | "smallint" | "double precision" => "1".to_owned(),
        "boolean" => "f".to_owned(),
        "text" => "fired".to_owned(),
        "bytea" => String::new(),
        "jsonb" => "{}".to_owned(),
        "uuid" => workflows::id::first_id_of(now).to_string(),
        "timestamp with time zone" => now.to_rfc3339(),
        other => panic!("a parameter of type {other}"),
    };
    match kind.strip_suffix("[]") {
        Some(kind) => format!("'{{\"{}\"}}'", element(kind)),
        None => format!("'{}'", element(kind)),
    }
}

/// The plan of a statement for these arguments.
pub(super) async fn plan(session: &mut PgConnection, text: &str, mode: &str, now: DateTime<Utc>) -> Value {
    let prepare = format!("SET plan_cache_mode = {mode}; PREPARE shipped AS {text}");
    sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut *session).await.unwrap();
    let types = "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'shipped'";
    let types: Vec<String> = sqlx::query_scalar(types).fetch_one(&mut *session).await.unwrap();
    let arguments: Vec<String> = types.iter().map(|kind| literal(kind, now)).collect();
    let arguments = if arguments.is_empty() { String::new() } else { format!("({})", arguments.join(", ")) };
    let explain = format!("EXPLAIN (FORMAT JSON) EXECUTE shipped{arguments}");
    let row = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_one(&mut *session).await.unwrap();
    sqlx::raw_sql("DEALLOCATE shipped").execute(&mut *session).await.unwrap();
    let plan: Value = row.get(0);
    plan[0]["Plan"].clone()
}

/// How many partitions by day a plan reads, and how many it leaves out when it begins.
fn count_days(plan: &Value) -> (usize, usize) {
    let is_day = |name: &str| {
        let day = name.rsplit('_').next().unwrap_or_default();
        ["before", "later"].contains(&day) || day.len() == 8 && day.chars().all(|digit| digit.is_ascii_digit())
    };
    let own = usize::from(plan["Relation Name"].as_str().is_some_and(is_day));
    let removed = plan["Subplans Removed"].as_u64().map_or(0, |removed| usize::try_from(removed).unwrap());
    let children = plan["Plans"].as_array().into_iter().flatten().map(count_days);
    children.fold((own, removed), |sum, child| (sum.0 + child.0, sum.1 + child.1))
}

/// A plan for the arguments of an execution leaves the other days out. The generic plan, which a connection uses from the
/// sixth execution on if it costs no more, leaves them out when it begins.
#[tokio::test]
async fn statements_plan_few_days() {
    let s = story_without_executor(NOW).await;
    s.execute(DAYS).await;
    let now = s.clock.now();
    let mut session = PgConnection::connect(&s.owner_dsn()).await.unwrap();
    let (mut checked, mut wrong) = (0, Vec::new());
    for text in statements_on_days() {
        let label = text.trim_start().trim_start_matches("-- ").lines().next().unwrap_or_default().to_owned();
        if ALL_DAYS.iter().any(|(prefix, _)| label.starts_with(prefix)) {
            continue;
        }
        let (read, removed) = count_days(&plan(&mut session, &text, "force_custom_plan", now).await);
        if read + removed > MOST {
            wrong.push(format!("{label}: plans {} days", read + removed));
        }
        let (read, _) = count_days(&plan(&mut session, &text, "force_generic_plan", now).await);
        if read > MOST && !ALWAYS_CUSTOM.iter().any(|prefix| label.starts_with(prefix)) {
            wrong.push(format!("{label}: its generic plan reads {read} days"));
        }
        checked += 1;
    }
    assert!(checked > 40, "the statements were not found");
    assert!(
        wrong.is_empty(),
        "a bound of the partition key is missing, or a reason in ALL_DAYS:\n{}",
        wrong.join("\n")
    );
    session.close().await.unwrap();
    s.end_early().await;
}

/// The claim itself reads the last days; the previous run of a monthly workflow is older.
#[tokio::test]
async fn claims_know_runs_of_last_month() {
    let s = story_without_executor("2026-03-01T08:30:00Z").await;
    let wf = s.create_with(json!({"cron_schedule": "0 9 1 * *", "timezone": "UTC"})).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-01T09:00:00Z").await, "accepted");
    ended(&s, wf).await;
    assert_eq!(fire_on_time(&s, wf, "2026-04-01T09:00:00Z").await, "accepted");
    let lease = Lease { instance: Uuid::new_v4(), secs: 120.0 };
    let mut db = s.pool.acquire().await.unwrap();
    let claimed = claim_due_runs(&mut db, lease, &Slots::all_free(64), &[], s.clock.now()).await.unwrap();
    drop(db);
    let last: Vec<_> = claimed.iter().map(|run| run.last_scheduled_time).collect();
    assert_eq!(last, [Some("2026-03-01T09:00:00Z".parse::<DateTime<Utc>>().unwrap())]);
    s.publish().await;
    s.end_early().await;
}

/// A list first reads the last seven days before its page. What they do not fill goes on with all days.
#[tokio::test]
async fn lists_continue_before_the_last_days() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    let times = ["2026-03-02T09:00:00Z", "2026-03-31T09:00:00Z", "2026-04-01T09:00:00Z"];
    for time in times {
        assert_eq!(fire_on_time(&s, wf, time).await, "accepted");
        ended(&s, wf).await;
    }
    let newest_first: Vec<&str> = times.into_iter().rev().collect();
    for list in [format!("/api/v1/runs?workflow_id={wf}"), format!("/api/v1/schedules/{wf}/occurrences?limit=200")] {
        assert_eq!(listed_times(&s, &list).await.0, newest_first, "{list}");
    }
    let (mut listed, mut cursor) = (Vec::new(), String::new());
    for _ in times {
        let (page, next) = listed_times(&s, &format!("/api/v1/runs?limit=1{cursor}")).await;
        assert_eq!(page.len(), 1);
        listed.extend(page);
        cursor = next.map(|next| format!("&cursor={next}")).unwrap_or_default();
    }
    assert_eq!(listed, newest_first);
    assert!(cursor.is_empty(), "{cursor}");
    s.publish().await;
    s.end_early().await;
}

/// The scheduled times of a page, and its cursor.
async fn listed_times(s: &Story, path: &str) -> (Vec<String>, Option<String>) {
    let page = s.editor().get(path).await.expect(200).json;
    let times =
        page["items"].as_array().unwrap().iter().map(|item| item["scheduled_time"].as_str().unwrap().to_owned());
    (times.collect(), page["next_cursor"].as_str().map(str::to_owned))
}
