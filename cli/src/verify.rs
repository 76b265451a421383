//! `cronbox verify`: verifies that every due time was decided once, and has at most one automatic run.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::ExitCode;

use chrono::{DateTime, Days, NaiveTime, SecondsFormat, TimeDelta, Utc};
use clap::Args;
use schedule::Clock;
use serde_json::{Value, json};

use crate::client::{Access, Client, wait_for};
use crate::print::{print_json, print_text};
use crate::times::{Instant, Span as LastSpan};

/// A span that ends so long ago is settled: the app refuses a later end than 7 minutes ago.
const SETTLED: TimeDelta = TimeDelta::minutes(8);

/// The span to verify.
#[derive(Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    access: Access,
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
    /// Print JSON.
    #[arg(long)]
    json: bool,
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
#[derive(Default)]
struct Found {
    due: u64,
    decided: u64,
    unjudged: u64,
    zone_data: String,
    /// Workflows that are not verified: a timezone or cron is unknown.
    unjudged_workflows: BTreeSet<i64>,
    /// Workflows that are not verified: the watchdog fails to process them.
    undecided_workflows: BTreeSet<i64>,
    differences: Vec<Value>,
    /// Times before this were pruned during the verification.
    compared_from: Option<DateTime<Utc>>,
}

/// Recomputes the due times and prints the differences of the ledger; exit 1 if there are any, or unverified workflows.
pub(crate) fn verify_ledger(arguments: &Verify) -> anyhow::Result<ExitCode> {
    let span = arguments.span(Clock::System.now());
    let found = wait_for(verified(&arguments.access, span))?;
    if arguments.json {
        let Found { due, decided, unjudged, zone_data, differences, compared_from, .. } = &found;
        let Found { unjudged_workflows, undecided_workflows, .. } = &found;
        print_json(&json!({
            "due": due, "owed": due, "decided": decided, "unjudged": unjudged, "unjudged_workflows": unjudged_workflows,
            "undecided_workflows": undecided_workflows, "zone_data": zone_data, "differences": differences,
            "compared_from": compared_from,
        }))?;
    } else {
        print_text(&table(span, &found))?;
    }
    let is_proven = found.differences.is_empty() && found.unproven() == 0;
    Ok(if is_proven { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn verified(access: &Access, span: Span) -> anyhow::Result<Found> {
    let client = Client::connect(access).await?;
    let time = |time: DateTime<Utc>| time.to_rfc3339_opts(SecondsFormat::AutoSi, true);
    let span = [("from", time(span.from)), ("to", time(span.to))];
    let (mut found, mut query) = (Found::default(), span.to_vec());
    loop {
        let part = client.get("/verify", &query).await?;
        found.add(&part);
        let Some(next) = part["next_cursor"].as_str() else { return Ok(found) };
        query = [span.to_vec(), vec![("cursor", next.to_owned())]].concat();
    }
}

impl Found {
    fn add(&mut self, part: &Value) {
        let count = |field: &str| part[field].as_u64().unwrap_or_default();
        // An app of the previous version has only `owed`.
        self.due += part["due"].as_u64().unwrap_or_else(|| count("owed"));
        self.decided += count("decided");
        self.unjudged += count("unjudged");
        self.zone_data = part["zone_data"].as_str().unwrap_or_default().to_owned();
        self.differences.extend(part["differences"].as_array().cloned().unwrap_or_default());
        let unjudged = part["unjudged_workflows"].as_array().into_iter().flatten();
        self.unjudged_workflows.extend(unjudged.filter_map(|workflow| workflow["workflow_id"].as_i64()));
        let undecided = part["undecided_workflows"].as_array().into_iter().flatten();
        self.undecided_workflows.extend(undecided.filter_map(Value::as_i64));
        let compared_from = part["compared_from"].as_str().and_then(|time| time.parse().ok());
        self.compared_from = self.compared_from.max(compared_from);
    }

    /// The number of workflows that are not verified.
    fn unproven(&self) -> usize {
        self.unjudged_workflows.union(&self.undecided_workflows).count()
    }
}

fn table(span: Span, found: &Found) -> String {
    let mut table = String::new();
    // Writing to a String cannot fail.
    for difference in &found.differences {
        let text = |field: &str| difference[field].as_str().unwrap_or_default();
        // An app of the previous version has only `kind`.
        let kind = difference["kind_code"].as_str().unwrap_or_else(|| text("kind"));
        let time = text("scheduled_time");
        let rest = [text("decision"), text("run_id")].join(" ");
        let workflow = difference["workflow_id"].as_i64().unwrap_or_default();
        let _ = writeln!(table, "workflow {workflow:<10} {time:<22} {kind:<20} {}", rest.trim());
    }
    for workflow in &found.unjudged_workflows {
        let _ = writeln!(table, "workflow {workflow:<10} not proven: a timezone or cron of it is unknown");
    }
    for workflow in &found.undecided_workflows {
        let _ = writeln!(
            table,
            "workflow {workflow:<10} not proven: the watchdog fails to process it; its log has the cause"
        );
    }
    let Found { due, decided, unjudged, zone_data, differences, compared_from, .. } = found;
    if let Some(from) = compared_from.filter(|from| *from > span.from) {
        let from = from.to_rfc3339_opts(SecondsFormat::AutoSi, true);
        let _ = writeln!(table, "compared from {from}: older rows were pruned in between");
    }
    let verdict = match (differences.len(), found.unproven()) {
        (0, 0) => "nothing differs".to_owned(),
        (0, unproven) => format!("{unproven} workflows are not proven"),
        (differences, 0) => format!("{differences} differ"),
        (differences, unproven) => format!("{differences} differ, {unproven} workflows are not proven"),
    };
    let _ = writeln!(table, "{due} due times, {decided} decided: {verdict} (zone data {zone_data})");
    if *unjudged > 0 {
        let _ = writeln!(table, "{unjudged} of the decisions are of these workflows; whether they were due is unknown");
    }
    table
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
