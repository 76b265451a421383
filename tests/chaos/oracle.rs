//! The oracle: EventBridge must have exactly the schedules of the table `workflows`. It shares no code with the
//! product.

use std::collections::BTreeMap;

use local::stack::GROUP;
use schedule::WorkflowId;

use crate::setup::Field;

/// The schedule that EventBridge must have for `M H 1 1 *` in this state.
pub(crate) fn expected(cron: &str, state: &str) -> Option<String> {
    let timing = cron.strip_suffix(" 1 1 *")?;
    match state {
        "active" => Some(format!("cron({timing} 1 1 ? *) UTC ENABLED")),
        "paused" => Some(format!("cron({timing} 1 1 ? *) UTC DISABLED")),
        _ => None,
    }
}

impl Field {
    /// Asserts that no schedule is lost, stale or orphaned, that no edit has failed, and that nothing is left to do.
    pub(crate) async fn check_publications(&self, when: &str) {
        let rows: Vec<(i64, String, String)> =
            sqlx::query_as("SELECT id, cron_schedule, state FROM workflows").fetch_all(&self.story.pool).await.unwrap();
        let wanted: BTreeMap<WorkflowId, Option<String>> =
            rows.into_iter().map(|(id, cron, state)| (WorkflowId(id), expected(&cron, &state))).collect();
        for (workflow, promised) in &self.promised {
            assert_eq!(&wanted[workflow], promised, "{when}: a promise about {workflow} was lost");
        }
        for (workflow, wanted) in &wanted {
            let found = self.story.schedule(*workflow);
            assert_eq!(found, wanted.as_deref().unwrap_or("none"), "{when}: {workflow} is lost or stale");
        }
        let expected = wanted.values().flatten().count();
        assert_eq!(self.names().await.len(), expected, "{when}: orphans");
        for (what, query) in UNFINISHED {
            assert_eq!(self.story.count(query).await, 0, "{when}: {what}");
        }
    }

    pub(crate) async fn names(&self) -> Vec<String> {
        let mut pages = self.story.scheduler.list_schedules().group_name(GROUP).into_paginator().send();
        let mut names = Vec::new();
        while let Some(page) = pages.next().await {
            names.extend(page.unwrap().schedules.into_iter().map(|schedule| schedule.name.unwrap_or_default()));
        }
        names
    }
}

const UNFINISHED: [(&str, &str); 3] = [
    ("dead letters", "SELECT COUNT(*) FROM outbox_events WHERE failed_on IS NOT NULL"),
    ("open outbox rows", "SELECT COUNT(*) FROM outbox_events WHERE processed_on IS NULL"),
    (
        "publications that are not at rest",
        "SELECT COUNT(*) FROM publications
          WHERE lease_owner IS NOT NULL OR due_at IS NOT NULL OR verify_at IS NOT NULL
             OR applied_revision IS DISTINCT FROM desired_revision OR error_class IS NOT NULL",
    ),
];
