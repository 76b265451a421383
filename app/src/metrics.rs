//! Steps 1 and 7 of 7: what `/metrics` counts.

mod ledger;

use chrono::{DateTime, Utc};
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use sqlx::PgPool;

pub use ledger::Ledger;

/// The counters of this process.
#[derive(Clone, Default)]
pub struct Metrics {
    /// The ledger's figures, of all instances together.
    pub ledger: Ledger,
    /// Fires by what they led to.
    pub invokes: Family<Answered, Counter>,
    /// Fires whose time was not on a whole minute.
    pub fires_off_minute: Counter,
    /// Fires of exact coverage that our reading of the cron refuses.
    pub fires_disagree: Counter,
    /// Times that the watchdog found missed.
    pub missed: Counter,
    /// Times that the watchdog let run late.
    pub caught_up: Counter,
    /// Workflows that nobody can judge, at the watchdog's last look.
    pub unjudged: Gauge,
    /// Requests with a key that opens nothing.
    pub bad_keys: Counter,
}

/// How a fire was answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Answered {
    /// `accepted`, `duplicate`, `gone`, `clock_skew`, or the reason of a refusal.
    pub answer: Word,
}

/// A word of our own vocabulary, so that a label can take no text from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Word(pub &'static str);

impl EncodeLabelValue for Word {
    fn encode(&self, encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>) -> std::fmt::Result {
        self.0.encode(encoder)
    }
}

impl Metrics {
    /// The counters and the ledger's figures in Prometheus' text form.
    ///
    /// # Errors
    /// None that a String can make.
    pub async fn render(&self, pool: &PgPool, now: DateTime<Utc>) -> Result<String, std::fmt::Error> {
        let mut registry = Registry::with_prefix("cronbox");
        registry.register("invokes", "Fires by what they led to", self.invokes.clone());
        registry.register(
            "fires_off_minute",
            "Fires whose time was not on a whole minute",
            self.fires_off_minute.clone(),
        );
        registry.register(
            "fires_disagree",
            "Fires of exact coverage that our reading of the cron refuses: zone data or clock differ",
            self.fires_disagree.clone(),
        );
        registry.register("missed", "Times that the watchdog found missed", self.missed.clone());
        registry.register("caught_up", "Times that the watchdog let run late", self.caught_up.clone());
        registry.register(
            "workflows_unjudged",
            "Workflows whose timezone or cron is not known any more, at the watchdog's last look",
            self.unjudged.clone(),
        );
        registry.register("bad_keys", "Requests with a key that opens nothing", self.bad_keys.clone());
        self.ledger.register(&mut registry, pool, now).await;
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }
}
