//! Step 7 of 7: the pings of the heartbeat on `/metrics`.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// What became of a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PingOutcome {
    /// The receiver answered with a success.
    Sent,
    /// The receiver did not answer, or not with a success.
    Failed,
    /// It was not sent, because the service is not healthy.
    Withheld,
}

/// The pings of this instance.
#[derive(Clone, Debug)]
pub struct Pings(Family<[(&'static str, &'static str); 1], Counter>);

impl PingOutcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Failed => "failed",
            Self::Withheld => "withheld",
        }
    }
}

impl Default for Pings {
    fn default() -> Self {
        let pings = Self(Family::default());
        for outcome in [PingOutcome::Sent, PingOutcome::Failed, PingOutcome::Withheld] {
            drop(pings.0.get_or_create(&[("outcome", outcome.as_str())]));
        }
        pings
    }
}

impl Pings {
    pub(crate) fn count_ping(&self, outcome: PingOutcome) {
        self.0.get_or_create(&[("outcome", outcome.as_str())]).inc();
    }

    /// Adds the metric.
    pub(super) fn register_metrics(&self, registry: &mut Registry) {
        registry.register(
            "heartbeat_pings",
            "Pings of CRONBOX_HEARTBEAT_URL by this instance: sent, failed, or withheld because the service was not healthy",
            self.0.clone(),
        );
    }
}
