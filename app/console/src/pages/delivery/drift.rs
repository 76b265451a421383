//! The report of a sweep in words.

use api_types::drift::SweepView;
use serde_json::Value;

/// The sentences of a report, the most urgent first; none: it has no counts yet.
pub(super) fn sentences(sweep: &SweepView) -> Vec<String> {
    let report = &sweep.report;
    let count = |name: &str| report.get(name).and_then(Value::as_u64).unwrap_or_default();
    let mut sentences = Vec::new();
    if let Some(reason) = report.get("stopped_by").and_then(Value::as_str) {
        sentences.push(format!("It was interrupted: {reason}."));
    }
    let counted = [
        (
            "changes_refused",
            "change was not made, because there were too many",
            "changes were not made, because there were too many",
        ),
        (
            "orphans_refused",
            "orphan was not deleted, because there were too many",
            "orphans were not deleted, because there were too many",
        ),
        (
            "orphans_foreign",
            "orphan belongs to another database and is never deleted",
            "orphans belong to another database and are never deleted",
        ),
        ("unread", "schedule could not be read", "schedules could not be read"),
        ("missing", "schedule was missing", "schedules were missing"),
        ("changed", "schedule was changed by another program", "schedules were changed by another program"),
        (
            "disabled_out_of_band",
            "schedule was disabled by another program",
            "schedules were disabled by another program",
        ),
        ("stale_template", "schedule was made by an older version", "schedules were made by an older version"),
        ("orphan", "schedule belongs to no workflow", "schedules belong to no workflow"),
        (
            "explained",
            "schedule waits for the rollout of a new version",
            "schedules wait for the rollout of a new version",
        ),
        ("repaired", "workflow was queued for repair", "workflows were queued for repair"),
        ("orphans_deleted", "orphan was queued for deletion", "orphans were queued for deletion"),
        ("orphans_waiting", "orphan is too new to be deleted", "orphans are too new to be deleted"),
        ("listed", "schedule was compared", "schedules were compared"),
        ("foreign", "of them belongs to another program", "of them belong to another program"),
        (
            "skipped",
            "of them was skipped, because it was just published",
            "of them were skipped, because they were just published",
        ),
        ("read", "of them was read in full", "of them were read in full"),
    ];
    for (name, one, many) in counted {
        match count(name) {
            0 => {}
            1 => sentences.push(format!("1 {one}.")),
            number => sentences.push(format!("{number} {many}.")),
        }
    }
    sentences
}

/// Whether the sweep did not do all that it found, because that was too much.
pub(super) fn has_refused(sweep: &SweepView) -> bool {
    let count = |name: &str| sweep.report.get(name).and_then(Value::as_u64).unwrap_or_default();
    count("changes_refused") > 0 || count("orphans_refused") > 0
}

/// Who requested a sweep.
pub(super) fn requester(sweep: &SweepView) -> String {
    match sweep.requested_by.as_str() {
        "publisher" => "the publisher, periodically".to_owned(),
        actor => actor.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sweep(report: Value) -> SweepView {
        SweepView {
            id: 1,
            requested_by: "publisher".into(),
            force: false,
            requested_on: "2026-03-29T12:00:00Z".parse().unwrap(),
            started_on: None,
            finished_on: None,
            report,
        }
    }

    #[test]
    fn reports_say_refusals_first() {
        let found = sweep(json!({ "listed": 40, "orphan": 1, "orphans_refused": 12, "missing": 0 }));
        assert_eq!(
            sentences(&found),
            [
                "12 orphans were not deleted, because there were too many.",
                "1 schedule belongs to no workflow.",
                "40 schedules were compared."
            ]
        );
        assert!(has_refused(&found));
        assert!(sentences(&sweep(json!({}))).is_empty());
    }
}
