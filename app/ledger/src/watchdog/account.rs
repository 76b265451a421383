//! Step 7 of 7: one workflow: which of its due times have no decision, and what to decide.

use chrono::{DateTime, TimeDelta, Utc};
use db::{PgConnection, PgPool};
use schedule::WorkflowId;
use schedule::delivery::GRACE;
use workflows::definition::policies::CatchUp;
use workflows::reasons::ReasonCode;
use workflows::{Workflow, try_lock_workflow};

use super::Pass;
use crate::admission::verdict;
use crate::catch_up::{self, Late};
use crate::due_times::{self, DueTime, DueTimes};
use crate::freezes::{Freezes, read_freezes};
use crate::ledger_cursor::{self, Ledger};
use crate::occurrences::span::{self, NotRun};
use crate::occurrences::{Decision, Entry, Recorded, record_occurrence};
use crate::runs::{self, Trigger};
use crate::versions;

/// How many times are enumerated at once: limits memory, and how long the workflow is locked.
const STRETCH: usize = 1_000;
/// How many times of one workflow a pass runs late; the others wait for the next pass.
const CAUGHT_UP_A_PASS: usize = 100;
/// How many stretches of one workflow a pass processes, so that one long backlog does not delay all other workflows.
const STRETCHES_A_PASS: usize = 20;

/// The progress of one workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Account {
    /// Everything that can be decided now is decided, or another transaction has locked the workflow.
    Settled,
    /// More times remain; the next pass continues.
    Open,
}

/// Processes one workflow; does nothing if another transaction has locked it.
pub(super) async fn process_workflow(
    pool: &PgPool,
    id: WorkflowId,
    kept: TimeDelta,
    now: DateTime<Utc>,
    done: &mut Pass,
) -> sqlx::Result<Account> {
    let mut may_run = CAUGHT_UP_A_PASS;
    for nth in 0..STRETCHES_A_PASS {
        let mut tx = db::begin_transaction(pool).await?;
        let Some(workflow) = try_lock_workflow(&mut tx, id, now).await? else { return Ok(Account::Settled) };
        let Some(stretch) = Stretch::read(&mut tx, &workflow, kept, now).await? else { return Ok(Account::Settled) };
        let settled = stretch.settle(&mut tx, may_run).await?;
        tx.commit().await?;
        done.workflows += u64::from(nth == 0);
        may_run -= settled.add_to(done);
        if settled.is_cut_short {
            return Ok(Account::Open);
        }
        if settled.is_last {
            done.unjudged += u64::from(stretch.is_blocked());
            return Ok(Account::Settled);
        }
    }
    Ok(Account::Open)
}

/// The undecided due times of one workflow, or the first of them.
struct Stretch<'a> {
    workflow: &'a Workflow,
    ledger: Ledger,
    due_times: DueTimes,
    freezes: Freezes,
    until: DateTime<Utc>,
    now: DateTime<Utc>,
}

/// The result of a stretch.
#[derive(Default)]
struct Settled {
    missed: u64,
    skipped_paused: u64,
    caught_up: usize,
    /// Whether nothing more can be decided now.
    is_last: bool,
    /// Whether as many times run late as one pass allows, so that more times remain.
    is_cut_short: bool,
}

impl Settled {
    /// Adds the result to the pass; returns how many runs were created.
    fn add_to(&self, done: &mut Pass) -> usize {
        done.missed += self.missed;
        done.skipped_paused += self.skipped_paused;
        done.caught_up += self.caught_up as u64;
        self.caught_up
    }
}

impl<'a> Stretch<'a> {
    /// Returns `None` if another transaction has processed the times meanwhile.
    async fn read(
        tx: &mut PgConnection,
        workflow: &'a Workflow,
        kept: TimeDelta,
        now: DateTime<Utc>,
    ) -> sqlx::Result<Option<Self>> {
        let until = now - GRACE;
        let Some(ledger) = ledger_cursor::find_cursor(tx, workflow.id).await? else { return Ok(None) };
        // A workflow that follows its shard is here because it has an undecided time.
        let is_decided = ledger.watch_at.map_or(ledger.cursor >= until, |watch_at| watch_at > until);
        if is_decided {
            return Ok(None);
        }
        // Older rows would be pruned at once, and an older time never runs, whatever the catch-up window.
        let oldest = now - kept;
        let after = ledger.cursor.max(oldest).min(until);
        let versions = versions::read_over(tx, workflow.id, after, DateTime::<Utc>::MAX_UTC).await?;
        let due_times = due_times::list_due_times(&versions, after, until, STRETCH);
        let freezes = read_freezes(tx, after, now).await?;
        Ok(Some(Self { workflow, ledger, due_times, freezes, until, now }))
    }

    /// Writes the decisions and advances the cursor.
    async fn settle(&self, tx: &mut PgConnection, may_run: usize) -> sqlx::Result<Settled> {
        let mut through = self.due_times.through;
        let is_last = through == self.until || self.is_blocked();
        let mut settled = Settled { is_last, ..Settled::default() };
        let mut not_run = Vec::new();
        for due in self.undecided(tx).await? {
            match self.decide_due_time(tx, &due).await? {
                Late::NotRun(decision, reason) => {
                    not_run.push(NotRun { time: due.time, revision: due.revision, decision, reason });
                }
                Late::Runs if settled.caught_up == may_run => {
                    // No time is lost: the next pass continues just before this time.
                    through = due.time - TimeDelta::microseconds(1);
                    settled.is_cut_short = true;
                    break;
                }
                Late::Runs => settled.caught_up += usize::from(self.catch_up(tx, &due).await?),
            }
        }
        let skipped = not_run.iter().filter(|not_run| not_run.decision == Decision::SkippedPaused).count() as u64;
        let recorded = span::record_not_run(tx, self.workflow.id, &not_run, self.now).await?;
        (settled.missed, settled.skipped_paused) = (recorded.saturating_sub(skipped), skipped);
        self.move_on(tx, through).await?;
        Ok(settled)
    }

    /// Returns the times without a row.
    async fn undecided(&self, tx: &mut PgConnection) -> sqlx::Result<Vec<DueTime>> {
        let times = &self.due_times.times;
        let (Some(first), Some(last)) = (times.first(), times.last()) else { return Ok(Vec::new()) };
        let before = first.time - TimeDelta::microseconds(1);
        let decided = span::list_decided_times(tx, self.workflow.id, before, last.time).await?;
        Ok(times.iter().filter(|due| !decided.contains(&due.time)).copied().collect())
    }

    async fn decide_due_time(&self, tx: &mut PgConnection, due: &DueTime) -> sqlx::Result<Late> {
        let policies = &self.workflow.spec.policies;
        let frozen = (self.workflow.team_id, &self.freezes);
        if let Some(not_run) = catch_up::out_of_reach(policies, due, self.ledger.activated_on, frozen, self.now) {
            return Ok(not_run);
        }
        // Under `skip` only the last time of the stretch can be the newest, so the others need no query.
        let is_last = self.due_times.times.last().is_some_and(|last| last.time == due.time);
        if policies.catch_up == CatchUp::Skip && !is_last {
            return Ok(Late::NotRun(Decision::Missed, ReasonCode::Superseded.into()));
        }
        catch_up::is_wanted(tx, self.workflow, due, self.now).await
    }

    /// Runs a time late, unless another transaction has decided it meanwhile.
    async fn catch_up(&self, tx: &mut PgConnection, due: &DueTime) -> sqlx::Result<bool> {
        let id = workflows::id::make_id(self.now);
        let entry = Entry {
            workflow_id: self.workflow.id,
            time: due.time,
            fire: None,
            decision: Decision::CaughtUp,
            reason: Some(ReasonCode::NoFireInTime.as_str()),
            revision: due.revision,
            run_id: Some(id),
            now: self.now,
        };
        let Recorded::Ours(occurrence) = record_occurrence(tx, &entry).await? else { return Ok(false) };
        let run = runs::New {
            occurrence_id: Some(occurrence),
            scheduled_time: Some(due.time),
            ..runs::New::unscheduled(id, Trigger::CatchUp, self.now)
        };
        verdict::admit_deferred(tx, self.workflow, &run).await?;
        Ok(true)
    }

    /// Advances the cursor. The next pass checks whether the workflow may follow its shard.
    async fn move_on(&self, tx: &mut PgConnection, through: DateTime<Utc>) -> sqlx::Result<()> {
        let next = through + TimeDelta::microseconds(1);
        // If the due times are unknown, the workflow stays due and every pass logs it.
        let watch_at = if self.is_blocked() { self.ledger.watch_at.unwrap_or(next) } else { next };
        ledger_cursor::advance_cursor(tx, self.workflow.id, through, watch_at).await
    }

    /// Whether the version in force cannot be evaluated: its timezone or cron is not known any more.
    fn is_blocked(&self) -> bool {
        self.due_times.is_blocked
    }
}
