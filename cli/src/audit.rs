//! `cronbox audit`: lists, exports and verifies the audit log.

mod ends;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use self::ends::End;
use crate::client::{Access, Client, wait_for};
use crate::print::{one_line, pass_json_lines, print_json, print_json_lines, print_text};

/// A page of the API at most.
const PAGE: u64 = 200;
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
    access: Access,
    #[command(flatten)]
    chosen: Chosen,
    /// Show at most this many.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u64,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
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
    access: Access,
    /// Print JSON, with the ends of all chains.
    #[arg(long)]
    json: bool,
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
    let client = Client::connect(&list.access).await?;
    let (mut rows, mut cursor) = (Vec::new(), None::<String>);
    while (rows.len() as u64) < list.limit {
        let mut query = list.chosen.query();
        query.push(("limit", PAGE.min(list.limit - rows.len() as u64).to_string()));
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        let page = client.get("/audit", &query).await?;
        rows.extend(page["items"].as_array().cloned().unwrap_or_default());
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    if list.json {
        return print_json_lines(&rows);
    }
    print_text(&table(&rows))
}

fn table(rows: &[Value]) -> String {
    if rows.is_empty() {
        return "nothing\n".to_owned();
    }
    let mut table = format!(
        "{:<10} {:<21} {:<14} {:<28} {:<24} {:<16} {}\n",
        "ENTRY", "AT", "VERB", "SUBJECT", "ACTOR", "ADDRESS", "NAME"
    );
    for row in rows {
        let text = |field: &str| one_line(row[field].as_str().unwrap_or("-"));
        let at: String = text("at").chars().take(19).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(
            table,
            "{:<10} {:<21} {:<14} {:<28} {:<24} {:<16} {}",
            row["id"],
            format!("{at}Z"),
            text("verb"),
            text("subject"),
            text("actor"),
            text("source_address"),
            text("actor_name"),
        );
    }
    table
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
    let client = Client::connect(&verify.access).await?;
    let stored = verify.ends.as_deref().map_or(Ok(Vec::new()), ends::read_ends)?;
    let mut result = Verified::default();
    let mut query = Vec::new();
    let last = loop {
        let part = client.get("/audit:verify", &query).await?;
        result.add_part(&part);
        match part["next_cursor"].as_str() {
            Some(next) => query = vec![("cursor", next.to_owned())],
            None => break part,
        }
    };
    let replaced = ends::list_replaced(&client, &stored).await?;
    let (through, chain_ends) = (&last["through_id"], &last["ends"]);
    if verify.json {
        let Verified { entries, anchors, differences } = &result;
        print_json(&json!({
            "entries": entries, "anchors": anchors, "through_id": through, "differences": differences,
            "ends": chain_ends, "replaced_ends": replaced,
        }))?;
    } else {
        print_text(&result.describe(through, &replaced))?;
    }
    if !result.differences.is_empty() || !replaced.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    if let Some(file) = &verify.ends {
        ends::write_ends(file, chain_ends)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The sums of all parts of a verification.
#[derive(Default)]
struct Verified {
    entries: u64,
    anchors: u64,
    differences: Vec<Value>,
}

impl Verified {
    fn add_part(&mut self, part: &Value) {
        self.entries += part["entries"].as_u64().unwrap_or_default();
        self.anchors += part["anchors"].as_u64().unwrap_or_default();
        self.differences.extend(part["differences"].as_array().cloned().unwrap_or_default());
    }

    fn describe(&self, through: &Value, replaced: &[End]) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        for difference in &self.differences {
            let team = name_team(difference["team_id"].as_i64());
            let (kind, after) = (difference["kind"].as_str().unwrap_or_default(), &difference["after_id"]);
            let _ = writeln!(text, "{kind:<10} {team}: entries after {after} up to {}", difference["through_id"]);
        }
        for end in replaced {
            let team = name_team(end.team_id);
            let _ = writeln!(text, "{:<10} {team}: block {} is missing or has another hash", "replaced", end.sequence);
        }
        let verdict = match self.differences.len() + replaced.len() {
            0 => "nothing differs".to_owned(),
            1 => "1 difference".to_owned(),
            more => format!("{more} differences"),
        };
        let Self { entries, anchors, .. } = self;
        let _ = writeln!(
            text,
            "{entries} entries up to {through} verified, {anchors} anchors of dropped months: {verdict}"
        );
        text
    }
}

fn name_team(team_id: Option<i64>) -> String {
    team_id.map_or_else(|| "no team".to_owned(), |team| format!("team {team}"))
}
