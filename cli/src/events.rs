//! `cronbox events`: what changes, as it happens.

use std::process::ExitCode;

use api_types::events::{EventView, EventsView};
use clap::Args;

use crate::client::Client;
use crate::common::Common;
use crate::output::{Cell, Row, View, state, word};
use crate::print::{print_error, print_json_lines, print_text};

/// Which events.
#[derive(Args)]
pub(crate) struct Events {
    #[command(flatten)]
    common: Common,
    /// Go on until Ctrl-C.
    #[arg(long, short = 'f')]
    follow: bool,
    /// Only events of this kind: `edit`, `sync`, `decision` or `run_end`; repeat it for further ones.
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
    /// Continue after this place: the id of an event, or what the command before has printed on standard error. Without it the list
    /// begins now.
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

impl Row for EventView {
    const COLUMNS: &'static [&'static str] =
        &["AT", "KIND", "WHAT", "WORKFLOW", "SCHEDULED", "SUBJECT", "BY", "RUN", "TEAM", "ID"];
    const WIDE_FROM: usize = 7;

    fn handle(&self) -> String {
        self.id.clone()
    }

    fn cells(&self, view: View) -> Vec<Cell> {
        vec![
            view.time(Some(self.at)),
            Cell::from(word(&self.kind)),
            state(&self.what),
            Cell::optional(self.workflow_id),
            view.time(self.scheduled_time),
            Cell::optional(self.subject.as_deref()),
            Cell::optional(self.actor.as_deref()),
            Cell::optional(self.run_id),
            Cell::optional(self.team_id),
            Cell::from(&self.id),
        ]
    }
}

/// Prints events: those since the cursor, or all that come.
pub(crate) async fn print_events(events: &Events) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&events.common.access).await?;
    let mut cursor = events.cursor.clone();
    loop {
        let query: Vec<_> = cursor.iter().map(|cursor| ("cursor", cursor.clone())).collect();
        let page: EventsView = client.read("/events", &query).await?;
        let shown: Vec<EventView> = page.items.into_iter().filter(|event| events.selects(event)).collect();
        let is_quiet = shown.is_empty();
        match events.common.output.is_for_programs() {
            // A stream has a document a line.
            true if events.follow => print_json_lines(&shown)?,
            true => events.common.output.print_rows(&shown)?,
            false if is_quiet && events.follow => ExitCode::SUCCESS,
            false if events.follow => print_text(&shown.iter().map(line).collect::<String>())?,
            false => events.common.output.print_rows(&shown)?,
        };
        let next = Some(page.next_cursor);
        if !events.follow {
            if next != cursor {
                print_error(&format!("continue with --cursor {}", next.as_deref().unwrap_or_default()));
            }
            return Ok(ExitCode::SUCCESS);
        }
        cursor = next;
        tokio::select! {
            () = tokio::time::sleep(std::time::Duration::from_secs(1)) => {}
            _ = tokio::signal::ctrl_c() => return Ok(ExitCode::SUCCESS),
        }
    }
}

impl Events {
    fn selects(&self, event: &EventView) -> bool {
        self.kind.is_empty() || self.kind.contains(&word(&event.kind))
    }
}

fn line(event: &EventView) -> String {
    let object = event.subject.clone().or_else(|| event.workflow_id.map(|id| format!("workflow:{id}")));
    let time = event.scheduled_time.map(crate::times::rfc3339).unwrap_or_default();
    let run = event.run_id.map(|run| run.to_string()).unwrap_or_default();
    let at = crate::times::rfc3339(event.at);
    format!("{at} {:<8} {:<16} {} {time} {run}", word(&event.kind), event.what, object.unwrap_or_default())
        .trim_end()
        .to_owned()
        + "\n"
}
