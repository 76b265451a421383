//! Steps 1 and 7 of 7: the metrics of `/metrics`.
//!
//! A value is of this instance, so that the sum over the instances is that of the service; or it is of all instances
//! together, and its help says so. docs/metrics.md lists all of them.

pub(crate) mod emf;
mod fires;
mod jobs;
mod labels;
mod ledger;
mod pings;
mod pools;
mod present;
mod requests;
mod totals;

use chrono::{DateTime, Utc};
use db::PgPool;
use executor::Activity;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use schedule::ZoneSet;

pub use self::fires::FireDelay;
pub use self::ledger::Ledger;
pub use self::pings::{PingOutcome, Pings};
pub use self::requests::Requests;
pub use labels::{Answered, Delivery, FailedJob, MetricLabel, Refused};

use crate::clock::ClockSkew;

/// The counters of this process.
#[derive(Clone, Default)]
pub struct Metrics {
    /// What the database says of all instances together.
    pub ledger: Ledger,
    /// The requests by route.
    pub requests: Requests,
    /// What the executor has done.
    pub executor: Activity,
    /// How late fires were decided.
    pub fire_delay: FireDelay,
    /// The pings of the heartbeat.
    pub pings: Pings,
    /// Fires by answer.
    pub invokes: Family<Answered, Counter>,
    /// Fires whose time was not on a full minute.
    pub fires_off_minute: Counter,
    /// Fires that the published expression does not name by the app's zone data.
    pub fires_disagree: Counter,
    /// Times that the watchdog recorded as missed.
    pub missed: Counter,
    /// Times that the watchdog started late.
    pub caught_up: Counter,
    /// Workflows whose due times cannot be computed, at the last pass of the watchdog.
    pub unjudged: Gauge,
    /// Requests with an invalid key.
    pub bad_keys: Counter,
    /// Refused requests and connections, by reason.
    pub refusals: Family<Refused, Counter>,
    /// Workflows, teams or channels that a job could not process, by job.
    pub job_failures: Family<FailedJob, Counter>,
    /// Attempts to deliver messages about notifications, by outcome.
    pub deliveries: Family<Delivery, Counter>,
}

/// What a rendering shows besides the counters.
pub(crate) struct Sources<'a> {
    /// For what the database says.
    pub(crate) pool: &'a PgPool,
    /// All pools with their names.
    pub(crate) pools: &'a [(&'static str, &'a PgPool)],
    /// How many runs this instance executes at once.
    pub(crate) slots: usize,
    /// How many of these slots are used.
    pub(crate) used_slots: usize,
    /// The present time.
    pub(crate) now: DateTime<Utc>,
    /// How far this instance's clock differs from the database's.
    pub(crate) clock_skew: &'a ClockSkew,
}

impl Metrics {
    /// Counts attempts to deliver messages about notifications.
    pub(crate) fn count_deliveries(&self, sent: usize, failed: usize) {
        for (outcome, attempts) in [("sent", sent), ("failed", failed)] {
            self.deliveries.get_or_create(&Delivery { outcome: MetricLabel(outcome) }).inc_by(attempts as u64);
        }
    }

    /// Renders the metrics in Prometheus' text format.
    ///
    /// # Errors
    /// Writing into a `String` never fails.
    pub(crate) async fn render_metrics(&self, sources: Sources<'_>) -> Result<String, std::fmt::Error> {
        let mut registry = Registry::with_prefix("cronbox");
        register_build(&mut registry);
        self.register_counters(&mut registry);
        registry.register(
            "clock_skew_seconds",
            "How far this instance's clock is ahead of the database's; above 30 or below -30 it takes no jobs",
            ConstGauge::new(sources.clock_skew.as_seconds()),
        );
        self.requests.register_metrics(&mut registry);
        self.fire_delay.register_metrics(&mut registry);
        self.executor.register_metrics(&mut registry);
        for (name, help, slots) in [
            ("executor_slots", "Runs that this instance may execute at once", sources.slots),
            ("executor_slots_used", "Runs that this instance executes, or is about to execute", sources.used_slots),
        ] {
            registry.register(name, help, ConstGauge::new(i64::try_from(slots).unwrap_or(i64::MAX)));
        }
        self.pings.register_metrics(&mut registry);
        pools::register_pools(&mut registry, sources.pools);
        self.ledger.register_metrics(&mut registry, sources.pool, sources.now).await;
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }

    fn register_counters(&self, registry: &mut Registry) {
        registry.register("invokes", "Fires, by answer", self.invokes.clone());
        registry.register(
            "fires_off_minute",
            "Fires whose time was not at the start of a minute",
            self.fires_off_minute.clone(),
        );
        registry.register(
            "fires_disagree",
            "Fires that the published expression does not name: EventBridge's zone data or clock differ from ours",
            self.fires_disagree.clone(),
        );
        registry.register("missed", "Times that the watchdog decided as missed", self.missed.clone());
        registry.register("caught_up", "Times that the watchdog ran late", self.caught_up.clone());
        registry.register(
            "workflows_unjudged",
            "Workflows whose timezone or cron is not known any more, at the watchdog's last check",
            self.unjudged.clone(),
        );
        registry.register(
            "bad_keys",
            "Requests with a key that is unknown, revoked, expired or not accepted from its address",
            self.bad_keys.clone(),
        );
        registry.register("refusals", "Refused requests and ended connections, by reason", self.refusals.clone());
        registry.register(
            "job_failures",
            "Workflows, teams or channels that a turn of a job could not process; it processed all others",
            self.job_failures.clone(),
        );
        let dropped = Family::<[(&str, &str); 1], Counter>::default();
        for (reason, spans) in traces::dropped_spans().by_reason() {
            dropped.get_or_create(&[("reason", reason)]).inc_by(spans);
        }
        registry.register("spans_dropped", "Spans of this instance that its collector did not get, by reason", dropped);
        // A rate needs the zero before the first attempt.
        self.count_deliveries(0, 0);
        registry.register(
            "notification_attempts",
            "Attempts of this instance to deliver messages about notifications, by outcome",
            self.deliveries.clone(),
        );
    }
}

/// The program and its zone data, as labels.
fn register_build(registry: &mut Registry) {
    let build = Family::<[(&str, &str); 1], Gauge>::default();
    build.get_or_create(&[("version", env!("CARGO_PKG_VERSION"))]).set(1);
    registry.register("build_info", "The version of this instance's program", build);
    let zones = ZoneSet::installed();
    let zone_data = Family::<[(&str, String); 1], Gauge>::default();
    zone_data.get_or_create(&[("version", zones.version().to_string())]).set(1);
    registry.register("zone_data", "The zone data of this instance, by version", zone_data);
    registry.register(
        "zone_data_year",
        "The year in which the zone data of this instance were released",
        ConstGauge::new(i64::from(zones.version().year())),
    );
}
