//! Step 7 of 7: what `/metrics` says of all instances together, read from the database at most every 15 s.
//!
//! Every instance shows the same values, so a query takes the maximum over the instances and never the sum.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use db::PgPool;
use ledger::occurrences::Decision;
use ledger::runs::RunState;
use ledger::stats::{self, Present, Scope, Stats};
use moka::future::Cache;
use moka::policy::EvictionPolicy;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use super::jobs::register_jobs;
use super::present::register_present;
use super::totals::Totals;
use crate::jobs::table::{Status, list_statuses};

/// How long the values are cached, however many clients scrape.
const FRESH_FOR: Duration = Duration::from_secs(15);
/// The span that the gauges cover: long enough for a scrape to see a failure, short enough to show its end.
const OF: TimeDelta = TimeDelta::hours(1);
/// The states in which runs end.
const FINAL_STATES: [RunState; 5] =
    [RunState::Succeeded, RunState::Failed, RunState::TimedOut, RunState::Cancelled, RunState::Abandoned];

/// The current values, shared by concurrent scrapes.
#[derive(Clone)]
pub struct Ledger {
    /// By the span of 15 s, so that the age of a reading is by the same clock as its values.
    readings: Cache<i64, Arc<Reading>>,
    totals: Arc<Mutex<BothTotals>>,
}

/// The values of one moment.
struct Reading {
    stats: Stats,
    present: Present,
    jobs: Vec<Status>,
    at: DateTime<Utc>,
}

#[derive(Default)]
struct BothTotals {
    decisions: Totals,
    ends: Totals,
}

impl Default for Ledger {
    fn default() -> Self {
        let readings = Cache::builder().max_capacity(1).eviction_policy(EvictionPolicy::lru());
        let readings = readings.time_to_live(FRESH_FOR).build();
        Self { readings, totals: Arc::default() }
    }
}

impl Ledger {
    /// Adds the metrics. If the database fails, `/metrics` has only the values of this process.
    pub(super) async fn register_metrics(&self, registry: &mut Registry, pool: &PgPool, now: DateTime<Utc>) {
        let reading = self.readings.try_get_with(span_of(now), self.read_database(pool, now)).await;
        registry.register(
            "database_up",
            "1 if the database answered this instance; otherwise the values of all instances together are missing here",
            ConstGauge::new(i64::from(reading.is_ok())),
        );
        match reading {
            Ok(reading) => {
                register_stats(registry, &reading.stats, reading.at);
                register_present(registry, &reading.present);
                register_jobs(registry, &reading.jobs, reading.at);
                self.register_totals(registry);
            }
            Err(error) => tracing::warn!(%error, "gauges of the ledger not read"),
        }
    }

    async fn read_database(&self, pool: &PgPool, now: DateTime<Utc>) -> sqlx::Result<Arc<Reading>> {
        let (decided_from, ended_from) = {
            let totals = self.totals();
            (totals.decisions.needed_from(now), totals.ends.needed_from(now))
        };
        let mut tx = db::begin_read(pool).await?;
        let stats = stats::read_stats(&mut tx, Scope::of_last(OF, now)).await?;
        let present = stats::read_present(&mut tx).await?;
        let decided = stats::read_decision_minutes(&mut tx, decided_from).await?;
        let ended = stats::read_end_minutes(&mut tx, ended_from).await?;
        let jobs = list_statuses(&mut tx).await?;
        tx.commit().await?;
        let mut totals = self.totals();
        totals.decisions.add_reading(&decided, |decision| decision.as_str(), now);
        totals.ends.add_reading(&ended, |state| state.as_str(), now);
        Ok(Arc::new(Reading { stats, present, jobs, at: now }))
    }

    fn register_totals(&self, registry: &mut Registry) {
        let (decisions, runs) = (Family::<OfValue, Counter>::default(), Family::<OfValue, Counter>::default());
        let totals = self.totals();
        for decision in Decision::ALL.map(Decision::as_str) {
            decisions.get_or_create(&[("decision", decision)]).inc_by(totals.decisions.get(decision));
        }
        for state in FINAL_STATES.map(RunState::as_str) {
            runs.get_or_create(&[("state", state)]).inc_by(totals.ends.get(state));
        }
        drop(totals);
        registry.register(
            "decisions",
            "Due times by decision, since the first scrape of this instance; of all instances together",
            decisions,
        );
        registry.register(
            "runs",
            "Runs by the state in which they ended, since the first scrape of this instance; of all instances together",
            runs,
        );
    }

    fn totals(&self) -> MutexGuard<'_, BothTotals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn span_of(now: DateTime<Utc>) -> i64 {
    now.timestamp() / FRESH_FOR.as_secs().cast_signed()
}

type OfValue = [(&'static str, &'static str); 1];

fn register_stats(registry: &mut Registry, stats: &Stats, now: DateTime<Utc>) {
    let decisions = Family::<OfValue, Gauge>::default();
    for decision in Decision::ALL {
        decisions.get_or_create(&[("decision", decision.as_str())]).set(stats.decision_count(decision));
    }
    registry.register("occurrences", "Due times that were decided in the last hour", decisions);
    let (delay, runs) = (stats.delay, stats.executions);
    for (name, help, seconds) in [
        ("fire_delay_p50_seconds", "Median of the time from due time to decision, in the last hour", delay.p50_s),
        (
            "fire_delay_p95_seconds",
            "95th percentile of the time from due time to decision, in the last hour",
            delay.p95_s,
        ),
    ] {
        registry.register(name, help, ConstGauge::new(seconds));
    }
    let oldest_s = stats.oldest_unresolved.map_or(0, |oldest| (now - oldest).num_seconds().max(0));
    for (name, help, count) in [
        ("fire_delay_max_seconds", "Longest time from due time to decision, in the last hour", delay.max_s),
        ("runs_ended", "Runs that ended in the last hour", runs.total),
        ("runs_successful", "Runs that succeeded in the last hour", runs.successful),
        ("runs_lost", "Runs that were abandoned in the last hour, but not by a shutdown", runs.lost),
        ("runs_handed_over", "Handovers at a shutdown, of runs that ended in the last hour", runs.handed_over),
        ("runs_cut_off", "Runs that a shutdown interrupted and abandoned, in the last hour", runs.cut_off),
        ("recovery_attempts", "Recoveries after a crash, of runs that ended in the last hour", runs.recovery_attempts),
        ("recoveries_successful", "Recovered runs that succeeded, in the last hour", runs.recovered),
        ("recoveries_failed", "Recovered runs that failed, in the last hour", runs.recovery_failed),
        ("recoveries_abandoned", "Recovered runs that were abandoned, in the last hour", runs.recovery_abandoned),
        ("runs_live", "Runs that wait or execute", stats.live),
        ("oldest_unresolved_seconds", "Age of the oldest occurrence whose run has not ended", oldest_s),
        (
            "ledger_lag_seconds",
            "Seconds by which the watchdog is behind its grace of 300 s; normally at most 60, the interval of its turns",
            stats.lag_s(now),
        ),
    ] {
        registry.register(name, help, ConstGauge::new(count));
    }
}
