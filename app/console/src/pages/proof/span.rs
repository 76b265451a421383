//! The verification of a span that a visitor requests: what the parts of the answer found together.

use std::time::{Duration, Instant};

use api_types::verify::{DifferenceKind, DifferenceView, UnjudgedView, VerifyView};
use chrono::{DateTime, Utc};

use super::days::count_differences;
use crate::api::Api;
use crate::failure::Failure;
use crate::query::with_query;

/// Parts of an answer that one page follows at most.
const MOST_PARTS: usize = 20;
/// How long a page follows them; each part may take ten seconds.
const PATIENCE: Duration = Duration::from_secs(15);
/// How many differences a page names.
pub(super) const NAMED: usize = 200;

/// What was found.
#[derive(Clone, Debug)]
pub(super) struct Findings {
    /// The span.
    pub from: DateTime<Utc>,
    pub to: DateTime<Utc>,
    /// Due times and decisions that were compared.
    pub due: u64,
    pub decided: u64,
    /// Decisions whose due times cannot be computed.
    pub unjudged: u64,
    pub unjudged_workflows: Vec<UnjudgedView>,
    pub undecided_workflows: Vec<i64>,
    pub differences: Vec<DifferenceView>,
    /// Times before this were removed meanwhile.
    pub compared_from: DateTime<Utc>,
    /// The version of the zone data.
    pub zone_data: String,
    /// Where the rest begins; none: the complete span is compared.
    pub next_cursor: Option<String>,
}

/// Verifies a span, from a cursor on, as far as one page follows it.
///
/// # Errors
/// Returns the refusal of the API, for example of a span that has not settled.
pub(super) async fn verify(api: &Api, from: &str, to: &str, cursor: &str) -> Result<Findings, Failure> {
    let began = Instant::now();
    let mut found = Findings::from(read_part(api, from, to, cursor).await?);
    for _part in 1..MOST_PARTS {
        let Some(cursor) = found.next_cursor.take() else { break };
        if began.elapsed() > PATIENCE {
            found.next_cursor = Some(cursor);
            break;
        }
        found.add(read_part(api, from, to, &cursor).await?);
    }
    Ok(found)
}

async fn read_part(api: &Api, from: &str, to: &str, cursor: &str) -> Result<VerifyView, Failure> {
    api.get(&with_query("/verify", [("from", Some(from)), ("to", Some(to)), ("cursor", Some(cursor))])).await
}

impl From<VerifyView> for Findings {
    fn from(part: VerifyView) -> Self {
        Self {
            from: part.from,
            to: part.to,
            due: part.due,
            decided: part.decided,
            unjudged: part.unjudged,
            unjudged_workflows: part.unjudged_workflows,
            undecided_workflows: part.undecided_workflows,
            differences: part.differences,
            compared_from: part.compared_from,
            zone_data: part.zone_data,
            next_cursor: part.next_cursor,
        }
    }
}

impl Findings {
    fn add(&mut self, part: VerifyView) {
        self.due += part.due;
        self.decided += part.decided;
        self.unjudged += part.unjudged;
        self.unjudged_workflows.extend(part.unjudged_workflows);
        self.undecided_workflows.extend(part.undecided_workflows);
        self.differences.extend(part.differences);
        self.compared_from = self.compared_from.max(part.compared_from);
        self.next_cursor = part.next_cursor;
        // Each part of a span names them again: slice by slice.
        self.unjudged_workflows.sort_by_key(|one| (one.workflow_id, one.revision));
        self.unjudged_workflows.dedup_by_key(|one| (one.workflow_id, one.revision));
        self.undecided_workflows.sort_unstable();
        self.undecided_workflows.dedup();
    }

    /// Whether the span is correct as far as it was compared, and all of it was.
    pub(super) fn is_proof(&self) -> bool {
        self.differences.is_empty() && self.is_complete()
    }

    /// How many differences there are, in words.
    pub(super) fn difference_words(&self) -> String {
        count_differences(self.differences.len())
    }

    /// Whether nothing was left out.
    pub(super) fn is_complete(&self) -> bool {
        self.unjudged == 0
            && self.unjudged_workflows.is_empty()
            && self.undecided_workflows.is_empty()
            && self.compared_from <= self.from
            && self.next_cursor.is_none()
    }
}

/// A kind of difference in words.
#[must_use]
#[expect(clippy::trivially_copy_pass_by_ref, reason = "templates pass references")]
pub(super) fn words_of(kind: &DifferenceKind) -> &'static str {
    match kind {
        DifferenceKind::Missing => "the time was due, and no decision is recorded",
        DifferenceKind::NotDue => "a decision is recorded, and the time was not due",
        DifferenceKind::NoRun => "the decision says that it ran, and its run does not exist",
        DifferenceKind::TwoRuns => "the time has two automatic runs",
        DifferenceKind::RunWithoutDecision => "no decision names its automatic run",
        DifferenceKind::Contradicted => "decision and run contradict each other",
        DifferenceKind::RanFrozen => "it ran although a freeze was in force",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn part(due: u64, unjudged: u64, undecided: &[i64], cursor: Option<&str>) -> VerifyView {
        serde_json::from_value(json!({
            "from": "2026-03-29T00:00:00Z", "to": "2026-03-30T00:00:00Z", "due": due, "owed": due, "decided": due,
            "unjudged": unjudged, "zone_data": "2026a", "unjudged_workflows": [], "undecided_workflows": undecided,
            "differences": [], "compared_from": "2026-03-29T00:00:00Z", "next_cursor": cursor,
        }))
        .unwrap()
    }

    #[test]
    fn parts_add_up_and_only_all_of_them_are_a_proof() {
        let mut found = Findings::from(part(3, 0, &[], Some("more")));
        assert!(!found.is_proof());
        found.add(part(4, 0, &[], None));
        assert!(found.is_proof());
        assert_eq!((found.due, found.decided), (7, 7));
        for left_out in [part(0, 1, &[], None), part(0, 0, &[7, 7], None)] {
            let mut found = found.clone();
            found.add(left_out);
            assert!(!found.is_proof() && found.undecided_workflows.len() < 2);
        }
    }
}
