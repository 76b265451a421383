//! The report of a sweep: what it found and changed.

use std::fmt::Write as _;

use anyhow::Context as _;
use api_types::drift::{DriftView, SweepView};
use serde::Deserialize;

use crate::print::one_line;
use crate::times::rfc3339;

/// The members of a report that are shown. The API has it as an open map, which is empty before the sweep starts.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Report {
    listed: u64,
    missing: u64,
    changed: u64,
    disabled_out_of_band: u64,
    stale_template: u64,
    orphan: u64,
    orphans_refused: u64,
    changes_refused: u64,
    orphans_foreign: u64,
    stopped_by: Option<String>,
}

impl Report {
    /// Reads the report of a sweep.
    ///
    /// # Errors
    /// Fails if a member has another type: a count that is not read must not look like none.
    pub(super) fn of(sweep: &SweepView) -> anyhow::Result<Self> {
        serde_json::from_value(sweep.report.clone())
            .with_context(|| format!("the report of sweep {} has a form that this version does not know", sweep.id))
    }

    /// How many schedules differed.
    pub(super) fn differences(&self) -> u64 {
        self.classes().iter().map(|(_, count)| count).sum()
    }

    /// How many changes and deletions the sweep has refused, because they were too many.
    pub(super) fn refusals(&self) -> u64 {
        self.changes_refused + self.orphans_refused
    }

    /// The counts of differences, in the order in which they are shown.
    fn classes(&self) -> [(&'static str, u64); 5] {
        [
            ("missing", self.missing),
            ("changed", self.changed),
            ("disabled_out_of_band", self.disabled_out_of_band),
            ("stale_template", self.stale_template),
            ("orphan", self.orphan),
        ]
    }

    /// What was not changed, and why.
    fn list_exceptions(&self) -> Vec<String> {
        let sentences = [
            (
                self.orphans_refused,
                "orphans were NOT deleted, because they are too many: check that the database is the right one, then run `cronbox drift check --force`",
            ),
            (
                self.changes_refused,
                "schedules were NOT changed, because they are too many and no raised generation explains it: check that database and configuration are the right ones, then run `cronbox drift check --force`",
            ),
            (self.orphans_foreign, "schedules belong to another database and are never deleted"),
        ];
        let shown = sentences.into_iter().filter(|(count, _)| *count > 0);
        shown.map(|(count, sentence)| format!("{count} {sentence}")).collect()
    }
}

/// The last sweep and the open one, as lines.
///
/// # Errors
/// Fails as [`Report::of`].
pub(super) fn summarise(drift: &DriftView) -> anyhow::Result<String> {
    let mut text = String::new();
    match drift.last.as_ref().and_then(|last| Some((last, last.finished_on?))) {
        None => writeln!(text, "no sweep has finished yet")?,
        Some((last, finished_on)) => {
            let report = Report::of(last)?;
            let (time, listed, found) = (rfc3339(finished_on), report.listed, report.differences());
            writeln!(text, "sweep {} of {time}: {listed} schedules listed, {found} differed", last.id)?;
            for (class, count) in report.classes().iter().filter(|(_, count)| *count > 0) {
                writeln!(text, "  {class:<22} {count:>7}")?;
            }
            for sentence in report.list_exceptions() {
                writeln!(text, "  {sentence}")?;
            }
        }
    }
    if let Some(open) = &drift.open {
        let state = if open.started_on.is_none() { "requested" } else { "under way" };
        writeln!(text, "sweep {} is {state}", open.id)?;
        if let Some(why) = Report::of(open)?.stopped_by {
            writeln!(text, "  it stopped: {}", one_line(&why))?;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn sweep(report: Value) -> SweepView {
        serde_json::from_value(json!({
            "id": 7, "requested_by": "publisher", "force": false, "requested_on": "2026-03-02T08:30:00Z",
            "started_on": "2026-03-02T08:30:01Z", "finished_on": "2026-03-02T08:30:02Z", "report": report,
        }))
        .unwrap()
    }

    #[test]
    fn reports_are_open_maps() {
        let report = Report::of(&sweep(json!({"missing": 2, "orphan": 1, "stopped_by": null, "new": "x"}))).unwrap();
        assert_eq!((report.differences(), report.stopped_by), (3, None));
        assert_eq!(Report::of(&sweep(json!({}))).unwrap().differences(), 0);
        assert!(Report::of(&sweep(json!({"missing": "2"}))).is_err());
    }

    #[test]
    fn exceptions_follow_the_counts() {
        let last = sweep(json!({"listed": 9, "changed": 2, "orphans_foreign": 3}));
        let drift = DriftView { last: Some(last), open: None, workflows: Vec::new(), orphans: Vec::new() };
        let text = summarise(&drift).unwrap();
        assert_eq!(
            text,
            "sweep 7 of 2026-03-02T08:30:02Z: 9 schedules listed, 2 differed\n  changed                      2\n  \
             3 schedules belong to another database and are never deleted\n"
        );
    }
}
