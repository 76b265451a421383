//! Steps 1 and 7 of 7: the metrics of `/metrics`.

pub(crate) mod emf;
mod labels;
mod ledger;
mod pools;

use chrono::{DateTime, Utc};
use db::PgPool;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use schedule::ZoneSet;

pub use self::ledger::Ledger;
pub use labels::{Answered, FailedJob, MetricLabel, Refused};

use crate::clock::ClockSkew;

/// The counters of this process.
#[derive(Clone, Default)]
pub struct Metrics {
    /// The gauges of the ledger, of all instances together.
    pub ledger: Ledger,
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
    /// Workflows that a job could not process, by job.
    pub job_failures: Family<FailedJob, Counter>,
}

impl Metrics {
    /// Renders the counters, the use of the `pools` and the ledger's gauges in Prometheus' text format.
    ///
    /// # Errors
    /// Writing into a `String` never fails.
    pub async fn render_metrics(
        &self,
        pool: &PgPool,
        pools: &[(&'static str, &PgPool)],
        now: DateTime<Utc>,
        clock_skew: &ClockSkew,
    ) -> Result<String, std::fmt::Error> {
        let mut registry = Registry::with_prefix("cronbox");
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
        let zone_data = Family::<[(&str, String); 1], Gauge>::default();
        zone_data.get_or_create(&[("version", ZoneSet::installed().version().to_string())]).set(1);
        registry.register("zone_data", "The zone data of this instance, by version", zone_data);
        registry.register(
            "bad_keys",
            "Requests with a key that is unknown, revoked, expired or not accepted from its address",
            self.bad_keys.clone(),
        );
        registry.register("refusals", "Refused requests and ended connections, by reason", self.refusals.clone());
        registry.register(
            "job_failures",
            "Workflows that a turn of a job could not process; it processed all others",
            self.job_failures.clone(),
        );
        registry.register(
            "clock_skew_seconds",
            "How far this instance's clock is ahead of the database's; above 30 or below -30 it takes no jobs",
            ConstGauge::new(clock_skew.as_seconds()),
        );
        pools::register_gauges(&mut registry, pools);
        self.ledger.register_gauges(&mut registry, pool, now).await;
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }
}
