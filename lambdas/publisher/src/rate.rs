//! Step 4 of 7: how fast this process calls, so that EventBridge need not throttle us.
//!
//! One bucket for all calls, with an equal share of what all live publishers may call together. A
//! 429 halves the rate; it recovers by a tenth of the share a second.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How much may be made up for when a caller comes late to its slot.
const BURST: Duration = Duration::from_millis(50);
/// Of the limit, recovered a second.
const RECOVERY: f64 = 0.1;
/// Of the limit, what is always left.
const LEAST: f64 = 0.01;

/// Hands out slots in the order of asking.
#[derive(Debug)]
pub(crate) struct Rate {
    /// For all publishers together.
    limit: f64,
    pace: Mutex<Pace>,
    /// Held by the one who waits for the next slot; those behind have taken none yet, so a caller
    /// whose lease ends while it queues wastes nothing.
    gate: tokio::sync::Mutex<Instant>,
}

#[derive(Debug)]
struct Pace {
    share: f64,
    per_sec: f64,
    since: Instant,
}

impl Rate {
    pub(crate) fn new(per_sec: u32) -> Self {
        let now = Instant::now();
        let limit = f64::from(per_sec);
        Rate {
            limit,
            pace: Mutex::new(Pace { share: limit, per_sec: limit, since: now }),
            gate: tokio::sync::Mutex::new(now),
        }
    }

    /// Waits for a slot, unless `is_wanted` says, when it is our turn, that none is needed any more.
    pub(crate) async fn slot(&self, is_wanted: impl Fn() -> bool) {
        let mut next = self.gate.lock().await;
        if !is_wanted() {
            return;
        }
        let now = Instant::now();
        let slot = (*next).max(now.checked_sub(BURST).unwrap_or(now));
        *next = slot + Duration::from_secs_f64(1.0 / self.per_sec(now));
        if slot > now {
            tokio::time::sleep_until(slot).await;
        }
    }

    /// EventBridge said that it was too much.
    pub(crate) fn throttled(&self) {
        let now = Instant::now();
        let mut pace = self.pace();
        let half = (pace.now(now) / 2.0).max(pace.share * LEAST);
        *pace = Pace { share: pace.share, per_sec: half, since: now };
    }

    /// So many publishers are at work; each calls at an equal share of the limit.
    pub(crate) fn share(&self, sharers: u32) {
        let now = Instant::now();
        let mut pace = self.pace();
        let share = self.limit / f64::from(sharers.max(1));
        // Slowed down or not, it stays so in proportion.
        let per_sec = pace.now(now) * share / pace.share;
        *pace = Pace { share, per_sec, since: now };
    }

    fn per_sec(&self, now: Instant) -> f64 {
        self.pace().now(now)
    }

    fn pace(&self) -> std::sync::MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pace {
    fn now(&self, now: Instant) -> f64 {
        let recovered = self.share * RECOVERY * now.saturating_duration_since(self.since).as_secs_f64();
        (self.per_sec + recovered).min(self.share)
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;

    async fn calls(rate: &Rate, count: usize) -> Duration {
        let begun = Instant::now();
        join_all((0..count).map(|_| rate.slot(|| true))).await;
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn calls_keep_to_the_limit_whatever_their_number_in_flight() {
        let took = calls(&Rate::new(200), 401).await;
        assert!((1900..=2010).contains(&took.as_millis()), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_throttled_caller_halves_its_rate_and_recovers() {
        let rate = Rate::new(100);
        rate.throttled();
        assert!((50.0..51.0).contains(&rate.per_sec(Instant::now())));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!((70.0..71.0).contains(&rate.per_sec(Instant::now())));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!((100.0..101.0).contains(&rate.per_sec(Instant::now())));
    }

    #[tokio::test(start_paused = true)]
    async fn four_publishers_call_at_a_quarter_each_and_one_that_is_left_at_the_whole() {
        let rate = Rate::new(100);
        rate.share(4);
        assert!((24.9..=25.0).contains(&rate.per_sec(Instant::now())));
        rate.throttled();
        rate.share(1);
        assert!((49.0..51.0).contains(&rate.per_sec(Instant::now())), "it stays slowed down");
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_while_queueing_takes_no_slot() {
        let rate = Rate::new(1);
        calls(&rate, 1).await;
        let begun = Instant::now();
        join_all((0..100).map(|_| rate.slot(|| false))).await;
        rate.slot(|| true).await;
        assert!(begun.elapsed() <= Duration::from_secs(1), "{:?}", begun.elapsed());
    }
}
