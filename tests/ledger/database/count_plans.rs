//! Counts for the metrics, which each scrape makes, read no rows of workflows: a team may have a million paused ones.

use serde_json::Value;
use sqlx::{Connection as _, PgConnection};

use super::partition_plans::{plan, shipped_statements};
use crate::steps::story_without_executor;

/// The kinds of nodes by which a plan reads the table `workflows`.
fn reads_of_workflows(plan: &Value) -> Vec<String> {
    let children = plan["Plans"].as_array().into_iter().flatten().flat_map(reads_of_workflows);
    let own = (plan["Relation Name"] == "workflows").then(|| plan["Node Type"].as_str().unwrap().to_owned());
    own.into_iter().chain(children).collect()
}

#[tokio::test]
async fn paused_workflows_are_counted_by_an_index_alone() {
    let s = story_without_executor("2035-04-22T09:00:00Z").await;
    let statements = shipped_statements();
    let text = statements.iter().find(|text| text.contains("-- count_workflows")).unwrap();
    let mut session = PgConnection::connect(&s.owner_dsn()).await.unwrap();
    // The table is empty, so that Postgres would read it as a whole.
    sqlx::raw_sql("SET enable_seqscan = off").execute(&mut session).await.unwrap();

    let plan = plan(&mut session, text, "force_generic_plan", s.clock.now()).await;

    assert_eq!(reads_of_workflows(&plan), ["Index Only Scan"], "{plan:#}");
    session.close().await.unwrap();
    s.end_early().await;
}
