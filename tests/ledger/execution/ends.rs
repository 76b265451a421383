//! Outcomes of concurrent attempts are written together, and none of them waits for another.

use serde_json::json;
use tests::{CountingWay, Story};

use crate::process::{App, LONG_LEASE, idle};
use crate::receiver::{Receiver, accept, run, until_state};

async fn accept_with(s: &Story, action: serde_json::Value) -> uuid::Uuid {
    accept(s, s.create_with(json!({ "action": action })).await).await
}

/// One run succeeds with a long result, and one fails: both outcomes are complete.
#[tokio::test]
async fn outcomes_are_written_in_batches() {
    let s = idle().await;
    let way = CountingWay::to(&s.dsn()).await;
    let failing = Receiver::answering(&[(500, "")]).await;
    let long = "x".repeat(2_000);
    let succeeds = accept_with(&s, json!({"type": "log", "message": long})).await;
    let fails = accept_with(&s, failing.action()).await;
    let app = App::with(&way.dsn(&s.dsn()), &LONG_LEASE).await;
    assert_eq!(until_state(&s, succeeds, "succeeded").await["result"]["message"], long);
    assert_eq!(until_state(&s, fails, "failed").await["result"]["status"], 500);
    let complete = "SELECT count(*) FROM runs WHERE finished_on IS NOT NULL AND duration_ms IS NOT NULL
                       AND (state = 'failed') = (error IS NOT NULL) AND (state = 'failed') = (tries = 1)";
    assert_eq!(s.count(complete).await, 2);
    assert_eq!(s.count("SELECT count(*) FROM run_results").await, 1, "lists do not read the long one");
    app.stop().await;
    let rows = way.take_rows();
    // On a machine so slow that a lease was renewed meanwhile, the batch leaves out the row that the renewal has locked.
    let alone = rows.get("finish a run").map_or(0, |one| one.statements);
    assert_eq!(rows["finish runs"].all + alone, 2, "{rows:?}");
    assert!(alone == 0 || rows.contains_key("renew leases"), "{rows:?}");
    s.end().await;
}

/// Another transaction has locked the row of one run. Others end meanwhile, and that one afterwards.
#[tokio::test]
async fn a_locked_run_delays_no_other_end() {
    let s = idle().await;
    let slow = Receiver::slow().await;
    let (locked, other) = (accept_with(&s, slow.action()).await, accept_with(&s, slow.action()).await);
    let app = App::with(&s.dsn(), &LONG_LEASE).await;
    slow.until(2).await;
    let mut tx = db::begin_transaction(&s.pool).await.unwrap();
    sqlx::query("SELECT FROM runs WHERE id = $1 FOR UPDATE").bind(locked).execute(&mut *tx).await.unwrap();
    slow.let_answer(2);
    until_state(&s, other, "succeeded").await;
    assert_eq!(run(&s, locked).await["state"], "running");
    tx.rollback().await.unwrap();
    assert_eq!(until_state(&s, locked, "succeeded").await["attempt"], 1);
    assert_eq!(slow.received().len(), 2);
    app.stop().await;
    s.end().await;
}
