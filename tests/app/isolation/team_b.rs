//! Team B: a fire each minute, and a run without an end. No other team may delay either of them.

use chrono::TimeDelta;
use schedule::WorkflowId;
use serde_json::json;
use tests::Story;

use super::{Receiver, every_minute, minutes_after_noon, noon};

const OF_B: &str = "SELECT count(*) FROM occurrences o JOIN workflows w ON w.id = o.workflow_id
                     WHERE w.name LIKE 'b %' AND o.decision = 'fired'";
const GOING_OF_B: &str = "SELECT count(*) FROM runs r JOIN workflows w ON w.id = r.workflow_id
                           WHERE w.name LIKE 'b %' AND r.finished_on IS NULL";
/// The fires of team B that were decided in another way than as a fire, or late: each is delivered after five seconds.
const NOT_ON_TIME: &str = "SELECT count(*) FROM occurrences o JOIN workflows w ON w.id = o.workflow_id
                            WHERE w.name LIKE 'b %' AND (o.decision <> 'fired' OR o.lateness_s > 5)";
/// The run without an end, if its first attempt is still executed and a heartbeat has renewed its lease at this time of
/// the clock, which the story sets.
const RENEWED: &str = "SELECT count(*) FROM runs r JOIN workflows w ON w.id = r.workflow_id
                        WHERE w.name LIKE 'endless %' AND r.state = 'running' AND r.attempt = 1 AND r.recoveries = 0
                          AND r.lease_until >= cronbox_now() + INTERVAL '120 seconds'";

/// The team, its clock and its receiver.
pub(super) struct TeamB {
    minutely: WorkflowId,
    /// How many minutes after noon it is.
    minutes: i64,
    endless: Receiver,
}

impl TeamB {
    /// Creates the team, and starts the run without an end. The instance needs a short heartbeat.
    pub(super) async fn start(s: &Story) -> Self {
        let (endless, action) = Receiver::start(0).await;
        let minutely = every_minute(s, "b", 1, &json!({"type": "log", "message": "b"})).await[0];
        let without_end = every_minute(s, "endless", 1, &action).await[0];
        s.admin().post_empty(&format!("/api/v1/schedules/{without_end}:fire")).await.expect(202);
        endless.until(1).await;
        Self { minutely, minutes: 0, endless }
    }

    /// Delivers the fire of the next minute: it is accepted, and its run starts and ends before the clock moves on. The
    /// lease of the other run is renewed, too.
    pub(super) async fn next_minute(&mut self, s: &Story) {
        self.minutes += 1;
        s.set_clock(noon() + TimeDelta::minutes(self.minutes) + TimeDelta::seconds(5)).await;
        let answer = s.invoke(self.minutely, &minutes_after_noon(self.minutes)).await;
        assert_eq!(answer.status, 202, "minute {}: {}", self.minutes, answer.body);
        s.until(GOING_OF_B, 0).await;
        s.until(RENEWED, 1).await;
    }

    /// Asserts that all fires ran on time, and that no fire, no heartbeat and no run was refused a connection. Ends the run
    /// without an end.
    pub(super) async fn was_on_time(self, s: &Story) {
        assert_eq!((s.count(OF_B).await, s.count(NOT_ON_TIME).await), (self.minutes, 0));
        let pools = &s.app().pools;
        for (name, pool) in [("fires", &pools.fires), ("leases", &pools.leases), ("work", &pools.work)] {
            assert_eq!(pool.current_use().timed_out, 0, "{name}");
        }
        self.endless.gate.add_permits(1);
    }
}
