//! B10: the stand-in on the machine's clock, when 1,000 schedules fire in the same second.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_scheduler::Client;
use aws_sdk_scheduler::types::{FlexibleTimeWindow, FlexibleTimeWindowMode, Target};
use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use futures::FutureExt;
use futures::stream::{self, StreamExt};
use local::stack::{GROUP, ROLE, RUNNER, RUNNER_DLQ};
use schedule::Clock;
use serde_json::json;
use stand_in::{Options, StandIn, StandInServer};

use crate::table::Row;

const SCHEDULES: usize = 1_000;
/// Enough time to create all schedules before they fire.
const AHEAD: TimeDelta = TimeDelta::seconds(8);
/// A duplicate fire would arrive within this time.
const AFTERMATH: Duration = Duration::from_secs(2);

/// The arrival times of each schedule's fires.
type Arrivals = Arc<Mutex<BTreeMap<u64, Vec<DateTime<Utc>>>>>;

pub(crate) async fn all() -> Vec<Row> {
    let served =
        StandInServer::start_anywhere(StandIn::new(Options::default(), stand_in::Clock::System)).await.unwrap();
    let arrivals = listen(&served.stand_in);
    let client = publisher::scheduler_client(Some(&served.endpoint)).await;
    client.create_schedule_group().name(GROUP).send().await.unwrap();
    let due = Clock::System.now().trunc_subsecs(0) + AHEAD;
    stream::iter(0..SCHEDULES).map(|nth| create(&client, nth, due)).buffer_unordered(64).collect::<Vec<()>>().await;
    let left = due - Clock::System.now();
    assert!(left > TimeDelta::zero(), "they were not made in time");
    tokio::time::sleep(left.to_std().unwrap() + AFTERMATH).await;
    served.stop_serving().await.unwrap();
    let arrivals = std::mem::take(&mut *arrivals.lock().unwrap());
    let doubled = arrivals.values().filter(|times| times.len() > 1).count();
    assert_eq!((SCHEDULES - arrivals.len(), doubled), (0, 0), "missed, doubled");
    let late_ms = |times: &Vec<DateTime<Utc>>| (times[0] - due).as_seconds_f64() * 1_000.0;
    vec![Row::of_times(
        "B10",
        "1,000 schedules on one second, none missed or doubled: late by",
        arrivals.values().map(late_ms).collect(),
    )]
}

/// Registers a function that records the time of each invocation.
fn listen(stand_in: &StandIn) -> Arrivals {
    let arrivals = Arrivals::default();
    let noted = Arc::clone(&arrivals);
    let handler = move |event: serde_json::Value| {
        noted.lock().unwrap().entry(event["nth"].as_u64().unwrap()).or_default().push(Clock::System.now());
        std::future::ready(Ok(())).boxed()
    };
    stand_in.lambda.register_function(RUNNER, RUNNER_DLQ, Arc::new(handler));
    arrivals
}

async fn create(client: &Client, nth: usize, due: DateTime<Utc>) {
    let target = Target::builder().arn(RUNNER).role_arn(ROLE).input(json!({ "nth": nth }).to_string());
    let window = FlexibleTimeWindow::builder().mode(FlexibleTimeWindowMode::Off).build().unwrap();
    let create = client.create_schedule().group_name(GROUP).name(format!("wf-{nth}-bench"));
    let create =
        create.schedule_expression(format!("at({})", due.format("%Y-%m-%dT%H:%M:%S"))).flexible_time_window(window);
    create.target(target.build().unwrap()).send().await.unwrap();
}
