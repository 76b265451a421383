//! What differs: workflows, repairs of a sweep, and orphans, as rows of one table.

use api_types::drift::{DriftView, DriftedView, OrphanView};
use serde::Serialize;

use crate::output::{Cell, Look, Row, View};

/// A workflow that a sweep has enqueued for repair.
#[derive(Debug, Serialize)]
pub(super) struct Repair {
    /// How its schedule differed.
    pub(super) class: String,
    /// The status of its outbox row.
    pub(super) status: String,
    pub(super) workflow_id: i64,
}

/// A row.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Difference<'a> {
    /// A workflow whose schedule differs.
    Workflow(&'a DriftedView),
    /// A workflow that the last sweep repairs.
    Repair(&'a Repair),
    /// A schedule of no workflow.
    Orphan(&'a OrphanView),
}

/// All rows.
pub(super) fn list_differences<'a>(drift: &'a DriftView, repairs: &'a [Repair]) -> Vec<Difference<'a>> {
    let workflows = drift.workflows.iter().map(Difference::Workflow);
    let repairs = repairs.iter().map(Difference::Repair);
    workflows.chain(repairs).chain(drift.orphans.iter().map(Difference::Orphan)).collect()
}

impl Row for Difference<'_> {
    const COLUMNS: &'static [&'static str] = &["DIFFERENCE", "WORKFLOW", "NAME", "STATE", "SINCE", "ERROR"];
    const WIDE_FROM: usize = 6;

    fn handle(&self) -> String {
        match self {
            Self::Workflow(workflow) => workflow.workflow_id.to_string(),
            Self::Repair(repair) => repair.workflow_id.to_string(),
            Self::Orphan(orphan) => orphan.name.clone(),
        }
    }

    fn cells(&self, view: View) -> Vec<Cell> {
        let empty = || Cell::from("");
        match self {
            Self::Workflow(DriftedView { workflow_id, name, class, last_error }) => vec![
                Cell::with_look(class, Look::Bad),
                Cell::from(workflow_id),
                Cell::optional(name.as_deref()),
                Cell::from("not repaired"),
                empty(),
                Cell::optional(last_error.as_deref()),
            ],
            Self::Repair(Repair { class, status, workflow_id }) => {
                let state = if status == "processed" { "repaired" } else { status };
                vec![Cell::from(class), Cell::from(workflow_id), empty(), Cell::from(state), empty(), empty()]
            }
            Self::Orphan(OrphanView { name, first_seen, .. }) => vec![
                Cell::with_look("orphan", Look::Bad),
                empty(),
                Cell::from(name),
                Cell::from("not deleted"),
                view.time(Some(*first_seen)),
                empty(),
            ],
        }
    }
}
