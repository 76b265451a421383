//! Steps 1 and 7 of 7: the labels of the counters. Each value is one of the app's own terms.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};

/// The job that failed for a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FailedJob {
    /// Its name. Not `job`, which is Prometheus' own label of what it scrapes.
    pub background_job: MetricLabel,
}

/// What became of an attempt to deliver a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Delivery {
    /// `sent` or `failed`.
    pub outcome: MetricLabel,
}

/// The answer to a fire.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Answered {
    /// `accepted`, `duplicate`, `gone`, `clock_skew`, `held`, or the reason of a refusal.
    pub answer: MetricLabel,
}

/// Why a request was refused, or a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Refused {
    /// The code of the answer or the name of the limit, or `slow_write`, `address_connections`, `connection_places`.
    pub reason: MetricLabel,
}

/// A code of this program, so that no external text becomes a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MetricLabel(pub &'static str);

impl EncodeLabelValue for MetricLabel {
    fn encode(&self, encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>) -> std::fmt::Result {
        self.0.encode(encoder)
    }
}
