//! Hundreds of schedules fire in the same minute, and the runner sometimes fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use local::stack::{RUNNER, RUNNER_DLQ};
use runner::{KeySource, Limits, Runner};
use stand_in::invoke::{FunctionError, Handler};
use tests::{PATIENCE, Story};

const SCHEDULES: i64 = 500;
const FIRST_TRIES: usize = 500;

/// The real runner. One in ten of the first tries fails before it calls the app, and one in ten after it.
///
/// Later tries do not fail: their order is random, so otherwise one fire could fail three times.
fn unsteady(s: &Story) -> Handler {
    let key = KeySource::Value(s.keys.scheduler.clone());
    let limits = Limits { one_try: PATIENCE, all_tries: PATIENCE, ..Limits::LAMBDA };
    let runner = Runner::new(runner::Config { app_base_url: s.url().parse().unwrap(), key, limits }).unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    Arc::new(move |event| {
        let (runner, call) = (runner.clone(), calls.fetch_add(1, Ordering::Relaxed));
        let nth = if call < FIRST_TRIES { call % 10 } else { 0 };
        async move {
            if nth != 3 {
                runner.deliver_fire(event).await.map_err(|error| failed(&error.to_string()))?;
            }
            if nth == 3 || nth == 7 { Err(failed("out of memory")) } else { Ok(()) }
        }
        .boxed()
    })
}

fn failed(message: &str) -> FunctionError {
    FunctionError { error_type: "Failed".to_owned(), message: message.to_owned() }
}

/// All fire in the same minute, and the runner fails in one of five first tries.
#[tokio::test]
async fn five_hundred_schedules_run_once_each() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    for _ in 0..SCHEDULES {
        s.create("0 9 * * *", "UTC").await;
    }
    s.publish().await;
    s.stand_in.lambda.register_function(RUNNER, RUNNER_DLQ, unsteady(&s));
    s.now_is("2026-03-02T09:00:00Z").await;
    assert_eq!(s.stand_in.fires.fire_and_deliver(s.clock.now()).await, 500);
    let on_time = "SELECT count(*) FROM occurrences WHERE lateness_s = 0 AND decision = 'fired'";
    assert_eq!(s.count(on_time).await, SCHEDULES - SCHEDULES / 10, "those that did not fail are on time");
    let failed = "SELECT count(*) FROM workflows WHERE id NOT IN (SELECT workflow_id FROM occurrences)";
    assert_eq!(s.count(failed).await, SCHEDULES / 10, "requested before they failed: the answer was lost, not the run");
    // Lambda retries after one minute, and again after two minutes.
    s.clock_to("2026-03-02T09:10:00Z").await;
    assert_eq!(s.count("SELECT count(*) FROM occurrences WHERE decision = 'fired'").await, SCHEDULES);
    assert_eq!(s.count("SELECT count(DISTINCT workflow_id) FROM runs WHERE state = 'succeeded'").await, SCHEDULES);
    assert_eq!(s.count("SELECT count(*) FROM runs").await, SCHEDULES);
    s.end().await;
}
