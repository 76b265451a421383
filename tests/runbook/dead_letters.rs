//! Fires that the runner could not deliver.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::QueueAttributeName;
use chrono::{SecondsFormat, TimeDelta};
use tests::find_kept_port;

use crate::alarms::RUNNER_QUEUE;
use crate::scene::Scene;

/// The number that AWS records as `ApproximateNumberOfMessagesVisible`.
pub(crate) async fn visible(queue: &str) -> f64 {
    let (endpoint, _) = queue.split_once("/123456789012/").unwrap();
    let config = aws_sdk_sqs::Config::builder().behavior_version(BehaviorVersion::v2026_01_12());
    let config = config.region(Region::new("us-east-1")).endpoint_url(endpoint);
    let client = Client::from_conf(config.credentials_provider(Credentials::new("a", "b", None, None, "test")).build());
    let name = QueueAttributeName::ApproximateNumberOfMessages;
    let attributes = client.get_queue_attributes().queue_url(queue).attribute_names(name.clone()).send().await.unwrap();
    attributes.attributes.unwrap()[&name].parse().unwrap()
}

#[tokio::test]
async fn the_runner_could_not_deliver() {
    let mut scene = Scene::new().await;
    let queue = format!("{}/123456789012/{RUNNER_QUEUE}", scene.scheduler_url());
    scene.queue = Some((RUNNER_QUEUE, queue.clone()));
    let workflow = scene.create("30 * * * *", "UTC").await;
    scene.observe(5).await;
    scene.silent("runner-dead-letters", "");
    let nowhere = format!("http://127.0.0.1:{}", find_kept_port());
    scene.deliver_to(&nowhere).unwrap();
    let until = scene.now() + TimeDelta::minutes(45);
    scene.clock_to(&until.to_rfc3339_opts(SecondsFormat::Secs, true)).await;
    scene.observe(2).await;
    scene.rings("runner-dead-letters", "");
    scene.deliver_to(scene.url()).unwrap();
    scene.walk("dead-letters", &[("QUEUE", queue)]).await.shows(&workflow.to_string()).shows("1 answered and deleted");
    scene.runs_end().await;
    assert_eq!(scene.occurrences(workflow).await.matches("fired").count(), 1);
    scene.observe(2).await;
    scene.silent("runner-dead-letters", "");
    scene.end().await;
}

/// The publisher receives each dead letter every minute, so SQS's own age would leave it out, and the publisher measures it.
#[tokio::test]
async fn dead_letters_wait_for_half_a_day() {
    let mut scene = Scene::with_mirrored_queues().await;
    scene.create("30 * * * *", "UTC").await;
    scene.observe(5).await;
    scene.silent("runner-dead-letters-age", "");
    let nowhere = format!("http://127.0.0.1:{}", find_kept_port());
    scene.deliver_to(&nowhere).unwrap();
    let until = scene.now() + TimeDelta::minutes(45);
    scene.clock_to(&until.to_rfc3339_opts(SecondsFormat::Secs, true)).await;
    scene.publisher.mirror_dead_letters().await;
    scene.observe(5).await;
    scene.silent("runner-dead-letters-age", "");
    // The stand-in stamps its messages with the machine's time, eight hours after the scene began.
    scene.skip(21 * 60).await;
    scene.publisher.mirror_dead_letters().await;
    scene.observe(5).await;
    scene.rings("runner-dead-letters-age", "");
    scene.end().await;
}
