//! `cronbox verify`: verifies that every due time was decided once, and has at most one automatic run.

use std::collections::BTreeSet;
use std::process::ExitCode;

use api_types::verify::{DifferenceView, VerifyView};
use chrono::{DateTime, Days, NaiveTime, TimeDelta, Utc};
use clap::Args;
use schedule::Clock;
use serde::Serialize;

use crate::client::{Access, Client, wait_for};
use crate::common::OperatorCommon;
use crate::output::{Cell, Look, Row, View, word};
use crate::times::{Instant, Span as LastSpan, rfc3339};

/// A span that ends so long ago is settled: the app refuses a later end than 7 minutes ago.
const SETTLED: TimeDelta = TimeDelta::minutes(8);

/// The span to verify.
#[derive(Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    common: OperatorCommon,
    /// Start of the span: RFC 3339, yesterday, -24h.
    #[arg(long, value_name = "TIME", requires = "to", allow_hyphen_values = true)]
    from: Option<Instant>,
    /// End of the span, exclusive; at least 7 minutes ago.
    #[arg(long, value_name = "TIME", requires = "from", allow_hyphen_values = true)]
    to: Option<Instant>,
    /// The day before today, in UTC; also without any span. For a job that runs every night.
    #[arg(long, conflicts_with_all = ["from", "to", "last"])]
    yesterday: bool,
    /// The last so many hours or days, up to 8 minutes ago: 24h, 7d.
    #[arg(long, value_name = "SPAN", conflicts_with_all = ["from", "to"])]
    last: Option<LastSpan>,
}

/// The times to verify; `to` is exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    from: DateTime<Utc>,
    to: DateTime<Utc>,
}

impl Verify {
    fn span(&self, now: DateTime<Utc>) -> Span {
        if let Some(last) = self.last {
            let to = now - SETTLED;
            return Span { from: to - last.0, to };
        }
        let midnight = now.with_time(NaiveTime::MIN).single().unwrap_or(now);
        let (from, to) = (self.from.map(|from| from.0), self.to.map(|to| to.0));
        Span { from: from.unwrap_or(midnight - Days::new(1)), to: to.unwrap_or(midnight) }
    }
}

/// The findings of all parts.
#[derive(Default, Serialize)]
struct Found {
    /// Times before this were pruned during the verification.
    compared_from: Option<DateTime<Utc>>,
    decided: u64,
    differences: Vec<DifferenceView>,
    due: u64,
    /// The name of `due` in version 0.1, for one version.
    #[serde(rename = "owed")]
    due_by_its_old_name: u64,
    /// Workflows that are not verified: the watchdog fails to process them.
    undecided_workflows: BTreeSet<i64>,
    unjudged: u64,
    /// Workflows that are not verified: a timezone or cron is unknown.
    unjudged_workflows: BTreeSet<i64>,
    zone_data: String,
}

/// Recomputes the due times and prints the differences of the ledger; exit 1 if there are any, or unverified workflows.
pub(crate) fn verify_ledger(arguments: &Verify) -> anyhow::Result<ExitCode> {
    let span = arguments.span(Clock::System.now());
    let found = wait_for(verified(&arguments.common.access, span))?;
    let rows = found.list_rows();
    arguments.common.output().print_report(&found, "", &rows, &found.verdict(span))?;
    Ok(if rows.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn verified(access: &Access, span: Span) -> anyhow::Result<Found> {
    let client = Client::connect(access).await?;
    let span = [("from", rfc3339(span.from)), ("to", rfc3339(span.to))];
    let (mut found, mut query) = (Found::default(), span.to_vec());
    loop {
        let part: VerifyView = client.read("/verify", &query).await?;
        let next = part.next_cursor.clone();
        found.add_part(part);
        let Some(next) = next else { return Ok(found) };
        query = [span.to_vec(), vec![("cursor", next)]].concat();
    }
}

impl Found {
    fn add_part(&mut self, part: VerifyView) {
        self.due += part.due;
        self.due_by_its_old_name = self.due;
        self.decided += part.decided;
        self.unjudged += part.unjudged;
        self.zone_data = part.zone_data;
        self.differences.extend(part.differences);
        self.unjudged_workflows.extend(part.unjudged_workflows.iter().map(|workflow| workflow.workflow_id));
        self.undecided_workflows.extend(part.undecided_workflows);
        self.compared_from = self.compared_from.max(Some(part.compared_from));
    }

    /// The number of workflows that are not verified.
    fn unproven(&self) -> usize {
        self.unjudged_workflows.union(&self.undecided_workflows).count()
    }

    fn list_rows(&self) -> Vec<Finding<'_>> {
        let differences = self.differences.iter().map(Finding::Difference);
        let unjudged = self.unjudged_workflows.iter().map(|id| Finding::Unproven(*id, UNKNOWN_SCHEDULE));
        let undecided = self.undecided_workflows.iter().map(|id| Finding::Unproven(*id, UNPROCESSED));
        differences.chain(unjudged).chain(undecided).collect()
    }

    /// The lines after the rows.
    fn verdict(&self, span: Span) -> String {
        let verdict = match (self.differences.len(), self.unproven()) {
            (0, 0) => "nothing differs".to_owned(),
            (0, unproven) => format!("{unproven} workflows are not proven"),
            (differences, 0) => format!("{differences} differ"),
            (differences, unproven) => format!("{differences} differ, {unproven} workflows are not proven"),
        };
        let Self { due, decided, unjudged, zone_data, .. } = self;
        let mut text = String::new();
        if let Some(from) = self.compared_from.filter(|from| *from > span.from) {
            text.push_str(&format!("compared from {}: older rows were pruned in between\n", rfc3339(from)));
        }
        text.push_str(&format!("{due} due times, {decided} decided: {verdict} (zone data {zone_data})\n"));
        if *unjudged > 0 {
            let sentence = "of the decisions are of these workflows; whether they were due is unknown";
            text.push_str(&format!("{unjudged} {sentence}\n"));
        }
        text
    }
}

/// Why a workflow is not verified.
const UNKNOWN_SCHEDULE: &str = "a timezone or cron of it is unknown";
const UNPROCESSED: &str = "the watchdog fails to process it; its log has the cause";

/// A difference, or a workflow that is not verified and why.
#[derive(Serialize)]
#[serde(untagged)]
enum Finding<'a> {
    Difference(&'a DifferenceView),
    Unproven(i64, &'static str),
}

impl Row for Finding<'_> {
    const COLUMNS: &'static [&'static str] = &["WORKFLOW", "FINDING", "SCHEDULED", "DECISION", "RUN", "REASON"];
    const WIDE_FROM: usize = 6;

    fn handle(&self) -> String {
        match self {
            Self::Difference(difference) => difference.workflow_id.to_string(),
            Self::Unproven(id, _) => id.to_string(),
        }
    }

    fn cells(&self, view: View) -> Vec<Cell> {
        let empty = || Cell::from("");
        match self {
            Self::Difference(difference) => vec![
                difference.workflow_id.into(),
                Cell::with_look(word(&difference.kind_code), Look::Bad),
                view.time(Some(difference.scheduled_time)),
                Cell::from(word(&difference.decision)),
                Cell::optional(difference.run_id),
                empty(),
            ],
            Self::Unproven(id, why) => {
                vec![
                    Cell::from(id),
                    Cell::with_look("not proven", Look::Bad),
                    empty(),
                    empty(),
                    empty(),
                    Cell::from(why),
                ]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        verify: Verify,
    }

    fn span(words: &[&str], now: &str) -> Result<Span, String> {
        let line =
            Line::try_parse_from([&["verify", "--key", "k"], words].concat()).map_err(|error| error.to_string())?;
        Ok(line.verify.span(now.parse().unwrap()))
    }

    #[test]
    fn yesterday_is_the_day_before_in_utc() {
        let yesterday =
            Span { from: "2026-02-28T00:00:00Z".parse().unwrap(), to: "2026-03-01T00:00:00Z".parse().unwrap() };
        assert_eq!(span(&["--yesterday"], "2026-03-01T00:30:00Z"), Ok(yesterday));
        assert_eq!(span(&["--yesterday"], "2026-03-01T23:59:59Z"), Ok(yesterday));
    }

    #[test]
    fn a_span_has_two_ends_or_is_yesterday() {
        for words in [
            &["--from", "2026-03-01T00:00:00Z"][..],
            &["--yesterday", "--to", "2026-03-01T00:00:00Z"],
            &["--last", "1h", "--yesterday"],
        ] {
            assert!(span(words, "2026-03-02T00:30:00Z").is_err(), "{words:?}");
        }
        let last = Span { from: "2026-03-01T00:22:00Z".parse().unwrap(), to: "2026-03-02T00:22:00Z".parse().unwrap() };
        assert_eq!(span(&["--last", "24h"], "2026-03-02T00:30:00Z"), Ok(last));
        assert_eq!(span(&[], "2026-03-01T00:30:00Z"), span(&["--yesterday"], "2026-03-01T00:30:00Z"));
    }
}
