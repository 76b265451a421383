//! The runbook is walked: each story breaks a stack, sees an alarm ring, runs the commands of its paragraph, and sees it end.
//!
//! The alarms are read from Terraform and evaluated over the lines that the publisher prints; the rules are evaluated by promtool
//! over scraped pages; the commands are those of docs/runbook.md, word for word.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod alarms;
mod cloudwatch;
mod coverage;
mod dead_letters;
mod edits;
mod instances;
mod ledger_stories;
mod paragraphs;
mod prometheus;
mod runs;
mod scene;
mod server;
mod sweeps;
