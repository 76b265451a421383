//! EventBridge is down or refuses all calls, for longer than any retry.

use std::time::Instant;

use serde_json::json;
use stand_in::scheduler::faults::Plan;
use tests::Way;

use crate::setup::{BUSY, Field, Reply};

const DUE: &str = "SELECT COUNT(*) FROM publications WHERE due_at <= cronbox_now()";
/// Due, or backed off. In one statement, because a publisher backs off what is due meanwhile.
const WAITING: &str =
    "SELECT COUNT(*) FROM publications WHERE due_at <= cronbox_now() OR due_at IS NOT NULL AND error_class IS NOT NULL";
/// The publisher's limit of calls per second.
const CAP: u32 = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_workflow_fails_in_a_long_outage() {
    let mut field = Field::new(8).await;
    let url = field.story.scheduler_url().to_owned();
    let mut way = Way::to(url.trim_start_matches("http://")).await;
    field.set_publisher_variable("AWS_ENDPOINT_URL_SCHEDULER", way.dsn(&url));
    field.set_publisher_variable("CRONBOX_API_TPS", CAP.to_string());
    way.cut().await;
    field.staff(1);
    for _ in 0..6 {
        for _ in 0..15 {
            assert_eq!(field.create().await, Reply::Committed);
        }
        // Every workflow has been tried, so none is due. Five minutes later, some are due again.
        field.until(DUE, |due| due == 0).await;
        field.skip(300).await;
    }
    assert_eq!(field.story.count("SELECT COUNT(*) FROM outbox_events WHERE failed_on IS NOT NULL").await, 0);
    assert_eq!(field.story.count(WAITING).await, 102, "all are still to be published");

    let mended = Instant::now();
    way.mend().await;
    field.skip(15 * 60).await;
    // All publications have been tried. On a busy machine some back off again, and `settle` waits for them.
    field.until(BUSY, |busy| busy == 0).await;
    let least = 102.0 / f64::from(CAP) - 0.5;
    assert!(mended.elapsed().as_secs_f64() > least, "{:?}: faster than the rate allows", mended.elapsed());
    field.settle().await;
    field.check_publications("after thirty minutes without EventBridge").await;
    field.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_workflow_fails_while_all_are_denied() {
    let mut field = Field::new(9).await;
    let refusals = json!({"faults": [{"kind": "missing_group", "chance": 1.0}]});
    field.story.stand_in.scheduler.plan_faults(serde_json::from_value(refusals).unwrap());
    field.staff(2);
    field.until("SELECT COUNT(*) FROM publications WHERE error_class = 'environment'", |refused| refused >= 3).await;
    for _ in 0..15 {
        field.skip(120).await;
    }
    field.story.stand_in.scheduler.plan_faults(Plan::default());
    field.settle().await;
    field.check_publications("after a missing group").await;
    field.end().await;
}
