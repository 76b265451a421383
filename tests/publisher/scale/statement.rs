//! The statements as the programs send them, and how many buffers they touch.

use std::time::Duration;

use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};

use crate::world::World;

/// What one more level costs in each index that a statement reads, however large a table becomes.
const LEVELS: i64 = 12;

/// The text of the statement that begins with this label, from the data by which sqlx checks it.
fn shipped(label: &str) -> String {
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.sqlx")).unwrap();
    let texts = files.map(|file| {
        let described = std::fs::read_to_string(file.unwrap().path()).unwrap();
        serde_json::from_str::<Value>(&described).unwrap()["query"].as_str().unwrap().to_owned()
    });
    let label = format!("-- {label}");
    let mut found: Vec<String> = texts.filter(|text| text.trim_start().starts_with(&label)).collect();
    assert_eq!(found.len(), 1, "statements that begin with `{label}`");
    found.remove(0)
}

/// How many buffers a shipped statement touches: the higher number of a plan for these arguments, and of the generic plan,
/// which a connection uses from the sixth execution on. What the statement changes is rolled back.
pub(crate) async fn buffers(world: &World, label: &str, arguments: &str) -> i64 {
    // A scan visits what statements before this one changed and took back. Of few such rows VACUUM leaves the index entries.
    execute(world, "VACUUM (INDEX_CLEANUP ON) publications".to_owned()).await;
    let mut session = PgConnection::connect(&world.dsn).await.unwrap();
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE shipped{arguments}");
    let mut most = 0;
    for mode in ["force_custom_plan", "force_generic_plan"] {
        let prepare = format!("SET plan_cache_mode = {mode}; PREPARE shipped AS {}", shipped(label));
        sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut session).await.unwrap();
        // The first execution also reads what the session then keeps about the tables, and so does a later one if the session has
        // missed what other tests changed in the catalogs of the server.
        let mut least = i64::MAX;
        for _ in 0..4 {
            least = least.min(explained(&mut session, &explain).await);
        }
        most = most.max(least);
        sqlx::raw_sql("DEALLOCATE shipped").execute(&mut session).await.unwrap();
    }
    session.close().await.unwrap();
    most
}

/// How many rows a shipped statement returns for these arguments.
pub(crate) async fn count_rows(world: &World, label: &str, arguments: &str) -> usize {
    let mut session = PgConnection::connect(&world.dsn).await.unwrap();
    let prepare = format!("PREPARE shipped AS {}", shipped(label));
    sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut session).await.unwrap();
    let returned = sqlx::raw_sql(AssertSqlSafe(format!("EXECUTE shipped{arguments}"))).fetch_all(&mut session).await;
    session.close().await.unwrap();
    returned.unwrap().len()
}

async fn explained(session: &mut PgConnection, explain: &str) -> i64 {
    sqlx::raw_sql("BEGIN").execute(&mut *session).await.unwrap();
    let row = sqlx::raw_sql(AssertSqlSafe(explain.to_owned())).fetch_one(&mut *session).await.unwrap();
    sqlx::raw_sql("ROLLBACK").execute(&mut *session).await.unwrap();
    let plan: Value = row.get(0);
    let root = &plan[0]["Plan"];
    let of = |node: &Value| node["Shared Hit Blocks"].as_i64().unwrap() + node["Shared Read Blocks"].as_i64().unwrap();
    // What the statement changes after its last row is no part of its root.
    let parts = root["Plans"].as_array().into_iter().flatten();
    let changes = parts.filter(|part| part["Node Type"] == "ModifyTable" && part["Parent Relationship"] == "InitPlan");
    of(root).max(changes.map(of).sum())
}

/// Asserts that a table of twenty times the size costs at most half as much again.
pub(crate) fn assert_flat(what: &str, small: i64, large: i64) {
    println!("{what}: {small} buffers, then {large}");
    assert!(
        2 * large <= 3 * small + 2 * LEVELS,
        "{what}: {small} buffers in the small table, {large} in the large one"
    );
}

/// Executes statements of another program, whose session has no time limits: many rows take long on a loaded machine.
pub(crate) async fn execute(world: &World, sql: String) {
    let mut session = PgConnection::connect(&world.dsn).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut session).await.unwrap();
    session.close().await.unwrap();
}

/// Stops the database's clock at this time after the beginning of the story.
pub(crate) async fn stop_clock(world: &World, passed: Duration) {
    let clock = format!(
        "CREATE OR REPLACE FUNCTION cronbox_now() RETURNS timestamptz LANGUAGE plpgsql STABLE PARALLEL SAFE
         AS 'BEGIN RETURN timestamptz ''2026-03-02 10:00:00+00'' + make_interval(secs => {}); END'",
        passed.as_secs()
    );
    execute(world, clock).await;
}
