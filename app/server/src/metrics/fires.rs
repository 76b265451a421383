//! Step 7 of 7: how late fires are decided by this instance, on `/metrics`.

use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The upper limits of the buckets in seconds. EventBridge fires within a minute, and after 300 s a fire is late.
const BUCKETS: [f64; 12] = [1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 90.0, 120.0, 300.0, 900.0, 3600.0];

/// The delays of the accepted fires of this instance.
#[derive(Clone, Debug)]
pub struct FireDelay(Histogram);

impl Default for FireDelay {
    fn default() -> Self {
        Self(Histogram::new(BUCKETS))
    }
}

impl FireDelay {
    /// Counts a fire that was accepted so many milliseconds after its time.
    pub(crate) fn count_fire(&self, late_ms: i64) {
        let late_ms = u32::try_from(late_ms.max(0)).unwrap_or(u32::MAX);
        self.0.observe(f64::from(late_ms) / 1_000.0);
    }

    /// Adds the metric.
    pub(super) fn register_metrics(&self, registry: &mut Registry) {
        registry.register(
            "fire_delay_seconds",
            "Seconds from the due time to the decision, of the fires that this instance accepted",
            self.0.clone(),
        );
    }
}
