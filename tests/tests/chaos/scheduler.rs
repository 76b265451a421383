//! EventBridge refuses everybody for longer than any retry.

use local::scheduler::faults::Plan;
use serde_json::json;

use crate::field::Field;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_environment_that_refuses_everybody_for_a_while_gives_nobody_up() {
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
    field.judge("after a missing group").await;
    field.end().await;
}
