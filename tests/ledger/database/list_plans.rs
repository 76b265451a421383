//! A page of a list, and the statistics, read as much of a large table as of a small one.

use std::collections::BTreeMap;

use db::PgPool;
use ledger::occurrences::list::list_occurrences;
use ledger::occurrences::{Decision, list};
use ledger::runs::{self, RunState, Trigger};
use ledger::stats::{self, Scope};
use schedule::WorkflowId;
use serde_json::json;
use tests::Story;

use super::query_plans::{one_connection, read_of};
use crate::steps::{hourly, session_without_limits, story_without_executor};

/// Runs that ended, of two workflows of two teams in turns, with ids that ascend.
const RUNS: &str =
    "INSERT INTO runs (id, workflow_id, trigger, state, scheduled_time, run_after, created_on, finished_on)
    SELECT (lpad(to_hex(1772442000000 + nth), 12, '0') || '70008000' || lpad(to_hex(nth), 12, '0'))::uuid,
           CASE nth % 2 WHEN 0 THEN $1 ELSE $2 END, 'schedule', 'succeeded', at, at, at, at
      FROM generate_series($3::bigint, $4) AS nth, LATERAL (SELECT to_timestamp(1772442000 + nth / 1000) AS at) AS t";

const OCCURRENCES: &str = "INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, run_id, lateness_s, decided_on, created_on, updated_on)
    SELECT gen_random_uuid(), CASE nth % 2 WHEN 0 THEN $1 ELSE $2 END, at, 'fired', gen_random_uuid(), 0, at, at, at
      FROM generate_series($3::bigint, $4) AS nth, LATERAL (SELECT to_timestamp(1600000020 + nth / 2 * 60) AS at) AS t";

/// What each read has read, in rows and index entries of its table.
async fn read_by_each(s: &Story, pool: &PgPool, workflow: WorkflowId) -> BTreeMap<String, i64> {
    let team_id = Some(s.keys.team_id);
    let of_team = runs::Filter { team_id, limit: 50, now: s.clock.now(), ..runs::Filter::default() };
    let mut read = BTreeMap::new();
    for (name, filter) in [
        ("all runs", runs::Filter { team_id: None, ..of_team.clone() }),
        ("runs of a team", of_team.clone()),
        ("runs of a team without runs", runs::Filter { team_id: Some(i64::MAX), ..of_team.clone() }),
        ("failed runs", runs::Filter { states: vec![RunState::Failed], ..of_team.clone() }),
        ("manual runs", runs::Filter { triggers: vec![Trigger::Manual], ..of_team.clone() }),
        ("runs of a workflow", runs::Filter { workflow_id: Some(workflow.0), ..of_team.clone() }),
    ] {
        let before = read_of(pool, "runs").await;
        let mut tx = db::begin_read(pool).await.unwrap();
        runs::list_runs(&mut tx, &filter).await.unwrap();
        tx.commit().await.unwrap();
        read.insert(name.to_owned(), read_of(pool, "runs").await - before);
    }
    for decision in [None, Some(Decision::Missed)] {
        let (from, to, before, now) = (None, None, None, s.clock.now());
        let filter = list::Filter { workflow_id: workflow, decision, from, to, before, limit: 50, now };
        let before = read_of(pool, "occurrences").await;
        let mut tx = db::begin_read(pool).await.unwrap();
        list_occurrences(&mut tx, &filter).await.unwrap();
        tx.commit().await.unwrap();
        read.insert(format!("occurrences {decision:?}"), read_of(pool, "occurrences").await - before);
    }
    for team_id in [None, team_id] {
        let before = read_of(pool, "runs").await + read_of(pool, "occurrences").await;
        let mut tx = db::begin_read(pool).await.unwrap();
        let scope = Scope { team_id, ..Scope::of_last(chrono::TimeDelta::hours(168), s.clock.now()) };
        stats::read_stats(&mut tx, scope).await.unwrap();
        tx.commit().await.unwrap();
        let after = read_of(pool, "runs").await + read_of(pool, "occurrences").await;
        read.insert(format!("statistics of {}", if team_id.is_some() { "a team" } else { "all" }), after - before);
    }
    read
}

#[tokio::test]
async fn reads_do_not_grow_with_tables() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let workflow = hourly(&s, json!({})).await;
    let strangers = s.admin().post("/api/v1/teams", &json!({"name": "strangers"})).await.expect(201).id();
    let body = json!({"team_id": strangers, "name": "theirs", "action": {"type": "log", "message": "m"}});
    let other = s.admin().post("/api/v1/workflows", &body).await.expect(201).id();
    let pool = one_connection(&s).await;
    let (mut session, mut reads) = (session_without_limits(&s).await, Vec::new());
    for (from, to) in [(1_i64, 12_000_i64), (12_001, 60_000)] {
        for rows in [RUNS, OCCURRENCES] {
            let insert = sqlx::query(rows).bind(workflow.0).bind(other).bind(from).bind(to);
            insert.execute(&mut session).await.unwrap();
        }
        s.execute("ANALYZE").await;
        // A statement gets its final plan at its sixth execution.
        for _ in 0..6 {
            read_by_each(&s, &pool, workflow).await;
        }
        reads.push(read_by_each(&s, &pool, workflow).await);
    }
    for (name, small) in &reads[0] {
        let large = reads[1][name];
        assert!(large * 2 <= small * 3 + 100, "{name}: {small} of 12,000, {large} of 60,000");
        // A page, its next row, and the rows that it passes over, each with its index entry.
        assert!(large <= 4 * 5_000 + 400, "{name}: {large}");
    }
    for found_at_once in ["failed runs", "manual runs"] {
        assert!(reads[1][found_at_once] < 100, "{found_at_once}: {} of 60,000", reads[1][found_at_once]);
    }
    s.end_early().await;
}

/// Workflows of one team, each with inputs of 244 KB: 125,000 values, as they were permitted before.
const LARGE: &str = "WITH large AS MATERIALIZED (SELECT jsonb_build_object('a', jsonb_agg(1)) AS inputs FROM generate_series(1, 125000))
    INSERT INTO workflows (team_id, name, action, starting_inputs, created_on, updated_on)
    SELECT $1, 'large ' || nth, '{\"type\": \"log\", \"message\": \"m\"}', inputs, now(), now()
      FROM large, generate_series(1, 200) AS nth";

/// The number of blocks of large values of a table and its partitions that were read so far.
async fn large_blocks_read(pool: &PgPool, table: &str) -> i64 {
    sqlx::query("SELECT pg_stat_force_next_flush()").execute(pool).await.unwrap();
    let read = "SELECT sum(toast_blks_hit + toast_blks_read)::bigint FROM pg_statio_user_tables
                 WHERE relname = $1 OR relname LIKE $1 || '\\_%'";
    sqlx::query_scalar(read).bind(table).fetch_one(pool).await.unwrap()
}

#[tokio::test]
async fn a_page_reads_no_large_inputs() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let mut session = session_without_limits(&s).await;
    sqlx::query(LARGE).bind(s.keys.team_id).execute(&mut session).await.unwrap();
    // What it has read must be reported before the page is measured.
    sqlx::query("SELECT pg_stat_force_next_flush()").execute(&mut session).await.unwrap();
    let pool = one_connection(&s).await;
    let before = large_blocks_read(&pool, "workflows").await;
    let filter = workflows::Filter { team_id: Some(s.keys.team_id), limit: 200, ..workflows::Filter::default() };
    let mut tx = db::begin_read(&pool).await.unwrap();
    let page = workflows::list_workflows(&mut tx, &filter).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(page.rows.len(), 200);
    assert!(page.rows.iter().all(|listed| listed.starting_inputs.is_none() && listed.starting_inputs_bytes.is_some()));
    assert_eq!(large_blocks_read(&pool, "workflows").await, before);
    s.end_early().await;
}

/// Runs of one workflow, each with a result of 64 KB that Postgres cannot compress.
const LONG_RESULTS: &str = "WITH ended AS (
        INSERT INTO runs (id, workflow_id, trigger, state, run_after, created_on, finished_on)
        SELECT gen_random_uuid(), $1, 'manual', 'succeeded', now(), now(), now() FROM generate_series(1, 20)
        RETURNING id
    )
    INSERT INTO run_results (run_id, result)
    SELECT id, jsonb_build_object('body', (SELECT string_agg(md5(id::text || nth), '') FROM generate_series(1, 2000) AS nth))
      FROM ended";

#[tokio::test]
async fn a_page_reads_no_long_results() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let workflow = hourly(&s, json!({})).await;
    sqlx::query(LONG_RESULTS).bind(workflow.0).execute(&s.pool).await.unwrap();
    let pool = one_connection(&s).await;
    let before = large_blocks_read(&pool, "run_results").await;
    let filter = runs::Filter { team_id: Some(s.keys.team_id), limit: 200, ..runs::Filter::default() };
    let mut tx = db::begin_read(&pool).await.unwrap();
    let page = runs::list_runs(&mut tx, &filter).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(page.rows.len(), 20);
    assert!(page.rows.iter().all(|run| run.result.is_none() && run.result_bytes.is_some_and(|bytes| bytes > 60_000)));
    assert_eq!(large_blocks_read(&pool, "run_results").await, before);
    s.end_early().await;
}
