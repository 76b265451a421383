//! The list of instances: one that stops is gone, and one that is killed is lost.

use serde_json::{Value, json};
use tests::Story;

use crate::process::{App, idle};

/// Each instance but that of the story: its state, its slots and its running runs.
async fn others(s: &Story) -> Vec<Value> {
    let listed = s.admin().get("/api/v1/instances").await.expect(200).json;
    let own = s.table("SELECT id::text FROM instances ORDER BY started_on LIMIT 1").await;
    let all = listed["items"].as_array().unwrap().iter().filter(|one| one["id"] != own);
    all.map(|one| json!([one["state"], one["slots"], one["running_runs"]])).collect()
}

#[tokio::test]
async fn instances_are_listed_until_they_stop() {
    let s = idle().await;
    s.until("SELECT count(*) FROM instances", 1).await;
    let stopped = App::with(&s.dsn(), &[("CRONBOX_EXECUTOR_SLOTS", "7")]).await;
    s.until("SELECT count(*) FROM instances", 2).await;
    assert_eq!(others(&s).await, [json!(["live", 7, 0])]);
    stopped.stop().await;
    assert_eq!(others(&s).await, Vec::<Value>::new());

    let killed = App::with(&s.dsn(), &[("CRONBOX_EXECUTOR_SLOTS", "8")]).await;
    s.until("SELECT count(*) FROM instances", 2).await;
    killed.signal("-KILL").await;
    s.execute("UPDATE instances SET seen_on = cronbox_now() - INTERVAL '61 s' WHERE slots = 8").await;
    assert_eq!(others(&s).await, [json!(["lost", 8, 0])]);
    assert_eq!(s.editor().get("/api/v1/instances").await.status, 403, "it is for operators");
    s.end().await;
}

/// The statement that says that the instance stops is slow. The row is removed after it, so that it does not come back.
#[tokio::test]
async fn a_slow_sign_of_a_stopping_instance_leaves_no_row() {
    let s = idle().await;
    s.execute(
        "CREATE FUNCTION slow_sign() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN PERFORM pg_sleep(0.3); RETURN NEW; END $$",
    )
    .await;
    s.execute(
        "CREATE TRIGGER slow BEFORE INSERT ON instances FOR EACH ROW WHEN (NEW.stops) EXECUTE FUNCTION slow_sign()",
    )
    .await;
    let stopped = App::with(&s.dsn(), &[("CRONBOX_EXECUTOR_SLOTS", "7")]).await;
    s.until("SELECT count(*) FROM instances", 2).await;
    stopped.stop().await;
    let signs = "SELECT count(*) FROM pg_stat_activity
                  WHERE state = 'active' AND query LIKE '%INTO instances%' AND pid <> pg_backend_pid()";
    s.until(signs, 0).await;
    assert_eq!(others(&s).await, Vec::<Value>::new());
    s.end().await;
}
