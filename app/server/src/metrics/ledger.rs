//! Step 7 of 7: the gauges of the ledger on `/metrics`, read from the database at most every 15 s.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use db::PgPool;
use ledger::occurrences::Decision;
use ledger::stats::{self, Scope, Stats};
use moka::future::Cache;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use super::MetricLabel;

/// How long the gauges are cached, however many clients scrape.
const FRESH_FOR: Duration = Duration::from_secs(15);
/// The span that the gauges cover: long enough for a scrape to see a failure, short enough to show its end.
const OF: TimeDelta = TimeDelta::hours(1);

/// The current gauges, shared by concurrent scrapes.
#[derive(Clone)]
pub struct Ledger(Cache<(), (Stats, DateTime<Utc>)>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decided {
    decision: MetricLabel,
}

impl Default for Ledger {
    fn default() -> Self {
        Self(Cache::builder().max_capacity(1).time_to_live(FRESH_FOR).build())
    }
}

impl Ledger {
    /// Adds the gauges. If the database fails, `/metrics` has only the counters of this process.
    pub(super) async fn register_gauges(&self, registry: &mut Registry, pool: &PgPool, now: DateTime<Utc>) {
        let read = self.0.try_get_with((), async {
            let mut tx = db::begin_read(pool).await?;
            let stats = stats::read_stats(&mut tx, Scope::of_last(OF, now)).await?;
            tx.commit().await?;
            Ok::<_, sqlx::Error>((stats, now))
        });
        match read.await {
            Ok((stats, read_at)) => register(registry, &stats, read_at),
            Err(error) => tracing::warn!(%error, "gauges of the ledger not read"),
        }
    }
}

fn register(registry: &mut Registry, stats: &Stats, now: DateTime<Utc>) {
    let decisions = Family::<Decided, Gauge>::default();
    for decision in Decision::ALL {
        decisions
            .get_or_create(&Decided { decision: MetricLabel(decision.as_str()) })
            .set(stats.decision_count(decision));
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
            "Seconds by which the watchdog is behind its grace of 300 s; normally 0",
            stats.lag_s(now),
        ),
    ] {
        registry.register(name, help, ConstGauge::new(count));
    }
}
