//! Messages as rows, and as programs read them.

use std::collections::BTreeMap;

use dead_letters::DeadMessage;
use serde::Serialize;

use super::ledger::{Known, second};
use super::text::{error_text, full_text, why_it_stays};
use crate::output::{Cell, Row, View};

/// The width of an error in a line of the table.
const ERROR_WIDTH: usize = 80;

/// A message as programs read it, and as a row.
#[derive(Serialize)]
pub(super) struct MessageView<'a> {
    app: &'a Known,
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<&'a BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    /// Beside an outcome: what is known of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<Option<&'a str>>,
    error: &'a str,
    from: &'static str,
    message_id: &'a str,
    /// What a redrive has done about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    scheduled_time: Option<String>,
    sent_on: Option<String>,
    /// Why a redrive would not delete it.
    stays: Option<String>,
    tries: Option<u64>,
    workflow_id: Option<i64>,
    #[serde(skip)]
    message: &'a DeadMessage,
}

impl<'a> MessageView<'a> {
    /// The view of a list.
    pub(super) fn of(message: &'a DeadMessage, known: &'a Known) -> Self {
        let fire = message.fire();
        Self {
            app: known,
            attributes: None,
            body: None,
            detail: None,
            error: &message.error,
            from: message.from.as_str(),
            message_id: &message.id,
            outcome: None,
            scheduled_time: fire.map(|fire| second(fire.scheduled_time)),
            sent_on: message.sent_on.map(second),
            stays: why_it_stays(message),
            tries: message.tries,
            workflow_id: fire.map(|fire| fire.workflow_id.0),
            message,
        }
    }

    /// The same with the complete content.
    pub(super) fn with_content(self) -> Self {
        Self { attributes: Some(&self.message.attributes), body: Some(&self.message.body), ..self }
    }

    /// The same with what a redrive has done.
    pub(super) fn with_outcome(self, outcome: &'static str, detail: Option<&'a str>) -> Self {
        Self { outcome: Some(outcome), detail: Some(detail), ..self }
    }

    /// Everything, for people.
    pub(super) fn full_text(&self) -> String {
        full_text(self.message, self.app)
    }
}

impl Row for MessageView<'_> {
    const COLUMNS: &'static [&'static str] = &["MESSAGE", "FROM", "WORKFLOW", "TIME", "TRIES", "APP", "ERROR", "SENT"];
    const WIDE_FROM: usize = 7;

    fn handle(&self) -> String {
        self.message_id.to_owned()
    }

    fn cells(&self, view: View) -> Vec<Cell> {
        let time = self.message.fire().map(|fire| fire.scheduled_time);
        vec![
            Cell::from(self.message_id),
            Cell::from(self.from),
            Cell::optional(self.workflow_id),
            view.time(time),
            Cell::optional(self.tries),
            Cell::from(self.app.short_text()),
            Cell::from(error_text(self.message).chars().take(ERROR_WIDTH).collect::<String>()),
            view.time(self.message.sent_on),
        ]
    }
}
