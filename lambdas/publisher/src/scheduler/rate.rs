//! Step 4 of 7: the rate of calls of this process, so that EventBridge need not throttle it.
//!
//! One bucket for all calls, with an equal share of the limit for all live publishers together. A 429 halves the rate,
//! which recovers by a tenth of the share per second. The calls are spread evenly, because one 429 costs more than a
//! burst could gain.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The part of the limit that is used; together with the calls of late callers no second exceeds the limit.
const PACE: f64 = 0.99;
/// How much time a caller that is late for its slot may catch up.
const BURST: Duration = Duration::from_millis(10);
/// A caller later than this was idle, not late: publishers that start together have nothing to catch up.
const IDLE: Duration = Duration::from_millis(100);
/// The part of the limit that the rate recovers per second.
const RECOVERY: f64 = 0.1;
/// The part of the limit that always remains.
const LEAST: f64 = 0.01;
/// A surplus is paid back within this time, because EventBridge counts per second.
const LONGEST_DEBT_SECS: f64 = 1.0;

/// Assigns slots in the order of the requests.
#[derive(Debug)]
pub(crate) struct Rate {
    /// Calls per second, for all publishers together.
    limit: u32,
    pace: Mutex<Pace>,
    /// Locked by the caller that waits for the next slot. The callers behind it have no slot yet, so one whose lease
    /// ends while it waits wastes none.
    gate: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Pace {
    share: f64,
    per_sec: f64,
    since: Instant,
    /// Slots assigned since the share last changed.
    handed: f64,
    /// Calls above a share that turned out to be smaller, as time.
    debt_secs: f64,
    halved_on: Option<Instant>,
}

impl Rate {
    pub(crate) fn new(per_sec: u32) -> Self {
        let now = Instant::now();
        let share = share_of(per_sec, 1);
        let pace = Pace { share, per_sec: share, since: now, handed: 0.0, debt_secs: 0.0, halved_on: None };
        Rate { limit: per_sec, pace: Mutex::new(pace), gate: tokio::sync::Mutex::default() }
    }

    /// Waits for a slot, unless `is_wanted` says at its turn that none is needed any more.
    pub(crate) async fn wait_for_slot(&self, is_wanted: impl Fn() -> bool) {
        let mut next = self.gate.lock().await;
        if !is_wanted() {
            return;
        }
        let now = Instant::now();
        let (debt, interval) = self.pace().hand_out(now);
        let turn = next.filter(|next| now.saturating_duration_since(*next) <= IDLE).unwrap_or(now);
        let slot = turn.max(now.checked_sub(BURST).unwrap_or(now)) + debt;
        *next = Some(slot + interval);
        if slot > now {
            tokio::time::sleep_until(slot).await;
        }
    }

    /// Records that EventBridge throttled a call made at `sent`.
    pub(crate) fn record_throttled(&self, sent: Instant) {
        let now = Instant::now();
        let mut pace = self.pace();
        // A call that was in flight when the rate was halved says nothing about the new rate.
        if pace.halved_on.is_some_and(|halved_on| sent <= halved_on) {
            return;
        }
        pace.per_sec = (pace.now(now) / 2.0).max(pace.share * LEAST);
        pace.since = now;
        pace.halved_on = Some(now);
    }

    /// Sets the number of active publishers; each calls at an equal share of the limit.
    pub(crate) fn share_among(&self, publishers: u32) {
        let now = Instant::now();
        let mut pace = self.pace();
        let share = share_of(self.limit, publishers.max(1));
        // The other publishers may have been active since the last count, and have made calls as well.
        let surplus = pace.handed * (1.0 - share / pace.share).max(0.0);
        pace.debt_secs = (pace.debt_secs + surplus / share).min(LONGEST_DEBT_SECS);
        pace.handed = 0.0;
        // A reduced rate stays reduced in proportion.
        pace.per_sec = pace.now(now) * share / pace.share;
        pace.share = share;
        pace.since = now;
    }

    /// Whether it was throttled recently.
    #[cfg(test)]
    pub(crate) fn is_slowed(&self) -> bool {
        let pace = self.pace();
        pace.now(Instant::now()) < pace.share
    }

    fn pace(&self) -> std::sync::MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pace {
    /// Counts a slot; returns how much later than its turn it is, and how long until the next one.
    fn hand_out(&mut self, now: Instant) -> (Duration, Duration) {
        self.handed += 1.0;
        let debt = Duration::from_secs_f64(std::mem::take(&mut self.debt_secs));
        (debt, Duration::from_secs_f64(1.0 / self.now(now)))
    }

    fn now(&self, now: Instant) -> f64 {
        let recovered = self.share * RECOVERY * now.saturating_duration_since(self.since).as_secs_f64();
        (self.per_sec + recovered).min(self.share)
    }
}

/// Rounded down to full calls per second if more than one: half a call too much is a full call every other second.
fn share_of(limit: u32, publishers: u32) -> f64 {
    let share = f64::from(limit) / f64::from(publishers);
    if share < 1.0 { share * PACE } else { share.floor() * PACE }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;

    async fn calls(rate: &Rate, count: usize) -> Duration {
        let started = Instant::now();
        join_all((0..count).map(|_| rate.wait_for_slot(|| true))).await;
        started.elapsed()
    }

    fn percent(rate: &Rate) -> u32 {
        let pace = rate.pace();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100")]
        let percent = (pace.now(Instant::now()) / share_of(rate.limit, 1) * 100.0).round() as u32;
        percent
    }

    #[tokio::test(start_paused = true)]
    async fn many_concurrent_calls_keep_the_limit() {
        let took = calls(&Rate::new(200), 401).await;
        assert!((2000..=2030).contains(&took.as_millis()), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn late_callers_do_not_exceed_the_limit() {
        let rate = Rate::new(200);
        let mut made = Vec::new();
        while made.len() < 1000 {
            // Sometimes late by 25 ms, as a busy process is.
            tokio::time::advance(Duration::from_millis(if made.len().is_multiple_of(7) { 25 } else { 0 })).await;
            rate.wait_for_slot(|| true).await;
            made.push(Instant::now());
        }
        let busiest = made.iter().map(|from| {
            made.iter().filter(|at| *at >= from && at.duration_since(*from) < Duration::from_secs(1)).count()
        });
        assert!(busiest.max() <= Some(200));
    }

    #[tokio::test(start_paused = true)]
    async fn a_throttled_rate_halves_and_recovers() {
        let rate = Rate::new(100);
        rate.record_throttled(Instant::now());
        assert_eq!(percent(&rate), 50);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(percent(&rate), 70);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(percent(&rate), 100);
    }

    /// Calls that were sent before the rate was halved do not halve it again.
    #[tokio::test(start_paused = true)]
    async fn calls_in_flight_halve_the_rate_once() {
        let rate = Rate::new(100);
        let sent = Instant::now();
        tokio::time::advance(Duration::from_millis(15)).await;
        (0..64).for_each(|_| rate.record_throttled(sent));
        assert_eq!(percent(&rate), 50);
        tokio::time::advance(Duration::from_millis(15)).await;
        rate.record_throttled(Instant::now());
        assert_eq!(percent(&rate), 25, "the new rate is too much, too");
    }

    #[tokio::test(start_paused = true)]
    async fn publishers_share_the_rate_equally() {
        let rate = Rate::new(100);
        rate.share_among(4);
        assert_eq!(percent(&rate), 25);
        rate.record_throttled(Instant::now());
        rate.share_among(1);
        assert_eq!(percent(&rate), 50, "it stays slowed down");
    }

    /// Publishers that start together count each other late, and exceed the limit in no second nevertheless.
    #[tokio::test(start_paused = true)]
    async fn a_smaller_share_repays_earlier_calls() {
        let rate = Rate::new(200);
        let alone = calls(&rate, 10).await;
        rate.share_among(4);
        let took = alone + calls(&rate, 40).await;
        // Fifty in a second is the share of each of four publishers.
        assert!((970..=1010).contains(&took.as_millis()), "{took:?}");
    }

    /// A caller whose lease ends while it queues leaves the slot to the next one.
    #[tokio::test(start_paused = true)]
    async fn an_unwanted_call_takes_no_slot() {
        let rate = Rate::new(1);
        calls(&rate, 1).await;
        let started = Instant::now();
        join_all((0..100).map(|_| rate.wait_for_slot(|| false))).await;
        rate.wait_for_slot(|| true).await;
        assert!(started.elapsed() <= Duration::from_millis(1020), "{:?}", started.elapsed());
    }
}
