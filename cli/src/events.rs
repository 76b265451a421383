//! `cronbox events`: what changes, as it happens.

mod stream;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use api_types::events::{EventView, EventsView};
use clap::Args;
use serde_json::Value;

use self::stream::EventStream;
use crate::client::Client;
use crate::common::Common;
use crate::output::{Cell, Row, View, state, word};
use crate::print::{print_error, print_json_lines, print_text};

/// The route of the events.
const PATH: &str = "/events";
/// The pause between two streams.
const AGAIN: Duration = Duration::from_secs(1);

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
    if events.follow {
        return tokio::select! {
            ended = events.follow_on(&client) => ended,
            _ = tokio::signal::ctrl_c() => Ok(ExitCode::SUCCESS),
        };
    }
    let page = read_page(&client, events.cursor.as_deref()).await?;
    let shown: Vec<EventView> = page.items.into_iter().filter(|event| events.selects(event)).collect();
    events.common.output.print_rows(&shown)?;
    if events.cursor.as_ref() != Some(&page.next_cursor) {
        print_error(&format!("continue with --cursor {}", page.next_cursor));
    }
    Ok(ExitCode::SUCCESS)
}

async fn read_page(client: &Client, cursor: Option<&str>) -> anyhow::Result<EventsView> {
    let query: Vec<_> = cursor.iter().map(|cursor| ("cursor", (*cursor).to_owned())).collect();
    client.read(PATH, &query).await
}

impl Events {
    /// Prints what comes, for ever. Before each stream it reads a page, which says where to begin, what came since the stream
    /// before, and why the app refuses the caller.
    async fn follow_on(&self, client: &Client) -> anyhow::Result<ExitCode> {
        let mut cursor = self.cursor.clone();
        loop {
            let page = read_page(client, cursor.as_deref()).await?;
            self.print_lines(page.items)?;
            let mut place = page.next_cursor;
            // If the app or a proxy opens no stream, the pages go on.
            if let Some(response) = client.open_stream(PATH, &place).await {
                self.print_stream(client, EventStream::new(response), &mut place).await?;
            }
            cursor = Some(place);
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Prints the events of a stream until it ends; `place` is then behind the last one.
    async fn print_stream(&self, client: &Client, mut stream: EventStream, place: &mut String) -> anyhow::Result<()> {
        while let Some(message) = stream.next().await {
            match message.name.as_str() {
                // Events after the place are not kept any more: the next page refuses it, and says so.
                "reset" => return Ok(()),
                "" | "ready" => {}
                _ => {
                    let event: Value =
                        serde_json::from_str(&message.data).context("an event of the stream is no JSON")?;
                    self.print_lines(vec![client.understand(event)?])?;
                }
            }
            if !message.id.is_empty() {
                *place = message.id;
            }
        }
        Ok(())
    }

    /// Prints events, each in a line.
    fn print_lines(&self, items: Vec<EventView>) -> anyhow::Result<ExitCode> {
        let shown: Vec<EventView> = items.into_iter().filter(|event| self.selects(event)).collect();
        if self.common.output.is_for_programs() {
            return print_json_lines(&shown);
        }
        print_text(&shown.iter().map(line).collect::<String>())
    }

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
