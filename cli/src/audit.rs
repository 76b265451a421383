//! `cronbox audit`: lists, exports and verifies the audit log.

mod ends;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use api_types::audit::{AuditDifferenceView, AuditVerifyView, AuditView, ChainEndView};
use chrono::{DateTime, SecondsFormat, Utc};
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::client::{Access, Client, wait_for};
use crate::common::OperatorCommon;
use crate::listing::{Limit, print_list};
use crate::output::{Cell, Look, Row, View, word};
use crate::print::{one_line, pass_json_lines};

/// How often a follower asks for newer entries.
const FOLLOW_EVERY: Duration = Duration::from_secs(5);

/// The exit code after Ctrl-C, as shells set it.
const INTERRUPTED: u8 = 130;

/// What can be done with the audit log.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// List entries, the newest first.
    Ls(List),
    /// Print all entries as JSON lines, the oldest first.
    Export(Export),
    /// Verify that no entry was changed, removed or inserted; exit 1 with the differences.
    Verify(Verify),
}

/// Which entries.
#[derive(Args)]
struct Chosen {
    /// Only of this object, for example workflow:12.
    #[arg(long)]
    subject: Option<String>,
    /// Only with this verb, for example update.
    #[arg(long)]
    verb: Option<String>,
    /// Only of this actor, or of keys with this name.
    #[arg(long)]
    actor: Option<String>,
    /// Only of this team's objects.
    #[arg(long, value_name = "ID")]
    team: Option<i64>,
    /// From this time on, RFC 3339.
    #[arg(long, value_name = "T")]
    from: Option<DateTime<Utc>>,
    /// Before this time, RFC 3339.
    #[arg(long, value_name = "T")]
    to: Option<DateTime<Utc>>,
}

/// Which entries are listed.
#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    common: OperatorCommon,
    #[command(flatten)]
    chosen: Chosen,
    #[command(flatten)]
    limit: Limit<50>,
}

/// Which entries are exported.
#[derive(Args)]
pub(crate) struct Export {
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    chosen: Chosen,
    /// Continue after this cursor, which the previous export printed on standard error.
    #[arg(long)]
    cursor: Option<String>,
    /// Wait for newer entries instead of ending.
    #[arg(long)]
    follow: bool,
}

/// How the log is verified.
#[derive(Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    common: OperatorCommon,
    /// Compare the chains with the ends that the verification before has written to this file, then write the new ends.
    #[arg(long, value_name = "FILE")]
    ends: Option<PathBuf>,
}

/// Runs a verb.
pub(crate) fn run_audit(verb: &Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Ls(list) => wait_for(list_entries(list)),
        Verb::Export(export) => wait_for(export_entries(export)),
        Verb::Verify(verify) => wait_for(verify_log(verify)),
    }
}

impl Chosen {
    fn query(&self) -> Vec<(&'static str, String)> {
        let time = |time: DateTime<Utc>| time.to_rfc3339_opts(SecondsFormat::AutoSi, true);
        let fields = [
            ("subject", self.subject.clone()),
            ("verb", self.verb.clone()),
            ("actor", self.actor.clone()),
            ("team_id", self.team.map(|team| team.to_string())),
            ("from", self.from.map(time)),
            ("to", self.to.map(time)),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

async fn list_entries(list: &List) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&list.common.access).await?;
    let output = list.common.output();
    print_list::<AuditView>(&client, output, "/audit", &list.chosen.query(), list.limit.most(output)).await
}

impl Row for AuditView {
    const COLUMNS: &'static [&'static str] =
        &["ENTRY", "AT", "VERB", "SUBJECT", "BY", "ACTOR", "ADDRESS", "TEAM", "TRACE"];
    const WIDE_FROM: usize = 7;

    fn handle(&self) -> String {
        self.id.to_string()
    }

    fn cells(&self, view: View) -> Vec<Cell> {
        vec![
            self.id.into(),
            view.time(Some(self.at)),
            Cell::from(&self.verb),
            Cell::from(&self.subject),
            Cell::optional(self.actor_name.as_deref()),
            Cell::from(&self.actor),
            Cell::optional(self.source_address.as_deref()),
            Cell::optional(self.team_id),
            Cell::optional(self.trace_id.as_deref()),
        ]
    }
}

/// Prints entries. At the end the cursor goes to standard error, so that the output has only entries: also after a
/// failure and after Ctrl-C, because a follower ends in no other way.
async fn export_entries(export: &Export) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&export.access).await?;
    let mut cursor = export.cursor.clone();
    let exported = tokio::select! {
        exported = print_pages(&client, export, &mut cursor) => exported.map(|()| ExitCode::SUCCESS),
        interrupted = tokio::signal::ctrl_c() => interrupted.map(|()| INTERRUPTED.into()).map_err(Into::into),
    };
    if let Some(cursor) = cursor {
        eprintln!("cursor: {}", one_line(&cursor));
    }
    exported
}

/// Prints pages until there is nothing newer, or until the reader of standard output has exited. The cursor is after the
/// last page that was written completely.
async fn print_pages(client: &Client, export: &Export, cursor: &mut Option<String>) -> anyhow::Result<()> {
    loop {
        let mut query = export.chosen.query();
        query.extend(cursor.clone().map(|cursor| ("cursor", cursor)));
        let (lines, next) = client.get_lines("/audit:export", &query).await?;
        if pass_json_lines(&lines)? {
            return Ok(());
        }
        let is_end = next == *cursor || next.is_none();
        *cursor = next.or(cursor.take());
        if is_end && !export.follow {
            return Ok(());
        }
        if is_end {
            tokio::time::sleep(FOLLOW_EVERY).await;
        }
    }
}

async fn verify_log(verify: &Verify) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&verify.common.access).await?;
    let stored = verify.ends.as_deref().map_or(Ok(Vec::new()), ends::read_ends)?;
    let mut result = Verified::default();
    let mut query = Vec::new();
    loop {
        let part: AuditVerifyView = client.read("/audit:verify", &query).await?;
        query = part.next_cursor.iter().map(|next| ("cursor", next.clone())).collect();
        result.add_part(part);
        if query.is_empty() {
            break;
        }
    }
    result.replaced_ends = ends::list_replaced(&client, &stored).await?;
    let findings = result.list_findings();
    verify.common.output().print_report(&result, "", &findings, &result.verdict(findings.len()))?;
    if !findings.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    if let Some(file) = &verify.ends {
        ends::write_ends(file, &result.ends)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// All parts of a verification together.
#[derive(Default, Serialize)]
struct Verified {
    anchors: i64,
    differences: Vec<AuditDifferenceView>,
    ends: Vec<ChainEndView>,
    entries: i64,
    replaced_ends: Vec<ChainEndView>,
    through_id: i64,
}

impl Verified {
    fn add_part(&mut self, part: AuditVerifyView) {
        self.entries += part.entries;
        self.anchors += part.anchors;
        self.differences.extend(part.differences);
        // Those of the last part count.
        (self.through_id, self.ends) = (part.through_id, part.ends);
    }

    fn list_findings(&self) -> Vec<Finding<'_>> {
        let differences = self.differences.iter().map(Finding::Difference);
        differences.chain(self.replaced_ends.iter().map(Finding::Replaced)).collect()
    }

    fn verdict(&self, findings: usize) -> String {
        let verdict = match findings {
            0 => "nothing differs".to_owned(),
            1 => "1 difference".to_owned(),
            more => format!("{more} differences"),
        };
        let Self { entries, anchors, through_id, .. } = self;
        format!("{entries} entries up to {through_id} verified, {anchors} anchors of dropped months: {verdict}\n")
    }
}

/// What differs.
#[derive(Serialize)]
#[serde(untagged)]
enum Finding<'a> {
    /// Entries.
    Difference(&'a AuditDifferenceView),
    /// A block that is missing or has another hash than the file says.
    Replaced(&'a ChainEndView),
}

impl Row for Finding<'_> {
    const COLUMNS: &'static [&'static str] = &["DIFFERENCE", "TEAM", "WHERE"];
    const WIDE_FROM: usize = 3;

    fn handle(&self) -> String {
        match self {
            Self::Difference(difference) => difference.through_id.to_string(),
            Self::Replaced(end) => end.sequence.to_string(),
        }
    }

    fn cells(&self, _view: View) -> Vec<Cell> {
        let (kind, team_id, place) = match self {
            Self::Difference(AuditDifferenceView { kind, team_id, after_id, through_id }) => {
                (word(kind), team_id, format!("entries after {after_id} up to {through_id}"))
            }
            Self::Replaced(ChainEndView { team_id, sequence, .. }) => {
                ("replaced".to_owned(), team_id, format!("block {sequence} is missing or has another hash"))
            }
        };
        let team = team_id.map_or_else(|| "none".to_owned(), |team| team.to_string());
        vec![Cell::with_look(kind, Look::Bad), Cell::from(team), Cell::from(place)]
    }
}
