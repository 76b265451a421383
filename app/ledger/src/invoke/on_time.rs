//! Step 7 of 7: the fast path of fires: four statements for any number of fires, and up to four more if previous runs
//! have not ended.
//!
//! A fire takes it if it is on time and due by the version in force, and if its workflow is active and not locked. The
//! rule of the overlap policy is that of a single fire (`admission/verdict.rs`). `cases.rs` handles all others: a fire
//! that replaces previous runs, one before which queued runs must start, and under `run_all` also a fire after whose
//! time a later one became due.
//!
//! If the executor of this instance offers slots, the runs start at once, and nothing claims them.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use db::failpoint::pass_point;
use db::{KeptConnection, PgConnection};
use schedule::delivery::GRACE;
use schedule::{Cron, Fire, Moment, Timezone, WorkflowId};
use workflows::definition::policies::{CatchUp, Overlap, Policies};
use workflows::definition::spec::Timing;
use workflows::failpoint::Point;
use workflows::reasons::ReasonCode;
use workflows::{CLOCK_SKEW, State};

use super::Answer;
use super::record::{self, FireDecision, Outcome, RecordedFires};
use crate::admission::load::{self, Load};
use crate::admission::verdict::{self, Place, Verdict};
use crate::freezes::{Freezes, read_freezes};
use crate::runs::{OfferedSlots, RunState, StartedRuns, Taken, TakenSlots, Trigger};
use crate::spread;
use crate::versions::{DueCheck, Version};

/// The outcome of a batch.
#[derive(Default)]
pub(super) struct Decided {
    /// The answers, by workflow; the other fires are to be decided one by one.
    pub(super) answers: HashMap<i64, Answer>,
    /// Times whose runs were replaced, so that they have no run any more.
    pub(super) replaced: Vec<(WorkflowId, DateTime<Utc>)>,
    /// The runs that the executor of this instance starts now.
    pub(super) started: Option<StartedRuns>,
}

/// Decides the fires that take the fast path, each of another workflow, and commits.
pub(super) async fn decide_fires<'a>(
    db: &mut KeptConnection,
    slots: &OfferedSlots,
    fires: impl Iterator<Item = &'a Fire>,
) -> sqlx::Result<Decided> {
    let mut fires: Vec<_> = fires.collect();
    fires.sort_unstable_by_key(|fire| fire.workflow_id.0);
    let mut tx = db.begin().await?;
    let locked = lock_workflows(&mut tx, &fires).await?;
    fires.retain(|fire| locked.binary_search(&fire.workflow_id.0).is_ok());
    let candidates = read(&mut tx, &fires).await?;
    let eligible = fires.iter().filter_map(|fire| on_time(fire, candidates.get(&fire.workflow_id.0)?));
    let (mut decisions, replaced) = admit(&mut tx, eligible.collect()).await?;
    if decisions.is_empty() {
        tx.rollback().await?;
        return Ok(Decided::default());
    }
    // From here on: whatever ends this function without a commit, the executor must look for runs that it does not know.
    let slots = take_slots(slots, &mut decisions);
    let requested = Moment::now();
    let lease = slots.as_ref().map(TakenSlots::lease);
    let RecordedFires { answers, started } = record::record_fires(&mut tx, &decisions, lease).await?;
    if answers.values().any(|answer| answer.new_run().is_some()) {
        pass_point(Point::I1);
    }
    db.commit(tx).await?;
    let started = slots.map(|slots| StartedRuns { runs: started, requested, slots });
    Ok(Decided { answers, replaced, started })
}

/// Takes slots for the runs that may start at once, as far as the executor of this instance offers them.
fn take_slots(offered: &OfferedSlots, decisions: &mut [FireDecision<'_>]) -> Option<TakenSlots> {
    let mut slots = offered.begin_start()?;
    for one in decisions {
        let may_start = one.may_start && one.outcome == Outcome::Runs(RunState::Accepted);
        if may_start && slots.take_slot(one.team_id) == Taken::Slot {
            one.outcome = Outcome::Runs(RunState::Running);
        }
    }
    slots.has_slots().then_some(slots)
}

fn is_on_time(fire: &Fire, now: DateTime<Utc>) -> bool {
    (-CLOCK_SKEW..=GRACE).contains(&(now - fire.scheduled_time))
}

/// Locks the workflows that are not locked, in the order of their ids.
async fn lock_workflows(tx: &mut PgConnection, fires: &[&Fire]) -> sqlx::Result<Vec<i64>> {
    let ids: Vec<_> = fires.iter().map(|fire| fire.workflow_id.0).collect();
    sqlx::query_scalar!(
        r#"
        -- lock the workflows of a batch: it waits for no lock, so two batches cannot block each other
        SELECT id FROM workflows WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
        "#,
        &ids,
    )
    .fetch_all(tx)
    .await
}

/// The state of a workflow that may start a run at once.
struct Candidate {
    /// The database's time under the locks: a fire may have waited for a connection, and may be late by now.
    now: DateTime<Utc>,
    version: Version,
    team_id: i64,
    policies: Policies,
    /// Whether a run is active or waits.
    has_unfinished_run: bool,
    /// Whether nothing but a claim may start its runs: the database waits for its acceptance, or an admin has limited
    /// the running runs of the team.
    needs_claim: bool,
    /// Before this instant its run does not start: it is later than now if a freeze is in force that ends before its time.
    earliest_start: DateTime<Utc>,
    /// The text of a freeze that is or was in force since its time, or begins by then.
    frozen: Option<String>,
}

/// Reads the states under the locks; a later statement than the one that took them sees their newest rows.
async fn read(tx: &mut PgConnection, fires: &[&Fire]) -> sqlx::Result<HashMap<i64, Candidate>> {
    let (ids, times): (Vec<_>, Vec<_>) = fires.iter().map(|fire| (fire.workflow_id.0, fire.scheduled_time)).unzip();
    let (oldest, newest) = (times.iter().min().copied(), times.iter().max().copied());
    let rows = sqlx::query!(
        r#"
        -- workflows that may start at once: active, and not decided yet; and whether a run is active or waits. Both are
        -- subqueries of one row, because NOT EXISTS becomes a join, and a plan that Postgres made in a quiet minute then
        -- reads every active run for each batch. $3 and $4 are the bounds of all times, so that Postgres plans only the
        -- partitions of their days. A fire on time arrives at most CLOCK_SKEW early, so a freeze that ended before $5
        -- concerns none
        SELECT (SELECT cronbox_now()) AS "now!", w.id, w.team_id, w.catch_up_policy AS "catch_up: CatchUp", w.spread_secs, w.catch_up_window_secs, v.revision, v.valid_from, v.cron, v.timezone,
               v.starts_at, v.ends_at, w.overlap_policy AS "overlap: Overlap", w.max_concurrent,
               (SELECT TRUE FROM runs r
                 WHERE r.workflow_id = f.id AND r.state IN ('accepted', 'queued', 'running') LIMIT 1) IS NOT NULL AS "has_unfinished_run!",
               (SELECT cronbox_hold()) IS NOT NULL
               OR COALESCE((SELECT l.running_runs FROM team_limits l WHERE l.team_id = w.team_id), 0) > 0 AS "needs_claim!",
               (SELECT TRUE FROM freezes WHERE ends_on > $5 LIMIT 1) IS NOT NULL AS "has_freezes!"
          FROM unnest($1::bigint[], $2::timestamptz[]) AS f (id, time)
          JOIN workflows w ON w.id = f.id
         CROSS JOIN LATERAL (SELECT * FROM schedule_versions s
                              WHERE s.workflow_id = f.id AND s.valid_from <= f.time
                              ORDER BY s.valid_from DESC
                              LIMIT 1) AS v
         WHERE w.state = 'active' AND v.state = 'active'
           AND (SELECT TRUE FROM occurrences o WHERE o.workflow_id = f.id AND o.scheduled_time = f.time
                   AND o.scheduled_time BETWEEN $3 AND $4 LIMIT 1) IS NULL
        "#,
        &ids,
        &times,
        oldest,
        newest,
        oldest.map(|time| time - CLOCK_SKEW),
    )
    .fetch_all(&mut *tx)
    .await?;
    let times_of: HashMap<i64, DateTime<Utc>> = ids.into_iter().zip(times).collect();
    // Nearly always no freeze is open, and then this costs no statement.
    let freezes = match rows.first().filter(|row| row.has_freezes) {
        Some(row) => {
            let (oldest, newest) = (oldest.unwrap_or(row.now), newest.unwrap_or(row.now));
            read_freezes(tx, oldest.min(row.now), newest.max(row.now)).await?
        }
        None => Freezes::default(),
    };
    let candidates = rows.into_iter().map(|row| {
        let version = Version {
            revision: row.revision,
            valid_from: row.valid_from,
            // A fire on time does not need the end of its version.
            ended_on: None,
            ended_by: None,
            timing: Timing { cron: row.cron, timezone: row.timezone, starts_at: row.starts_at, ends_at: row.ends_at },
            state: State::Active,
        };
        // The admission of a fire depends on no other policy.
        let policies = Policies {
            overlap: row.overlap,
            max_concurrent: row.max_concurrent,
            catch_up: row.catch_up,
            catch_up_window_secs: row.catch_up_window_secs,
            spread_secs: row.spread_secs,
            ..Policies::DEFAULT
        };
        let (now, team_id, has_unfinished_run) = (row.now, row.team_id, row.has_unfinished_run);
        let due = times_of.get(&row.id).copied().unwrap_or(now);
        let frozen = freezes.reason_over(team_id, due, now).map(str::to_owned);
        let earliest_start = freezes.earliest_start(team_id, due, now);
        let needs_claim = row.needs_claim;
        let candidate =
            Candidate { now, version, team_id, policies, has_unfinished_run, needs_claim, earliest_start, frozen };
        (row.id, candidate)
    });
    Ok(candidates.collect())
}

/// A fire that takes the fast path as far as its time is concerned.
struct OnTime<'a> {
    fire: &'a Fire,
    candidate: &'a Candidate,
    run_after: DateTime<Utc>,
}

/// Returns `None` if the fire does not take the fast path after all.
fn on_time<'a>(fire: &'a Fire, candidate: &'a Candidate) -> Option<OnTime<'a>> {
    let (now, policies) = (candidate.now, &candidate.policies);
    let is_due = candidate.version.check_due(fire.scheduled_time) == DueCheck::Due;
    // The catch-up window may be shorter than the grace.
    let is_within = (now - fire.scheduled_time).num_milliseconds() <= i64::from(policies.catch_up_window_secs) * 1000;
    let timing = candidate.version.timing.parsed_at(fire.scheduled_time).ok().flatten();
    let earliest = candidate.earliest_start;
    let run_after = spread::run_after(fire.workflow_id, policies.spread_secs, timing, fire.scheduled_time, earliest);
    let is_fast_path = is_on_time(fire, now) && is_due && is_within && !is_overtaken(fire, candidate, timing);
    is_fast_path.then_some(OnTime { fire, candidate, run_after })
}

/// Whether a retried fire may have to be deferred, because a later time has become due since.
fn is_overtaken(fire: &Fire, candidate: &Candidate, timing: Option<(Cron, Timezone)>) -> bool {
    // Nearly all fires are of this minute, so no later time can be due.
    if candidate.policies.catch_up != CatchUp::RunAll || candidate.now - fire.scheduled_time < TimeDelta::minutes(1) {
        return false;
    }
    let later = timing.and_then(|(cron, timezone)| cron.next_after(fire.scheduled_time, timezone));
    later.is_some_and(|later| later <= candidate.now)
}

/// Decides which fires start, wait or are skipped, by the rule of a single fire. Leaves out those that only a transaction
/// of their own can decide.
async fn admit<'a>(
    tx: &mut PgConnection,
    fires: Vec<OnTime<'a>>,
) -> sqlx::Result<(Vec<FireDecision<'a>>, Vec<(WorkflowId, DateTime<Utc>)>)> {
    let (frozen, fires): (Vec<_>, Vec<_>) = fires.into_iter().partition(|one| one.candidate.frozen.is_some());
    let busy: Vec<i64> =
        fires.iter().filter(|one| one.candidate.has_unfinished_run).map(|one| one.fire.workflow_id.0).collect();
    let loads = if busy.is_empty() { HashMap::new() } else { load::read_loads(tx, &busy).await? };
    let evaluated: Vec<_> = fires
        .into_iter()
        .filter_map(|one| {
            let load = loads.get(&one.fire.workflow_id.0).copied().unwrap_or_default();
            Some((evaluate(load, &one.candidate.policies)?, one))
        })
        .collect();
    let replacing: Vec<_> = evaluated
        .iter()
        .filter(|(admission, _)| *admission == Admission::Replaces)
        .map(|(_, one)| (one.fire.workflow_id, one.fire.scheduled_time))
        .collect();
    let now = evaluated.first().map(|(_, one)| one.candidate.now);
    let mut places = match now {
        Some(now) => verdict::take_waiting_places(tx, &replacing, now).await?,
        None => HashMap::new(),
    };
    let mut decisions: Vec<_> = frozen.into_iter().filter_map(OnTime::decided_frozen).collect();
    let mut replaced = Vec::new();
    for (admission, one) in evaluated {
        let outcome = match admission {
            Admission::Accepted => Outcome::Runs(RunState::Accepted),
            Admission::Queued => Outcome::Runs(RunState::Queued),
            Admission::Skipped(reason) => Outcome::Skipped(reason),
            Admission::Replaces => match places.remove(&one.fire.workflow_id.0) {
                Some(Place::Replaces(times)) => {
                    replaced.extend(times.into_iter().map(|time| (one.fire.workflow_id, time)));
                    Outcome::Runs(RunState::Queued)
                }
                Some(Place::NewerWaits) => Outcome::Skipped(ReasonCode::PredecessorNotStarted),
                None => continue,
            },
        };
        decisions.push(one.decided(outcome));
    }
    Ok((decisions, replaced))
}

/// What the overlap policy says of a fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Accepted,
    Queued,
    /// It waits in place of an older fire, under `skip`.
    Replaces,
    Skipped(ReasonCode),
}

/// Returns `None` if only a transaction of its own can decide the fire.
fn evaluate(load: Load, policies: &Policies) -> Option<Admission> {
    if load.needs_promotion(policies) {
        return None;
    }
    match load.evaluate(policies, Trigger::Schedule) {
        Verdict::Start => Some(Admission::Accepted),
        Verdict::Queue if policies.overlap == Overlap::Skip && load.waiting_unstarted > 0 => Some(Admission::Replaces),
        Verdict::Queue => Some(Admission::Queued),
        Verdict::Skip(reason) => Some(Admission::Skipped(reason)),
        Verdict::Replace(_) => None,
    }
}

impl<'a> OnTime<'a> {
    fn decided_frozen(self) -> Option<FireDecision<'a>> {
        let text = self.candidate.frozen.clone()?;
        Some(self.decided(Outcome::Frozen(text)))
    }

    fn decided(self, outcome: Outcome) -> FireDecision<'a> {
        let Self { fire, candidate, run_after } = self;
        let (team_id, revision, now) = (candidate.team_id, candidate.version.revision, candidate.now);
        // As a claim: a run that is spread waits until it is due. It cannot have expired, because its fire is on time.
        let may_start = !candidate.needs_claim && run_after <= now;
        FireDecision { fire, team_id, revision, run_after, now, may_start, outcome }
    }
}
