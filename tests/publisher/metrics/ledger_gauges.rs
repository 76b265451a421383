//! The ledger's metrics, which the publisher reports for the alarms.

use std::time::{Duration, Instant};

use tests::PATIENCE;

use crate::world::World;

/// Of two abandoned runs, a deployment interrupted one. Only the other counts.
#[tokio::test]
async fn cut_off_runs_raise_no_alarm() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    let abandoned = "INSERT INTO runs (id, workflow_id, trigger, state, error, run_after, created_on, finished_on)
                     SELECT gen_random_uuid(), $1, 'manual', 'abandoned', error, cronbox_now(), cronbox_now(), cronbox_now()
                       FROM unnest(ARRAY['cut_off_by_shutdown', 'its instance was lost']) AS error";
    sqlx::query(abandoned).bind(workflow.0).execute(&world.pool).await.unwrap();
    // The scheduled times of interrupted runs are abandoned, too.
    let times = "INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, run_id, lateness_s, decided_on, created_on, updated_on)
                 SELECT gen_random_uuid(), workflow_id, date_trunc('minute', cronbox_now()), 'abandoned', id, 0,
                        cronbox_now(), cronbox_now(), cronbox_now()
                   FROM runs WHERE error = 'cut_off_by_shutdown'";
    sqlx::query(times).execute(&world.pool).await.unwrap();
    assert_eq!(first_figure(&world, "cronbox_publisher_abandoned").await, "1");
}

/// The alarm `fires-disagree` stays on for an hour after the last fire.
#[tokio::test]
async fn disagreeing_fires_count_for_an_hour() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    let disagreements = "INSERT INTO fire_disagreements (workflow_id, scheduled_time, revision, seen_on)
                         SELECT $1, cronbox_now() - age, 1, cronbox_now() - age
                           FROM unnest(ARRAY[INTERVAL '1 minute', INTERVAL '61 minutes']) AS age";
    sqlx::query(disagreements).bind(workflow.0).execute(&world.pool).await.unwrap();
    assert_eq!(first_figure(&world, "cronbox_publisher_fires_disagree").await, "1");
}

/// The first value other than 0 that a daemon reports for a metric.
async fn first_figure(world: &World, name: &str) -> String {
    let port = tests::find_kept_port();
    let address = format!("127.0.0.1:{port}");
    let daemon = world.process(&["--listen", "--metrics-addr", &address], None);
    let started = Instant::now();
    loop {
        let answer = reqwest::get(format!("http://{address}/metrics")).await;
        let text = match answer {
            Ok(answer) => answer.text().await.unwrap(),
            Err(_) => String::new(),
        };
        let values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        // Before the first drain has ended, the metric is missing or 0.
        if let Some(value) = values.map(str::to_owned).find(|value| value != "0") {
            drop(daemon);
            return value;
        }
        assert!(started.elapsed() < PATIENCE, "no figure in\n{text}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
