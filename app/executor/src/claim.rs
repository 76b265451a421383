//! Step 7 of 7: how an executor claims a run, renews its lease, and releases it.
//!
//! A claim raises `attempt` and writes the end of the lease. A fire may start its run as a claim would, in the statement
//! that decides it (`started.rs`). Each later statement names instance and attempt, so an
//! executor that has lost its run cannot change it. The result of such an attempt is kept as a late result.

use chrono::{DateTime, Utc};
use db::PgConnection;
use ledger::runs::{RunState, StartedRun, Trigger};
use serde_json::Value;
use uuid::Uuid;
use workflows::definition::policies::Overlap;
use workflows::signing::SigningSecret;

use crate::document::Document;

/// A run that this instance executes now.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The run.
    pub id: Uuid,
    /// The workflow.
    pub workflow_id: i64,
    /// The workflow's team, whose share of slots it uses.
    pub team_id: i64,
    /// What started it.
    pub trigger: Trigger,
    /// The scheduled time.
    pub scheduled_time: Option<DateTime<Utc>>,
    /// Which attempt this is; the fence of every later statement.
    pub attempt: i32,
    /// How many attempts have failed.
    pub tries: i32,
    /// How often it continued after its instance was lost.
    pub recoveries: i32,
    /// How often a shutdown interrupted it after its request may have reached the receiver.
    pub cut_off: i32,
    /// The action's document.
    pub action: Document,
    /// Whether the action may use http although no operator permits it: it was saved before https was required.
    pub may_use_http: bool,
    /// The inputs of the action.
    pub inputs: Document,
    /// How many seconds this attempt may take.
    pub timeout_secs: i32,
    /// How many attempts may fail before the run fails.
    pub max_attempts: i32,
    /// The overlap policy, by which other runs may wait for this run's slot.
    pub overlap_policy: Overlap,
    /// After how many failed runs in a row the workflow is paused; `None` = never.
    pub pause_after_failures: Option<i32>,
    /// The hosts that the team may call; empty = every host.
    pub allowed_hosts: Vec<String>,
    /// The secret that signs the team's http actions.
    pub signing_secret: SigningSecret,
    /// Whether a secret that is derived from it for the receiver signs instead.
    pub signs_by_receiver: bool,
    /// The secret before the last rotation.
    pub previous_signing_secret: Option<SigningSecret>,
    /// Until when that one signs, too.
    pub previous_signing_until: Option<DateTime<Utc>>,
    /// Whether a secret that is derived from it for the receiver signs instead.
    pub previous_signs_by_receiver: bool,
    /// The workflow's cron, for the context.
    pub cron_schedule: Option<String>,
    /// The workflow's timezone, for the context.
    pub timezone: Option<String>,
    /// The workflow's end, for the context.
    pub ends_at: Option<DateTime<Utc>>,
    /// The scheduled time of the previous run.
    pub last_scheduled_time: Option<DateTime<Utc>>,
    /// The backfill that created it; `None` = no backfill.
    pub backfill_id: Option<Uuid>,
    /// W3C trace context that its attempts continue.
    pub traceparent: Option<String>,
}

/// One attempt of one run, which every statement about it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The run.
    pub id: Uuid,
    /// The attempt.
    pub attempt: i32,
}

/// The owner and the length of leases.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    /// The instance that executes the runs.
    pub instance: Uuid,
    /// Seconds from the claim or renewal, by the database's clock.
    pub secs: f64,
}

impl Claimed {
    /// The secrets that sign its request now, as they are stored, each with whether one is derived for the receiver.
    pub(super) fn signing_secrets(&self, now: DateTime<Utc>) -> impl Iterator<Item = (&SigningSecret, bool)> {
        let overlaps = self.previous_signing_until.is_some_and(|end| now < end);
        let previous = self.previous_signing_secret.as_ref().filter(|_| overlaps);
        let previous = previous.map(|secret| (secret, self.previous_signs_by_receiver));
        std::iter::once((&self.signing_secret, self.signs_by_receiver)).chain(previous)
    }

    /// The fence of this attempt.
    #[must_use]
    pub fn fence(&self) -> Fence {
        Fence { id: self.id, attempt: self.attempt }
    }
}

/// The outcome of a run.
pub struct Finished<'a> {
    /// A terminal state.
    pub state: RunState,
    /// What the action answered.
    pub result: Option<&'a Value>,
    /// Why it failed.
    pub error: Option<&'a str>,
    /// 1 if this attempt failed, else 0.
    pub failed_tries: i32,
}

/// Whether this attempt still had the run and changed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// It had.
    Ours,
    /// Another attempt has it, or it does not exist; nothing was changed.
    Lost,
}

/// A run that its attempt still has.
#[derive(Clone, Copy, Debug)]
pub struct Beat {
    /// Its id.
    pub id: Uuid,
    /// Its attempt.
    pub attempt: i32,
    /// Whether a cancellation was requested.
    pub is_cancelled: bool,
    /// Whether its lease was renewed; false if another transaction has locked its row.
    pub is_renewed: bool,
}

/// The slots of an instance that a claim may fill.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    /// How many slots the instance has.
    pub total: i64,
    /// How many slots are free.
    pub free: i64,
    /// How many runs the claim takes at most.
    pub most: i64,
    /// How many slots one team may use.
    pub of_a_team: i64,
    /// How many runs of a team all instances execute at once, unless an admin has set its limit; 0 = no limit.
    pub running_of_a_team: i64,
    /// How many slots each team uses now.
    pub used: Vec<(i64, i64)>,
    /// How many slots each workflow uses now.
    pub used_by_workflow: Vec<(i64, i64)>,
}

impl Slots {
    /// An instance with so many slots, all of which are free, and which one team may use.
    #[must_use]
    pub fn all_free(slots: i64) -> Self {
        Self { total: slots, free: slots, most: slots, of_a_team: slots, ..Self::default() }
    }
}

/// Claims accepted runs that are due, for the free slots.
///
/// A team gets at most the rest of its share. The team that uses the fewest slots comes first, within a team the
/// workflow that uses the fewest, and within a workflow the oldest run. The last fifth of the slots is only for teams that
/// use less than an equal share, as it were if one more team had runs; the last twentieth is only for teams that use
/// hardly any. So a team finds a slot at once, however many others have filled theirs.
///
/// The runs of a team that all instances execute have a limit, too. Instances that claim at the same moment do not see each
/// other's claims, so each of them but one may exceed it by what it takes, at most `most`. The limit is then full until the
/// excess has ended.
///
/// An automatic run waits while its workflow is paused or its team is frozen, and does not start after it has expired. Such
/// runs may be many, and a claim must not read them each time: of a frozen team it reads the others by an index of their
/// own, and the job `queue` queues those of a paused workflow.
///
/// A run that had started and was handed over does not continue after `handed_over_until`. A run among `executing` waits
/// until this process has ended its attempt.
///
/// The claim is made at `now`, or at the database's time if that is later.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn claim_due_runs(
    db: &mut PgConnection,
    lease: Lease,
    slots: &Slots,
    executing: &[Uuid],
    now: DateTime<Utc>,
) -> sqlx::Result<Vec<Claimed>> {
    let (teams, used): (Vec<i64>, Vec<i64>) = slots.used.iter().copied().unzip();
    let (workflows, used_by_workflow): (Vec<i64>, Vec<i64>) = slots.used_by_workflow.iter().copied().unzip();
    sqlx::query_as!(
        Claimed,
        r#"
        -- claim runs: a team's backlog is read as far as the team may take from it, never to its end
        WITH RECURSIVE instant AS (
            -- the caller's sample may be behind the time at which a fire was decided just now, and far behind if the
            -- database's clock stepped ahead. An expired run must not start, and the job `timeouts` compares started_on
            -- with the database's time
            SELECT GREATEST($3, cronbox_now()) AS now
        ), teams_with_work (team_id) AS (
            (SELECT team_id FROM runs WHERE state = 'accepted' ORDER BY team_id LIMIT 1)
            UNION ALL
            SELECT (SELECT r.team_id FROM runs r
                     WHERE r.state = 'accepted' AND r.team_id > t.team_id
                     ORDER BY r.team_id
                     LIMIT 1)
              FROM teams_with_work t
             WHERE t.team_id IS NOT NULL
        ), fairness AS (
            -- an equal share for each team that uses slots or has runs, and for one more
            SELECT GREATEST(1, $9 / (1 + count(*))) AS fair_share
              FROM (SELECT team_id FROM teams_with_work WHERE team_id IS NOT NULL
                     UNION
                    SELECT unnest($7::bigint[])) AS busy
        ), shares AS MATERIALIZED (
            -- what a team may still start: of its share of this instance, of the slots that are not kept for others, so
            -- that the backlog of a team that can get none is not read, and of its limit over all instances. As many
            -- running runs are counted as the limit permits, and once; a lost run does not count
            SELECT t.team_id, COALESCE(u.slots, 0) AS used,
                   EXISTS (SELECT FROM freezes f
                            WHERE f.ends_on > (SELECT cronbox_now()) AND f.starts_on <= (SELECT cronbox_now())
                              AND (f.team_id IS NULL OR f.team_id = t.team_id)) AS is_frozen,
                   LEAST($6 - COALESCE(u.slots, 0),
                         GREATEST(LEAST(fairness.fair_share - COALESCE(u.slots, 0), $12 - $9 / 20),
                                  GREATEST(1, $9 / 100) - COALESCE(u.slots, 0), 0)
                         + GREATEST($12 - $9 / 5, 0),
                         CASE WHEN COALESCE(l.running_runs, $13) > 0 THEN
                              COALESCE(l.running_runs, $13)
                              - (SELECT count(*)
                                   FROM (SELECT
                                           FROM runs r
                                          WHERE r.state = 'running' AND r.team_id = t.team_id
                                            AND r.lease_until > (SELECT cronbox_now())
                                               -- the order of the index, so that the scan ends at the limit
                                          ORDER BY r.started_on
                                          LIMIT COALESCE(l.running_runs, $13)) AS running)
                         END) AS room
              FROM teams_with_work t
             CROSS JOIN fairness
              LEFT JOIN unnest($7::bigint[], $8::bigint[]) AS u (team_id, slots) ON u.team_id = t.team_id
              LEFT JOIN team_limits l ON l.team_id = t.team_id
             WHERE t.team_id IS NOT NULL AND COALESCE(u.slots, 0) < $6 AND cronbox_hold() IS NULL
        ), oldest AS MATERIALIZED (
            -- twice as many as wanted, because another instance may be taking the first half; and some more, because the
            -- oldest may all be of one workflow
            SELECT c.id, c.run_after, s.team_id, s.room, s.used,
                   COALESCE(w.slots, 0) + row_number() OVER (PARTITION BY c.workflow_id ORDER BY c.run_after, c.id) AS nth_of_workflow
              FROM shares s
             CROSS JOIN LATERAL (
                -- Postgres executes only one of the two for a team
                (SELECT r.id, r.run_after, r.workflow_id
                   FROM runs r
                  WHERE NOT s.is_frozen AND r.state = 'accepted' AND r.team_id = s.team_id
                        -- not the CTE, because Postgres would not know how many rows of the index are due
                    AND r.run_after <= GREATEST($3, cronbox_now())
                        -- a run whose attempt this process has not ended yet waits until that attempt has ended
                    AND r.id <> ALL($5)
                    AND (r.handed_over_until IS NULL OR r.handed_over_until >= (SELECT now FROM instant))
                        -- a scalar subquery, because a join could read all workflows
                    AND (SELECT CASE WHEN r.trigger NOT IN ('schedule', 'catch_up') THEN w.state <> 'archived'
                                     WHEN w.state = 'active' OR w.pause_until <= (SELECT now FROM instant) THEN
                                          NOT run_never_started(r.attempt, r.handed_over, r.cut_off)
                                          OR unstarted_run_expires_on(r.created_on, r.run_after, w.catch_up_window_secs, w.spread_secs)
                                             >= (SELECT now FROM instant)
                                     ELSE FALSE END
                           FROM workflows w
                          WHERE w.id = r.workflow_id)
                  ORDER BY r.run_after
                  LIMIT GREATEST(32, 2 * LEAST($2, s.room)))
                UNION ALL
                -- in a freeze: what it does not stop, by an index without the others, which may be many
                (SELECT r.id, r.run_after, r.workflow_id
                   FROM runs r
                  WHERE s.is_frozen AND r.state = 'accepted' AND r.team_id = s.team_id
                    AND r.trigger NOT IN ('schedule', 'catch_up')
                    AND r.run_after <= GREATEST($3, cronbox_now())
                    AND r.id <> ALL($5)
                    AND (r.handed_over_until IS NULL OR r.handed_over_until >= (SELECT now FROM instant))
                    AND (SELECT w.state <> 'archived' FROM workflows w WHERE w.id = r.workflow_id)
                  ORDER BY r.run_after
                  LIMIT GREATEST(32, 2 * LEAST($2, s.room)))) AS c
              LEFT JOIN unnest($10::bigint[], $11::bigint[]) AS w (workflow_id, slots) ON w.workflow_id = c.workflow_id
             WHERE s.room > 0
        ), placed AS (
            SELECT id, run_after, team_id, room,
                   used + row_number() OVER (PARTITION BY team_id ORDER BY nth_of_workflow, run_after, id) AS place
              FROM oldest
        ), candidates AS MATERIALIZED (
            SELECT p.id, p.run_after, p.team_id, p.room, p.place
              FROM (SELECT *, row_number() OVER (ORDER BY place, run_after, id) AS nth FROM placed) AS p
             CROSS JOIN fairness
             WHERE p.nth <= $12 - CASE WHEN p.place <= GREATEST(1, $9 / 100) THEN 0
                                       WHEN p.place <= fairness.fair_share THEN $9 / 20
                                       ELSE $9 / 5 END
                OR p.place <= GREATEST(1, $9 / 100)
        ), locked AS MATERIALIZED (
            -- locks the rows one by one in their order, so that LIMIT ends the locking; a join could lock all accepted
            -- runs
            SELECT r.id, c.team_id, c.room, c.place
              FROM (SELECT * FROM candidates ORDER BY place, run_after) AS c
             CROSS JOIN LATERAL (SELECT id FROM runs WHERE id = c.id AND state = 'accepted' FOR UPDATE SKIP LOCKED) AS r
             LIMIT $2
        ), due AS (
            SELECT id
              FROM (SELECT id, room, row_number() OVER (PARTITION BY team_id ORDER BY place) AS nth FROM locked) AS of_team
             WHERE nth <= room
        ), claimed AS (
            UPDATE runs r
               SET state = 'running', attempt = attempt + 1, started_on = (SELECT now FROM instant), handed_over_until = NULL,
                   locked_by = $1, locked_at = cronbox_now(), lease_until = cronbox_now() + make_interval(secs => $4)
              FROM due
             WHERE r.id = due.id AND r.state = 'accepted'
            RETURNING r.*
        )
        SELECT c.id, c.workflow_id, w.team_id, c.trigger AS "trigger: Trigger", c.scheduled_time, c.attempt, c.tries, c.recoveries, c.cut_off,
               w.action AS "action: Document", w.may_use_http, COALESCE(c.inputs, w.starting_inputs) AS "inputs!: Document", w.timeout_secs, w.max_attempts,
               w.overlap_policy AS "overlap_policy: Overlap", w.pause_after_failures, t.allowed_hosts, t.signing_secret AS "signing_secret: SigningSecret",
               t.signs_by_receiver, t.previous_signing_secret AS "previous_signing_secret: SigningSecret",
               t.previous_signing_until, t.previous_signs_by_receiver,
               w.cron_schedule, w.timezone, w.ends_at, c.backfill_id, c.traceparent,
               -- mostly of the last days, so that Postgres plans and locks few partitions. The function reads the others, but not
               -- for a new workflow: only a backfill decides times before it was created
               COALESCE((SELECT max(o.scheduled_time) FROM occurrences o
                          WHERE o.workflow_id = c.workflow_id AND o.scheduled_time < COALESCE(c.scheduled_time, c.started_on)
                            AND o.scheduled_time >= hours_before($3, 168) AND o.scheduled_time < hours_before($3, -24)
                            AND o.run_id IS NOT NULL),
                        CASE WHEN w.created_on < hours_before($3, 144)
                                  OR (SELECT TRUE FROM backfills b WHERE b.workflow_id = c.workflow_id LIMIT 1) THEN
                             last_run_before(c.workflow_id, LEAST(COALESCE(c.scheduled_time, $3), hours_before($3, 168)))
                        END) AS last_scheduled_time
          FROM claimed c JOIN workflows w ON w.id = c.workflow_id JOIN teams t ON t.id = w.team_id
        "#,
        lease.instance,
        slots.most.min(slots.free),
        now,
        lease.secs,
        executing,
        slots.of_a_team,
        &teams,
        &used,
        slots.total,
        &workflows,
        &used_by_workflow,
        slots.free,
        slots.running_of_a_team,
    )
    .fetch_all(db)
    .await
}

/// Reads what the first attempts of runs need that this instance started in the decision of their fires: what a claim
/// would return of them. A run whose workflow was deleted since is missing.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn read_started_runs(db: &mut PgConnection, started: &[StartedRun]) -> sqlx::Result<Vec<Claimed>> {
    let ids: Vec<_> = started.iter().map(|run| run.id).collect();
    let workflows: Vec<_> = started.iter().map(|run| run.workflow_id).collect();
    let times: Vec<_> = started.iter().map(|run| run.scheduled_time).collect();
    let traces: Vec<_> = started.iter().map(|run| run.traceparent.clone()).collect();
    sqlx::query_as!(
        Claimed,
        r#"
        -- read started runs: their rows are known, because the decision wrote them
        SELECT s.id AS "id!", w.id AS workflow_id, w.team_id, 'schedule'::text AS "trigger!: Trigger",
               s.scheduled_time AS "scheduled_time?", 1 AS "attempt!", 0 AS "tries!", 0 AS "recoveries!", 0 AS "cut_off!",
               w.action AS "action: Document", w.may_use_http, w.starting_inputs AS "inputs!: Document", w.timeout_secs, w.max_attempts,
               w.overlap_policy AS "overlap_policy: Overlap", w.pause_after_failures, t.allowed_hosts, t.signing_secret AS "signing_secret: SigningSecret",
               t.signs_by_receiver, t.previous_signing_secret AS "previous_signing_secret: SigningSecret",
               t.previous_signing_until, t.previous_signs_by_receiver,
               w.cron_schedule, w.timezone, w.ends_at, NULL::uuid AS "backfill_id?", s.traceparent,
               -- as in a claim
               COALESCE((SELECT max(o.scheduled_time) FROM occurrences o
                          WHERE o.workflow_id = s.workflow_id AND o.scheduled_time < s.scheduled_time
                            AND o.scheduled_time >= hours_before($4, 168) AND o.scheduled_time < hours_before($4, -24)
                            AND o.run_id IS NOT NULL),
                        CASE WHEN w.created_on < hours_before($4, 144)
                                  OR (SELECT TRUE FROM backfills b WHERE b.workflow_id = s.workflow_id LIMIT 1) THEN
                             last_run_before(s.workflow_id, LEAST(s.scheduled_time, hours_before($4, 168)))
                        END) AS last_scheduled_time
          FROM unnest($1::uuid[], $2::bigint[], $3::timestamptz[], $5::text[]) AS s (id, workflow_id, scheduled_time, traceparent)
          JOIN workflows w ON w.id = s.workflow_id
          JOIN teams t ON t.id = w.team_id
        "#,
        &ids,
        &workflows,
        &times,
        times.iter().max().copied(),
        &traces as &[Option<String>],
    )
    .fetch_all(db)
    .await
}

/// Writes the outcome of a run, if this attempt still has it.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn finish_run(
    db: &mut PgConnection,
    instance: Uuid,
    run: Fence,
    finished: &Finished<'_>,
    now: DateTime<Utc>,
) -> sqlx::Result<Ownership> {
    let done = sqlx::query!(
        r#"
        -- finish a run: only this attempt of this instance, and never twice. A transaction that waits for its row finds
        -- none afterwards; it would fail if an UPDATE moved the row to its partition
        WITH finished AS (
            DELETE FROM runs_live r
             WHERE r.id = $1 AND r.state = 'running' AND r.locked_by = $2 AND r.attempt = $3
                      -- the caller's sample may be behind the time of the claim
            RETURNING r AS run, GREATEST($7, r.started_on) AS finished_on
        ), apart AS (
            -- lists and statistics do not read long results
            INSERT INTO run_results (run_id, result) SELECT $1, $5 FROM finished WHERE octet_length($5::jsonb::text) > 1024
        )
        INSERT INTO runs_ended
        SELECT e.*
          FROM finished
         CROSS JOIN LATERAL ended_run(run, $4, finished_on, CASE WHEN $4 = 'cancelled' THEN COALESCE((run).cancel_reason, $6) ELSE $6 END,
                                      result => CASE WHEN octet_length($5::jsonb::text) <= 1024 THEN $5 END, failed_tries => $8,
                                      took_ms => (EXTRACT(EPOCH FROM finished_on - (run).started_on) * 1000)::bigint) AS e
        "#,
        run.id,
        instance,
        run.attempt,
        finished.state as RunState,
        finished.result,
        finished.error,
        now,
        finished.failed_tries,
    )
    .execute(db)
    .await?;
    Ok(if done.rows_affected() == 0 { Ownership::Lost } else { Ownership::Ours })
}

/// Makes a failed run due for a later attempt, if this attempt still has it and its cancellation was not requested.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn try_run_again(
    db: &mut PgConnection,
    instance: Uuid,
    run: &Claimed,
    error: Option<&str>,
    run_after: DateTime<Utc>,
) -> sqlx::Result<Ownership> {
    let done = sqlx::query!(
        r#"
        -- try a run again: the pause is in the row, so that it outlives this instance
        WITH again AS (
            UPDATE runs
               SET state = 'accepted', tries = tries + 1, run_after = $4, error = $5,
                   locked_by = NULL, locked_at = NULL, lease_until = NULL
             WHERE id = $1 AND state = 'running' AND locked_by = $2 AND attempt = $3 AND cancel_requested_on IS NULL
            RETURNING id, attempt, started_on, error
        )
        INSERT INTO run_attempts (run_id, attempt, started_on, ended_on, outcome, error)
        SELECT id, attempt, started_on, cronbox_now(), 'failed', error FROM again
        "#,
        run.id,
        instance,
        run.attempt,
        run_after,
        error,
    )
    .execute(db)
    .await?;
    Ok(if done.rows_affected() == 0 { Ownership::Lost } else { Ownership::Ours })
}

/// Stores the result of an attempt that had lost its run; the state of the run does not change.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn keep_late_result(db: &mut PgConnection, run: &Claimed, late: &Value) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- keep a late result
        UPDATE runs SET late_result = $2 WHERE id = $1
        "#,
        run.id,
        late,
    )
    .execute(db)
    .await
    .map(drop)
}

/// The state of a run that an attempt could not change.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Its attempt.
    pub attempt: i32,
    /// Its state.
    pub state: RunState,
    /// How many attempts have failed.
    pub tries: i32,
}

/// Reads a run that a statement did not change; `None` if it was deleted, for example with its workflow.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_after_loss(db: &mut PgConnection, id: Uuid) -> sqlx::Result<Option<Found>> {
    sqlx::query_as!(
        Found,
        r#"
        -- find a run that a statement did not change: the reply to our own commit may have been lost
        SELECT attempt, state AS "state: RunState", tries FROM runs WHERE id = $1
        "#,
        id,
    )
    .fetch_optional(db)
    .await
}

/// Renews the leases of these attempts, as far as the instance still has them and no other transaction has locked them.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn renew_leases(db: &mut PgConnection, lease: Lease, executing: &[Fence]) -> sqlx::Result<Vec<Beat>> {
    let (ids, attempts) = columns(executing);
    sqlx::query_as!(
        Beat,
        r#"
        -- renew leases: only of attempts that the process executes; an attempt that is not returned has lost its run. A
        -- row that another transaction has locked is renewed by the next heartbeat, because the other runs must not
        -- wait for it
        WITH executed AS (
            SELECT r.id, r.attempt, r.cancel_requested_on IS NOT NULL AS is_cancelled
              FROM UNNEST($2::uuid[], $3::int[]) AS ours (id, attempt)
              JOIN runs r ON r.id = ours.id AND r.attempt = ours.attempt
             WHERE r.state = 'running' AND r.locked_by = $1
        ), own AS MATERIALIZED (
            SELECT r.id, r.attempt
              FROM UNNEST($2::uuid[], $3::int[]) AS ours (id, attempt)
              JOIN runs r ON r.id = ours.id AND r.attempt = ours.attempt
             WHERE r.state = 'running' AND r.locked_by = $1
               FOR UPDATE OF r SKIP LOCKED
        ), renewed AS (
            UPDATE runs r
               SET locked_at = cronbox_now(), lease_until = cronbox_now() + make_interval(secs => $4)
              FROM own
             WHERE r.id = own.id AND r.attempt = own.attempt AND r.state = 'running' AND r.locked_by = $1
            RETURNING r.id, r.attempt
        )
        SELECT id AS "id!", attempt AS "attempt!", is_cancelled AS "is_cancelled!", renewed.id IS NOT NULL AS "is_renewed!"
          FROM executed LEFT JOIN renewed USING (id, attempt)
        "#,
        lease.instance,
        &ids,
        &attempts,
        lease.secs,
    )
    .fetch_all(db)
    .await
}

/// Ends the leases of attempts that stopped without an outcome, and returns the ones whose row is locked: they are still
/// the instance's. Recovery decides about the others in its next turn.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn release_attempts(db: &mut PgConnection, instance: Uuid, stopped: &[Fence]) -> sqlx::Result<Vec<Fence>> {
    let (ids, attempts) = columns(stopped);
    sqlx::query_as!(
        Fence,
        r#"
        -- release attempts that stopped: their requests may have been sent, so on_lost decides. A row that another
        -- transaction has locked is released by the next heartbeat, because this one must not wait for it
        WITH stopped AS (
            SELECT r.id, r.attempt
              FROM UNNEST($2::uuid[], $3::int[]) AS executed (id, attempt)
              JOIN runs r ON r.id = executed.id AND r.attempt = executed.attempt
             WHERE r.state = 'running' AND r.locked_by = $1
        ), own AS MATERIALIZED (
            SELECT r.id, r.attempt
              FROM stopped JOIN runs r ON r.id = stopped.id AND r.attempt = stopped.attempt
             WHERE r.state = 'running' AND r.locked_by = $1
               FOR UPDATE OF r SKIP LOCKED
        ), released AS (
            UPDATE runs r
               SET locked_by = '00000000-0000-0000-0000-000000000000', lease_until = cronbox_now()
              FROM own
             WHERE r.id = own.id AND r.attempt = own.attempt AND r.state = 'running' AND r.locked_by = $1
            RETURNING r.id, r.attempt
        )
        SELECT id AS "id!", attempt AS "attempt!"
          FROM stopped
         WHERE NOT EXISTS (SELECT FROM released WHERE released.id = stopped.id)
        "#,
        instance,
        &ids,
        &attempts,
    )
    .fetch_all(db)
    .await
}

/// Returns the attempts that the instance has claimed but does not know, because the reply to the claim was lost.
///
/// The caller ensures that no claim of this instance is in progress.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_unknown(db: &mut PgConnection, instance: Uuid, known: &[Fence]) -> sqlx::Result<Vec<Fence>> {
    let (ids, attempts) = columns(known);
    sqlx::query_as!(
        Fence,
        r#"
        -- find unknown claims
        SELECT r.id, r.attempt
          FROM runs r
         WHERE r.state = 'running' AND r.locked_by = $1
           AND NOT EXISTS (SELECT FROM UNNEST($2::uuid[], $3::int[]) AS known (id, attempt)
                            WHERE known.id = r.id AND known.attempt = r.attempt)
        "#,
        instance,
        &ids,
        &attempts,
    )
    .fetch_all(db)
    .await
}

/// The outcome for the runs that an instance has claimed but does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unknown {
    /// How many were handed over.
    pub handed_over: i64,
    /// How many are still the instance's, because another transaction has locked their rows.
    pub locked: i64,
}

/// Hands over the attempts that [`find_unknown`] returned. A run that had started before may continue for `max_age_secs`.
///
/// If the connection breaks, Postgres may execute the statement after later claims; it names attempts, so it changes none
/// of those.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn hand_over_unknown(
    db: &mut PgConnection,
    instance: Uuid,
    unknown: &[Fence],
    max_age_secs: f64,
) -> sqlx::Result<Unknown> {
    let (ids, attempts) = columns(unknown);
    sqlx::query_as!(
        Unknown,
        r#"
        -- hand over unknown claims: no request of these runs was sent, so they are accepted again whatever on_lost
        -- says. A row that another transaction has locked is handed over by the next poll, because the executor must
        -- not wait for it
        WITH unknown AS (
            SELECT r.id, r.attempt
              FROM UNNEST($2::uuid[], $3::int[]) AS claimed (id, attempt)
              JOIN runs r ON r.id = claimed.id AND r.attempt = claimed.attempt
             WHERE r.state = 'running' AND r.locked_by = $1
        ), own AS MATERIALIZED (
            SELECT r.id, r.cancel_requested_on IS NOT NULL AS is_cancelled
              FROM unknown JOIN runs r ON r.id = unknown.id AND r.attempt = unknown.attempt
             WHERE r.state = 'running' AND r.locked_by = $1
               FOR UPDATE OF r SKIP LOCKED
        ), handed_over AS (
            UPDATE runs_live r
               SET state = 'accepted', handed_over = handed_over + 1, locked_by = NULL, locked_at = NULL, lease_until = NULL,
                   handed_over_until = CASE WHEN NOT run_never_started(attempt, handed_over + 1, cut_off) THEN
                                            cronbox_now() + make_interval(secs => $4)
                                       END
              FROM own
             WHERE r.id = own.id AND NOT own.is_cancelled AND r.state = 'running' AND r.locked_by = $1
            RETURNING r.id, r.attempt, r.started_on
        ), attempts AS (
            INSERT INTO run_attempts (run_id, attempt, started_on, ended_on, outcome)
            SELECT id, attempt, started_on, cronbox_now(), 'handed_over' FROM handed_over
        ), cancelled AS (
            DELETE FROM runs_live r USING own
             WHERE r.id = own.id AND own.is_cancelled AND r.state = 'running' AND r.locked_by = $1
            RETURNING r AS run
        ), ended AS (
            INSERT INTO runs_ended
            SELECT e.*
              FROM cancelled
             CROSS JOIN LATERAL ended_run(run, 'cancelled', GREATEST((run).cancel_requested_on, (run).started_on),
                                          COALESCE((run).cancel_reason, 'cancelled_on_request'), more_handed_over => 1) AS e
            RETURNING id
        ), done AS (
            SELECT id FROM handed_over UNION ALL SELECT id FROM ended
        )
        SELECT count(done.id) AS "handed_over!", count(*) - count(done.id) AS "locked!"
          FROM unknown LEFT JOIN done USING (id)
        "#,
        instance,
        &ids,
        &attempts,
        max_age_secs,
    )
    .fetch_one(db)
    .await
}

fn columns(fences: &[Fence]) -> (Vec<Uuid>, Vec<i32>) {
    fences.iter().map(|fence| (fence.id, fence.attempt)).unzip()
}
