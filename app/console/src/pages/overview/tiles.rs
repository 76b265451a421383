//! What needs a hand: each tile counts a list, and leads to it.

use api_types::dead_letters::DeadLetterView;
use api_types::drift::DriftView;
use api_types::jobs::{JobsView, LastResult};
use api_types::outbox::OutboxView;
use api_types::page::Page;
use api_types::runs::RunView;
use api_types::stats::StatsView;
use api_types::workflows::WorkflowView;
use chrono::{SecondsFormat, TimeDelta};
use serde::de::DeserializeOwned;

use crate::api::Api;
use crate::failure::Failure;
use crate::times;

/// What a tile counts: the words for one, and for another number.
type Words = [&'static str; 2];

/// One thing that needs a hand.
pub(super) struct Tile {
    /// None: the database had no time to count.
    pub(super) count: Option<usize>,
    /// Whether there are more than the API counts.
    pub(super) is_more: bool,
    words: Words,
    pub(super) href: String,
    pub(super) class: &'static str,
}

/// Whose objects are counted: those of one team, or of all teams of the visitor.
pub(super) struct Counting<'a> {
    pub(super) api: &'a Api,
    pub(super) team_id: Option<i64>,
}

/// An edit that waits for longer is shown; an alarm says the same.
const LONG_WAIT: TimeDelta = TimeDelta::minutes(5);
/// How many of the newest failures the page names.
const NAMED_FAILURES: usize = 8;
/// The API counts no more items of a list than this.
const MOST_COUNTED: usize = 10_000;
/// What a run may come to that is no success; in a query.
const FAILED_STATES: &str = "state=failed&state=timed_out&state=abandoned";

impl Counting<'_> {
    /// Counts what the team sees, the most urgent first, and reads the newest failures.
    pub(super) async fn of_team(&self, stats: &StatsView) -> Result<(Vec<Tile>, Vec<RunView>), Failure> {
        // A page of a list passes over a part of its rows only, and may have none although others match: so they are counted.
        let since = (self.api.now() - TimeDelta::hours(24)).to_rfc3339_opts(SecondsFormat::Secs, true);
        let failed = format!("/runs?{FAILED_STATES}&from={since}&limit={NAMED_FAILURES}&total=true");
        let failed: Page<RunView> = self.api.get(&self.within(&failed)).await?;
        let words = ["run failed in 24 hours", "runs failed in 24 hours"];
        let href = self.within(&format!("/runs?{FAILED_STATES}&hours=24"));
        let mut tiles = vec![Tile::of_page(&failed, words, href, "bad")];
        let words = ["workflow whose last run failed", "workflows whose last run failed"];
        tiles.push(self.workflows("failures_in_a_row=1", words, "bad").await?);
        let words = ["workflow that cronbox paused", "workflows that cronbox paused"];
        tiles.push(self.workflows("paused_by=cronbox", words, "bad").await?);
        tiles.push(self.lost_times(stats));
        let words = ["workflow that EventBridge refused", "workflows that EventBridge refused"];
        tiles.push(self.workflows("sync=failed", words, "bad").await?);
        let words = ["workflow that differs in EventBridge", "workflows that differ in EventBridge"];
        tiles.push(self.workflows("sync=drifted", words, "warn").await?);
        let words = ["fire or tick in dead-letter queues", "fires and ticks in dead-letter queues"];
        let letters = self.within("/dead-letters?state=present&limit=100");
        let href = self.within("/delivery/letters?state=present");
        tiles.push(self.listed::<DeadLetterView>(&letters, words, href, "bad").await?);
        Ok((tiles, failed.items))
    }

    /// Counts what belongs to all teams.
    pub(super) async fn of_all(&self) -> Result<Vec<Tile>, Failure> {
        let jobs: JobsView = self.api.get("/jobs").await?;
        let failed = jobs.items.iter().filter(|job| job.last_result == Some(LastResult::Failed)).count();
        let drift: DriftView = self.api.get("/drift").await?;
        let waiting = times::for_machines(&(self.api.now() - LONG_WAIT));
        let waiting = format!("/outbox?status=pending&created_before={waiting}&limit=100");
        let late = [
            "edit that waits for EventBridge for more than 5 minutes",
            "edits that wait for EventBridge for more than 5 minutes",
        ];
        let lost = ["edit that did not reach EventBridge", "edits that did not reach EventBridge"];
        let orphans = ["schedule that no workflow owns", "schedules that no workflow owns"];
        let jobs = ["background job that failed", "background jobs that failed"];
        let page = || "/delivery".to_owned();
        Ok(vec![
            self.listed::<OutboxView>("/outbox?status=failed&limit=100", lost, page(), "bad").await?,
            self.listed::<OutboxView>(&waiting, late, page(), "warn").await?,
            Tile::of_number(drift.orphans.len(), orphans, page(), "warn"),
            Tile::of_number(failed, jobs, page(), "bad"),
        ])
    }

    /// The times that were decided so in 24 hours. They may have been due before, so the list goes back a week.
    fn lost_times(&self, stats: &StatsView) -> Tile {
        let words = ["due time missed or abandoned in 24 hours", "due times missed or abandoned in 24 hours"];
        let href = self.within("/proof/times?decision=missed&decision=abandoned&hours=168");
        let lost = stats.occurrences.missed + stats.occurrences.abandoned;
        Tile::of_number(usize::try_from(lost).unwrap_or_default(), words, href, "bad")
    }

    /// Counts the workflows of a filter, whose name the API and the page share.
    async fn workflows(&self, filter: &str, words: Words, class: &'static str) -> Result<Tile, Failure> {
        let href = self.within(&format!("/workflows?{filter}"));
        self.listed::<WorkflowView>(&format!("{href}&limit=1&total=true"), words, href.clone(), class).await
    }

    async fn listed<T: DeserializeOwned>(
        &self,
        path: &str,
        words: Words,
        href: String,
        class: &'static str,
    ) -> Result<Tile, Failure> {
        match self.api.get::<Page<T>>(path).await {
            Ok(page) => Ok(Tile::of_page(&page, words, href, class)),
            // What is not known is shown, beside the rest of the page.
            Err(failure) if failure.is_too_slow() => {
                Ok(Tile { count: None, is_more: false, words, href, class: "warn" })
            }
            Err(failure) => Err(failure),
        }
    }

    /// A path that has a query, with the team.
    fn within(&self, path: &str) -> String {
        self.team_id.map_or_else(|| path.to_owned(), |team_id| format!("{path}&team_id={team_id}"))
    }
}

impl Tile {
    fn of_number(count: usize, words: Words, href: String, class: &'static str) -> Self {
        Self { count: Some(count), is_more: false, words, href, class }
    }

    fn of_page<T>(page: &Page<T>, words: Words, href: String, class: &'static str) -> Self {
        let (count, is_more) = match page.total {
            Some(total) => (total, total >= MOST_COUNTED),
            None => (page.items.len(), page.next_cursor.is_some()),
        };
        Self { count: Some(count), is_more, words, href, class }
    }

    pub(super) fn words(&self) -> &'static str {
        self.words[usize::from(self.count != Some(1))]
    }
}
