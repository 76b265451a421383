//! EventBridge is down for all workflows: none fails permanently, and none waits longer than the outage.

use std::time::Duration;

use schedule::WorkflowId;

use crate::proxy::{Answer, DENIED};
use crate::world::{World, name, soon};

const BROKEN: Answer = Answer::Refuse(500, "InternalServerException", "");
/// The length of the outage in minutes.
const OUTAGE: u32 = 30;
const MINUTE: Duration = Duration::from_secs(60);

/// Creates workflows that EventBridge answers like this, for half an hour of ticks.
async fn made_in_an_outage(world: &World, publisher: &publisher::Publisher, answer: Answer) -> Vec<WorkflowId> {
    let mut made = Vec::new();
    for _ in 0..40 {
        let workflow = world.create("0 9 * * *", "UTC").await;
        world.front.always(&name(workflow), Some(answer));
        made.push(workflow);
    }
    for minute in 1..=OUTAGE {
        world.skip(MINUTE * minute).await;
        let report = publisher.drain_outbox(soon()).await.unwrap();
        assert_eq!((report.failed, report.created), (0, 0), "no workflow has failed");
    }
    made
}

/// Ends the outage; returns the number of ticks until all schedules exist.
async fn ticks_after(world: &World, publisher: &publisher::Publisher, made: &[WorkflowId]) -> u32 {
    for workflow in made {
        world.front.always(&name(*workflow), None);
    }
    for tick in 1..=20 {
        world.skip(MINUTE * (OUTAGE + tick)).await;
        let remaining = publisher.drain_outbox(soon()).await.unwrap().remaining;
        if remaining == 0 {
            return tick;
        }
    }
    panic!("they are never published");
}

#[tokio::test]
async fn no_workflow_backs_off_after_an_outage() {
    for answer in [BROKEN, DENIED] {
        let world = World::new().await;
        let publisher = world.publisher().await;
        let made = made_in_an_outage(&world, &publisher, answer).await;
        let ticks = ticks_after(&world, &publisher, &made).await;
        // Each backs off for up to a quarter of an hour, but one of forty is tried soon.
        assert!(ticks <= 5, "{answer:?}: {ticks} ticks");
        world.assert_settled().await;
    }
}
