//! Edits, concurrent publishers, wrong answers and expired leases at the same time. At the end, all schedules match.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use schedule::WorkflowId;
use serde_json::json;
use workflows::State;

use crate::proxy::{Answer, THROTTLED};
use crate::world::{World, name, soon};

const CONFLICT: Answer = Answer::Refuse(409, "ConflictException", "being changed");
const BROKEN: Answer = Answer::Refuse(500, "InternalServerException", "oops");

/// xorshift: the same seed gives the same edits and faults.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// The desired schedules; this oracle knows only the edits, and nothing of how they are published.
type Wanted = BTreeMap<WorkflowId, Option<(String, &'static str)>>;

async fn edit(world: &World, wanted: &mut Wanted, dice: &mut Dice) {
    if wanted.len() < 3 || (wanted.len() < 12 && dice.roll(10) == 0) {
        let workflow = world.create("0 0 * * *", "UTC").await;
        wanted.insert(workflow, Some(("cron(0 0 * * ? *)".to_owned(), "ENABLED")));
        return;
    }
    let alive: Vec<WorkflowId> = wanted.keys().copied().collect();
    let workflow = alive[usize::try_from(dice.roll(alive.len() as u64)).unwrap()];
    let Some((cron, state)) = wanted[&workflow].clone() else { return };
    let next = match dice.roll(12) {
        0 => {
            world.delete(workflow).await;
            None
        }
        1 | 2 => {
            let (next, now) = match state {
                "ENABLED" => (State::Paused, "DISABLED"),
                _ => (State::Active, "ENABLED"),
            };
            world.set_state(workflow, next).await;
            Some((cron, now))
        }
        // Few values, so that an edit can restore an earlier cron.
        _ => {
            let hour = dice.roll(3);
            world.patch(workflow, json!({"cron_schedule": format!("0 {hour} * * *")})).await;
            Some((format!("cron(0 {hour} * * ? *)"), state))
        }
    };
    wanted.insert(workflow, next);
}

fn fault(dice: &mut Dice) -> Option<Answer> {
    [None, None, None, Some(THROTTLED), Some(BROKEN), Some(Answer::DoneButBroken), Some(CONFLICT)]
        [usize::try_from(dice.roll(7)).unwrap()]
}

async fn run_history(seed: u64) {
    let world = Arc::new(World::with_latency(Duration::from_millis(15)).await);
    let mut dice = Dice(seed);
    let mut wanted = Wanted::new();
    let is_over = Arc::new(AtomicBool::new(false));
    let publishers: Vec<_> = (0..3)
        .map(|_| {
            let (world, is_over) = (world.clone(), is_over.clone());
            tokio::spawn(async move {
                let publisher = world.publisher().await;
                while !is_over.load(Ordering::Relaxed) {
                    publisher.drain_outbox(soon()).await.unwrap();
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let mut skipped = Duration::ZERO;
    for _ in 0..120 {
        edit(&world, &mut wanted, &mut dice).await;
        for workflow in wanted.keys() {
            world.front.next(&name(*workflow), fault(&mut dice));
        }
        if dice.roll(4) == 0 {
            // Backoffs end, and sometimes leases expire while their publishers still run.
            skipped += Duration::from_secs([3, 30, 70, 1000][usize::try_from(dice.roll(4)).unwrap()]);
            world.skip(skipped).await;
        }
    }
    world.front.forget();
    is_over.store(true, Ordering::Relaxed);
    for publisher in publishers {
        publisher.await.unwrap();
    }
    // Each step is longer than backoffs, leases and signatures. After the last one, nothing may be left to do.
    for _ in 0..3 {
        skipped += Duration::from_secs(20 * 60);
        world.skip(skipped).await;
        world.publish().await;
    }
    world.assert_settled().await;
    for (workflow, wanted) in &wanted {
        let found = world.schedule(*workflow).await.map(|schedule| {
            (
                schedule["ScheduleExpression"].as_str().unwrap().to_owned(),
                schedule["State"].as_str().unwrap().to_owned(),
            )
        });
        let wanted = wanted.as_ref().map(|(cron, state)| (cron.clone(), (*state).to_owned()));
        assert_eq!(found, wanted, "{workflow} of seed {seed}");
        let publication = world.publication(*workflow).await;
        assert_eq!(
            (publication.sync.as_str(), publication.verify_in_secs),
            ("synced", None),
            "{workflow} of seed {seed}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedules_match_after_random_histories() {
    for seed in 1..=4 {
        run_history(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed)).await;
    }
}
