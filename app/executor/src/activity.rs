//! Step 7 of 7: what the executor of this process has done since its start, for the metrics.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The upper limits of the buckets in seconds; an action takes a day at most.
const BUCKETS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0];

type Label = (&'static str, &'static str);

/// The counts; clones share them.
#[derive(Clone, Debug)]
pub struct Activity {
    claims: Family<[Label; 1], Counter>,
    starts: Family<[Label; 1], Counter>,
    actions: Family<[Label; 2], Histogram, fn() -> Histogram>,
}

/// What a claim has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimOutcome {
    /// A run at least.
    Runs,
    /// None: no run was due.
    Nothing,
    /// It is not known, because the database failed.
    Failed,
}

/// How the action of an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActionOutcome {
    /// It succeeded.
    Succeeded,
    /// The receiver answered with a status that is neither a success nor 5xx.
    Refused,
    /// The receiver answered with 5xx.
    ReceiverFailed,
    /// The receiver did not answer, or not completely.
    NoAnswer,
    /// Nothing was sent, because it may not be sent, or cannot be built.
    NotSent,
    /// It took longer than the timeout of the workflow.
    TimedOut,
    /// A caller cancelled the run.
    Cancelled,
    /// Another instance may have the run.
    Lost,
    /// This instance shuts down, and hands the run over.
    HandedOver,
}

impl ClaimOutcome {
    const ALL: [Self; 3] = [Self::Runs, Self::Nothing, Self::Failed];

    fn as_str(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Nothing => "nothing",
            Self::Failed => "failed",
        }
    }
}

impl ActionOutcome {
    const ALL: [Self; 9] = [
        Self::Succeeded,
        Self::Refused,
        Self::ReceiverFailed,
        Self::NoAnswer,
        Self::NotSent,
        Self::TimedOut,
        Self::Cancelled,
        Self::Lost,
        Self::HandedOver,
    ];

    /// The word of the metrics and of the traces.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Refused => "refused",
            Self::ReceiverFailed => "receiver_failed",
            Self::NoAnswer => "no_answer",
            Self::NotSent => "not_sent",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
            Self::HandedOver => "handed_over",
        }
    }
}

impl Default for Activity {
    /// Every outcome of an `http` action is there from the start, because the rate of a series begins with its second sample.
    fn default() -> Self {
        let activity = Self {
            claims: Family::default(),
            starts: Family::default(),
            actions: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        };
        for outcome in ClaimOutcome::ALL {
            drop(activity.claims.get_or_create(&[("outcome", outcome.as_str())]));
        }
        for origin in ["claim", "fire"] {
            drop(activity.starts.get_or_create(&[("origin", origin)]));
        }
        for outcome in ActionOutcome::ALL {
            drop(activity.actions.get_or_create(&[("action", "http"), ("outcome", outcome.as_str())]));
        }
        activity
    }
}

impl Activity {
    /// Adds the metrics.
    pub fn register_metrics(&self, registry: &mut Registry) {
        registry.register(
            "executor_claims",
            "Claims of this instance's executor, by outcome: it took runs, there was none, or the database failed",
            self.claims.clone(),
        );
        registry.register(
            "executor_attempts",
            "Attempts that this instance started, by origin: a claim, or the fire that it decided",
            self.starts.clone(),
        );
        registry.register(
            "action_duration_seconds",
            "Seconds that the actions of attempts took, by kind of action and outcome",
            self.actions.clone(),
        );
    }

    pub(crate) fn count_claim(&self, outcome: ClaimOutcome) {
        self.claims.get_or_create(&[("outcome", outcome.as_str())]).inc();
    }

    /// Counts the start of an attempt whose run a claim or a fire has taken.
    pub(crate) fn count_attempt(&self, origin: &'static str) {
        self.starts.get_or_create(&[("origin", origin)]).inc();
    }

    /// Counts the end of an action; `kind` is its type, as its document names it.
    pub(crate) fn count_action(&self, kind: Option<&str>, outcome: ActionOutcome, took: Duration) {
        let kind = if kind == Some("log") { "log" } else { "http" };
        let labels = [("action", kind), ("outcome", outcome.as_str())];
        self.actions.get_or_create(&labels).observe(took.as_secs_f64());
    }
}
