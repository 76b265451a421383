//! Edits, differences, jobs and instances in words.

use api_types::drift::DriftedView;
use api_types::instances::{InstanceState, InstanceView};
use api_types::jobs::{JobView, LastResult};
use uuid::Uuid;

use crate::words::Badge;

/// What an edit does in EventBridge.
pub(super) fn op_words(op: &str) -> &str {
    match op {
        "upsert" => "set the schedule",
        "delete" => "delete the schedule",
        other => other,
    }
}

/// Who can remove the cause of an error.
pub(super) fn class_words(class: &str) -> &str {
    match class {
        "transient" => "it passes by itself",
        "environment" => "an operator has to repair the access to AWS or its settings",
        "permanent" => "EventBridge refuses the schedule: edit the workflow",
        "unclassified" => "cronbox does not know this error",
        other => other,
    }
}

/// How a schedule differs.
pub(super) fn drift_words(drifted: &DriftedView) -> Badge {
    let (words, class) = match drifted.class.as_str() {
        "missing" => ("missing in EventBridge", "bad"),
        "orphan" => ("left over in EventBridge", "warn"),
        "changed" => ("changed by another program", "bad"),
        "stale_template" => ("made by an older version", "warn"),
        "disabled_out_of_band" => ("disabled by another program", "bad"),
        _ => ("differs", "warn"),
    };
    Badge { words, class, mark: "≠" }
}

/// How the last run of a job ended.
pub(super) fn job_badge(job: &JobView) -> Badge {
    let (words, class, mark) = match job.last_result {
        Some(LastResult::Success) => ("done", "good", "✓"),
        Some(LastResult::Failed) => ("failed", "bad", "✕"),
        Some(LastResult::Skipped) => ("nothing to do", "quiet", "–"),
        None => ("has never run", "quiet", "○"),
    };
    Badge { words, class, mark }
}

/// What an instance does.
pub(super) fn instance_badge(instance: &InstanceView) -> Badge {
    let (words, class, mark) = match instance.state {
        InstanceState::Live => ("serves", "good", "●"),
        InstanceState::Stopping => ("shuts down", "warn", "‖"),
        InstanceState::Lost => ("gave no sign for a minute", "bad", "✕"),
    };
    Badge { words, class, mark }
}

/// The first part of an id, enough to tell instances apart.
pub(super) fn short_id(id: &Uuid) -> String {
    id.to_string().chars().take(8).collect()
}
