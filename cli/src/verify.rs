//! `cronbox verify`: the proof that every time owed was decided, once.

use std::fmt::Write as _;
use std::process::ExitCode;

use chrono::{DateTime, SecondsFormat, Utc};
use clap::Args;
use serde_json::{Value, json};

use crate::client::{Access, Client, wait_for};
use crate::print;

/// What is verified.
#[derive(Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    access: Access,
    /// From this time on, RFC 3339.
    #[arg(long, value_name = "T")]
    from: DateTime<Utc>,
    /// To just before this time, RFC 3339; at most five minutes ago.
    #[arg(long, value_name = "T")]
    to: DateTime<Utc>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What the parts found together.
#[derive(Default)]
struct Found {
    owed: u64,
    decided: u64,
    unjudged: u64,
    differences: Vec<Value>,
}

/// Recomputes what was owed and prints where the ledger differs; exit 1 if it does.
pub(crate) fn run(arguments: &Verify) -> anyhow::Result<ExitCode> {
    let found = wait_for(verified(arguments))?;
    if arguments.json {
        let Found { owed, decided, unjudged, differences } = &found;
        print::json(&json!({"owed": owed, "decided": decided, "unjudged": unjudged, "differences": differences}))?;
    } else {
        print::text(&table(&found))?;
    }
    Ok(if found.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn verified(arguments: &Verify) -> anyhow::Result<Found> {
    let client = Client::new(&arguments.access)?;
    let time = |time: DateTime<Utc>| time.to_rfc3339_opts(SecondsFormat::AutoSi, true);
    let span = [("from", time(arguments.from)), ("to", time(arguments.to))];
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
        self.owed += count("owed");
        self.decided += count("decided");
        self.unjudged += count("unjudged");
        self.differences.extend(part["differences"].as_array().cloned().unwrap_or_default());
    }
}

fn table(found: &Found) -> String {
    let mut table = String::new();
    for difference in &found.differences {
        let text = |field: &str| difference[field].as_str().unwrap_or_default();
        let (time, kind, decision) = (text("scheduled_time"), text("kind"), text("decision"));
        let workflow = difference["workflow_id"].as_i64().unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = writeln!(table, "workflow {workflow:<10} {time:<22} {kind:<9} {decision}");
    }
    let Found { owed, decided, unjudged, differences } = found;
    let verdict =
        if differences.is_empty() { "nothing differs".to_owned() } else { format!("{} differ", differences.len()) };
    let _ = writeln!(table, "{owed} times owed, {decided} decided: {verdict}");
    if *unjudged > 0 {
        let _ = writeln!(table, "{unjudged} of them nobody can judge: their timezone or cron is not known any more");
    }
    table
}
