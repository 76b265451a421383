//! Steps 1 and 7 of 7: the labels of the counters. Each value is one of the app's own terms.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};

/// The job that failed for a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FailedJob {
    /// Its name.
    pub job: Word,
}

/// The answer to a fire.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Answered {
    /// `accepted`, `duplicate`, `gone`, `clock_skew`, or the reason of a refusal.
    pub answer: Word,
}

/// A code of this program, so that no external text becomes a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Word(pub &'static str);

impl EncodeLabelValue for Word {
    fn encode(&self, encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>) -> std::fmt::Result {
        self.0.encode(encoder)
    }
}
