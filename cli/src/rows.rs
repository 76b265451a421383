//! What a table shows of each object.

use api_types::backfills::BackfillView;
use api_types::bulk::{BulkItemView, BulkView};
use api_types::freezes::FreezeView;
use api_types::keys::KeyView;
use api_types::occurrences::NamedOccurrenceView;
use api_types::previews::TimeView;
use api_types::results::{RecentRunView, ResultsView};
use api_types::runs::{AttemptView, RunState, RunView};
use api_types::schedules::ScheduleView;
use api_types::teams::ListedTeamView;
use api_types::versions::VersionView;
use api_types::workflows::WorkflowView;

use crate::output::{Cell, Row, View, state, word};
use crate::times::duration;

/// A strip of runs, the newest last: `+` succeeded, `x` failed, `-` ended otherwise.
pub(crate) fn strip(recent: &[RecentRunView]) -> String {
    let mark = |run: &RecentRunView| match run.state {
        RunState::Succeeded => '+',
        RunState::Failed | RunState::TimedOut | RunState::Abandoned => 'x',
        _ => '-',
    };
    recent.iter().rev().map(mark).collect()
}

fn last_state(results: Option<&ResultsView>) -> Cell {
    results.and_then(|results| results.last_run.as_ref()).map_or_else(|| Cell::from(""), |run| state(&run.state))
}

fn percent(rate: Option<f64>) -> String {
    rate.map(|rate| format!("{:.0} %", rate * 100.0)).unwrap_or_default()
}

impl Row for WorkflowView {
    const COLUMNS: &'static [&'static str] = &[
        "ID", "NAME", "STATE", "CRON", "TIMEZONE", "NEXT", "LAST", "RECENT", "SYNC", "SUCCESS", "P95", "TEAM",
        "VERSION", "UPDATED",
    ];
    const WIDE_FROM: usize = 9;

    fn handle(&self) -> String {
        self.id.to_string()
    }

    fn cells(&self, view: View) -> Vec<Cell> {
        let results = self.results.as_ref();
        vec![
            self.id.into(),
            Cell::from(&self.name),
            state(&self.state),
            Cell::optional(self.cron_schedule.as_deref()),
            Cell::optional(self.timezone.as_deref()),
            view.time(self.next_fire_at),
            last_state(results),
            Cell::from(results.map(|results| strip(&results.recent)).unwrap_or_default()),
            state(&self.sync.status),
            Cell::from(percent(results.and_then(|results| results.week.success_rate))),
            Cell::from(duration(results.and_then(|results| results.week.p95_duration_ms))),
            self.team_id.into(),
            self.version.into(),
            view.time(Some(self.updated_on)),
        ]
    }
}

impl Row for ScheduleView {
    const COLUMNS: &'static [&'static str] =
        &["WORKFLOW", "NAME", "CRON", "TIMEZONE", "STATE", "NEXT", "SYNC", "OVERLAP", "CATCH UP", "UPDATED"];
    const WIDE_FROM: usize = 7;

    fn handle(&self) -> String {
        self.workflow_id.to_string()
    }

    fn cells(&self, view: View) -> Vec<Cell> {
        vec![
            self.workflow_id.into(),
            Cell::from(&self.name),
            Cell::from(&self.cron_schedule),
            Cell::from(self.timezone.as_deref().unwrap_or("UTC")),
            state(&self.state),
            view.time(self.next_fire_at),
            state(&self.sync.status),
            Cell::from(word(&self.overlap_policy)),
            Cell::from(word(&self.catch_up_policy)),
            view.time(Some(self.updated_on)),
        ]
    }
}

impl Row for VersionView {
    const COLUMNS: &'static [&'static str] =
        &["REVISION", "FROM", "UNTIL", "CRON", "TIMEZONE", "STATE", "CHANGE", "BY", "ACTOR"];
    const WIDE_FROM: usize = 8;

    fn handle(&self) -> String {
        self.revision.to_string()
    }

    fn cells(&self, view: View) -> Vec<Cell> {
        let who = self.actor_name.as_deref().or(self.actor.as_deref());
        vec![
            self.revision.into(),
            view.time(Some(self.valid_from)),
            view.time(self.valid_until),
            Cell::from(self.cron_schedule.as_deref().unwrap_or("no schedule")),
            Cell::optional(self.timezone.as_deref()),
            state(&self.state),
            Cell::optional(self.verb.as_deref()),
            Cell::optional(who),
            Cell::optional(self.actor.as_deref()),
        ]
    }
}

impl Row for RunView {
    const COLUMNS: &'static [&'static str] =
        &["ID", "WORKFLOW", "STATE", "TRIGGER", "SCHEDULED", "CREATED", "TOOK", "ERROR", "ATTEMPT", "WORKFLOW ID"];
    const WIDE_FROM: usize = 8;

    fn handle(&self) -> String {
        self.id.to_string()
    }

    fn cells(&self, view: View) -> Vec<Cell> {
        vec![
            self.id.into(),
            Cell::from(self.workflow_name.clone().unwrap_or_else(|| self.workflow_id.to_string())),
            state(&self.state),
            Cell::from(word(&self.trigger)),
            view.time(self.scheduled_time),
            view.time(Some(self.created_on)),
            Cell::from(duration(self.duration_ms)),
            Cell::optional(self.error.as_deref()),
            self.attempt.into(),
            self.workflow_id.into(),
        ]
    }
}

impl Row for AttemptView {
    const COLUMNS: &'static [&'static str] = &["ATTEMPT", "STARTED", "ENDED", "OUTCOME", "ERROR"];
    const WIDE_FROM: usize = 5;

    fn handle(&self) -> String {
        self.attempt.to_string()
    }

    fn cells(&self, view: View) -> Vec<Cell> {
        vec![
            self.attempt.into(),
            view.time(self.started_on),
            view.time(self.ended_on),
            state(&self.outcome),
            Cell::optional(self.error.as_deref()),
        ]
    }
}

impl Row for NamedOccurrenceView {
    const COLUMNS: &'static [&'static str] = &["SCHEDULED", "WORKFLOW", "NAME", "DECISION", "REASON", "DECIDED", "RUN"];
    const WIDE_FROM: usize = 7;

    fn handle(&self) -> String {
        self.occurrence.id.to_string()
    }

    fn cells(&self, view: View) -> Vec<Cell> {
        vec![
            view.time(Some(self.occurrence.scheduled_time)),
            self.occurrence.workflow_id.into(),
            Cell::optional(self.workflow_name.as_deref()),
            state(&self.occurrence.decision),
            Cell::optional(self.occurrence.reason.as_deref()),
            view.time(Some(self.occurrence.decided_on)),
            Cell::optional(self.occurrence.run_id),
        ]
    }
}

impl Row for TimeView {
    const COLUMNS: &'static [&'static str] = &["UTC", "LOCAL", "OFFSET", "NOTE"];
    const WIDE_FROM: usize = 4;

    fn handle(&self) -> String {
        crate::times::rfc3339(self.utc)
    }

    fn cells(&self, _view: View) -> Vec<Cell> {
        vec![
            Cell::from(crate::times::rfc3339(self.utc)),
            Cell::from(&self.local),
            Cell::from(&self.offset),
            Cell::optional(self.note.as_deref()),
        ]
    }
}

impl Row for BackfillView {
    const COLUMNS: &'static [&'static str] =
        &["ID", "WORKFLOW", "STATE", "FROM", "TO", "TOTAL", "STARTED", "SUCCEEDED", "FAILED", "ONLY", "BY", "CREATED"];
    const WIDE_FROM: usize = 9;

    fn handle(&self) -> String {
        self.id.to_string()
    }

    fn cells(&self, view: View) -> Vec<Cell> {
        vec![
            self.id.into(),
            self.workflow_id.into(),
            state(&self.state),
            Cell::from(crate::times::rfc3339(self.start)),
            Cell::from(crate::times::rfc3339(self.end)),
            self.total.into(),
            self.started.into(),
            self.succeeded.into(),
            self.failed.into(),
            Cell::from(word(&self.only)),
            Cell::from(&self.requested_by),
            view.time(Some(self.created_on)),
        ]
    }
}

impl Row for BulkView {
    const COLUMNS: &'static [&'static str] =
        &["ID", "VERB", "STATE", "TOTAL", "PROCESSED", "REFUSED", "CREATED", "BY", "TEAM"];
    const WIDE_FROM: usize = 8;

    fn handle(&self) -> String {
        self.id.to_string()
    }

    fn cells(&self, view: View) -> Vec<Cell> {
        vec![
            self.id.into(),
            Cell::from(word(&self.verb)),
            state(&self.state),
            self.total.into(),
            self.processed.into(),
            self.refused.into(),
            view.time(Some(self.created_on)),
            Cell::from(self.actor_name.as_deref().unwrap_or(&self.actor)),
            self.team_id.into(),
        ]
    }
}

impl Row for BulkItemView {
    const COLUMNS: &'static [&'static str] = &["NTH", "WORKFLOW", "OUTCOME", "CODE", "RUN", "NEW RUN"];
    const WIDE_FROM: usize = 6;

    fn handle(&self) -> String {
        self.run_id.map_or_else(|| self.workflow_id.to_string(), |run| run.to_string())
    }

    fn cells(&self, _view: View) -> Vec<Cell> {
        vec![
            self.nth.into(),
            self.workflow_id.into(),
            self.outcome.map_or_else(|| Cell::from("waiting"), |outcome| state(&outcome)),
            Cell::optional(self.code.as_deref()),
            Cell::optional(self.run_id),
            Cell::optional(self.new_run_id),
        ]
    }
}

impl Row for FreezeView {
    const COLUMNS: &'static [&'static str] = &["ID", "TEAM", "STATE", "FROM", "UNTIL", "REASON", "BY", "LIFTED BY"];
    const WIDE_FROM: usize = 7;

    fn handle(&self) -> String {
        self.id.to_string()
    }

    fn cells(&self, view: View) -> Vec<Cell> {
        vec![
            self.id.into(),
            self.team_id.map_or_else(|| Cell::from("all"), Cell::from),
            state(&self.state),
            view.time(Some(self.from)),
            self.until.map_or_else(|| Cell::from("it is lifted"), |until| view.time(Some(until))),
            Cell::from(&self.reason),
            Cell::from(self.actor_name.as_deref().unwrap_or(&self.actor)),
            Cell::optional(self.lifted_by.as_deref()),
        ]
    }
}

impl Row for ListedTeamView {
    const COLUMNS: &'static [&'static str] = &["ID", "NAME", "CREATED"];
    const WIDE_FROM: usize = 3;

    fn handle(&self) -> String {
        self.id.to_string()
    }

    fn cells(&self, view: View) -> Vec<Cell> {
        vec![self.id.into(), Cell::from(&self.name), view.time(Some(self.created_on))]
    }
}

impl Row for KeyView {
    const COLUMNS: &'static [&'static str] =
        &["ID", "PREFIX", "NAME", "KIND", "TEAM", "ROLE", "LAST USED", "EXPIRES", "REVOKED", "SCOPES", "NETWORKS"];
    const WIDE_FROM: usize = 9;

    fn handle(&self) -> String {
        self.id.to_string()
    }

    fn cells(&self, view: View) -> Vec<Cell> {
        let scopes: Vec<String> = self.scopes.iter().map(word).collect();
        vec![
            self.id.into(),
            Cell::from(&self.prefix),
            Cell::from(&self.name),
            Cell::from(word(&self.kind)),
            Cell::optional(self.team_id),
            Cell::from(word(&self.role)),
            view.time(self.last_used_on),
            view.time(self.expires_on),
            view.time(self.revoked_on),
            Cell::from(scopes.join(",")),
            Cell::from(self.allowed_cidrs.as_deref().unwrap_or_default().join(",")),
        ]
    }
}
