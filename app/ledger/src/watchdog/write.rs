//! Step 7 of 7: writes the decisions of a batch, and how far its ledgers are.

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use uuid::Uuid;
use workflows::State;
use workflows::reasons::ReasonCode;

use super::member::Member;
use super::verdicts::CaughtUp;
use crate::due_times;
use crate::occurrences::span::{self, NotRun};

/// Records the times of a batch that do not run.
pub(super) async fn record_not_run(
    tx: &mut PgConnection,
    not_run: &[(i64, NotRun)],
    now: DateTime<Utc>,
) -> sqlx::Result<()> {
    if not_run.is_empty() {
        return Ok(());
    }
    let (workflows, times): (Vec<_>, Vec<_>) = not_run.iter().cloned().unzip();
    span::record_not_run_of_many(tx, &workflows, &times, now).await.map(drop)
}

/// Records the times of a batch that run late, with their runs.
pub(super) async fn record_caught_up(
    tx: &mut PgConnection,
    caught_up: &[CaughtUp],
    now: DateTime<Utc>,
) -> sqlx::Result<()> {
    if caught_up.is_empty() {
        return Ok(());
    }
    let all = caught_up.iter();
    let occurrences: Vec<Uuid> = all.clone().map(|_| workflows::id::make_id(now)).collect();
    let runs: Vec<Uuid> = all.clone().map(|_| workflows::id::make_id(now)).collect();
    let workflows: Vec<_> = all.clone().map(|one| one.workflow_id).collect();
    let teams: Vec<_> = all.clone().map(|one| one.team_id).collect();
    let times: Vec<_> = all.clone().map(|one| one.time).collect();
    let revisions: Vec<_> = all.clone().map(|one| one.revision).collect();
    let states: Vec<_> = all.map(|one| one.state.in_words().to_owned()).collect();
    sqlx::query!(
        r#"
        -- catch up a batch: each run with its occurrence, or neither
        WITH given AS MATERIALIZED (
            SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], $5::timestamptz[], $6::bigint[], $7::text[])
                AS given (id, run_id, workflow_id, team_id, time, revision, state)
        ), recorded AS (
            INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, reason, revision, run_id,
                                     lateness_s, decided_on, created_on, updated_on)
            SELECT id, workflow_id, time, 'caught_up', $8, revision, run_id,
                   trunc(EXTRACT(EPOCH FROM $9::timestamptz - time))::bigint, $9, $9, $9
              FROM given
             ORDER BY workflow_id, time
            ON CONFLICT ON CONSTRAINT occurrences_workflow_id_scheduled_time_key DO NOTHING
            RETURNING id
        )
        INSERT INTO runs (id, workflow_id, occurrence_id, trigger, state, scheduled_time, run_after, created_on, team_id)
        SELECT given.run_id, given.workflow_id, given.id, 'catch_up', given.state, given.time, $9, $9, given.team_id
          FROM given JOIN recorded ON recorded.id = given.id
        "#,
        &occurrences,
        &runs,
        &workflows,
        &teams,
        &times,
        &revisions,
        &states,
        ReasonCode::NoFireInTime.as_str(),
        now,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Advances the ledgers of the workflows that are checked on their own. Those without a reason to be follow their shard,
/// which is decided up to `through`. Those that follow it already need no change.
pub(super) async fn move_on(
    tx: &mut PgConnection,
    settled: &[&Member],
    through: DateTime<Utc>,
    until: DateTime<Utc>,
) -> sqlx::Result<()> {
    let watched = settled.iter().filter(|member| member.ledger.watch_at.is_some());
    let (mut follow, mut stay) = (Vec::new(), Vec::new());
    for member in watched {
        match follow_again_at(member, through, until) {
            None => follow.push(*member),
            Some(again) => {
                let next = due_times::next_due_time(&member.versions, until);
                stay.push((member.id, next.map_or(again, |next| next.min(again))));
            }
        }
    }
    follow_shard(tx, &follow, until).await?;
    watch_again(tx, &stay, until).await
}

/// When a workflow may begin to follow its shard; `None` if it may now.
///
/// A follower's due times are those of one version, after the end of the shard. So this version must have begun, the
/// workflow must be decided as far as the shard is, and no pause may end by itself.
fn follow_again_at(member: &Member, through: DateTime<Utc>, until: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let begins = member.versions.last().map(|version| version.valid_from).filter(|begins| *begins > until);
    let behind = Some(through).filter(|through| *through > until);
    let soon = until + TimeDelta::microseconds(1);
    [begins, behind, member.pause_until.map(|over| over.max(soon))].into_iter().flatten().max()
}

async fn follow_shard(tx: &mut PgConnection, members: &[&Member], until: DateTime<Utc>) -> sqlx::Result<()> {
    if members.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = members.iter().map(|member| member.id).collect();
    let in_force = |member: &&Member| member.versions.last().filter(|version| version.state == State::Active).cloned();
    let timings: Vec<_> = members.iter().map(|member| in_force(member).map(|version| version.timing)).collect();
    let timings: Vec<_> = timings.into_iter().map(Option::unwrap_or_default).collect();
    let crons: Vec<_> = timings.iter().map(|timing| timing.cron.clone()).collect();
    let timezones: Vec<_> = timings.iter().map(|timing| timing.timezone.clone().unwrap_or_default()).collect();
    let starts: Vec<_> = timings.iter().map(|timing| timing.starts_at).collect();
    let ends: Vec<_> = timings.iter().map(|timing| timing.ends_at).collect();
    sqlx::query!(
        r#"
        -- follow the shard: by the timing that is in force
        UPDATE ledger l
           SET cursor = GREATEST(l.cursor, $2), watch_at = NULL, cron = f.cron, timezone = f.timezone,
               starts_at = f.starts_at, ends_at = f.ends_at
          FROM unnest($1::bigint[], $3::text[], $4::text[], $5::timestamptz[], $6::timestamptz[])
               AS f (id, cron, timezone, starts_at, ends_at)
         WHERE l.workflow_id = f.id
        "#,
        &ids,
        until,
        &crons as &[Option<String>],
        &timezones,
        &starts as &[Option<DateTime<Utc>>],
        &ends as &[Option<DateTime<Utc>>],
    )
    .execute(tx)
    .await
    .map(drop)
}

async fn watch_again(
    tx: &mut PgConnection,
    members: &[(i64, DateTime<Utc>)],
    until: DateTime<Utc>,
) -> sqlx::Result<()> {
    if members.is_empty() {
        return Ok(());
    }
    let (ids, watch_at): (Vec<_>, Vec<_>) = members.iter().copied().unzip();
    sqlx::query!(
        r#"
        -- move the cursors of a batch on: they never go back
        UPDATE ledger l
           SET cursor = GREATEST(l.cursor, $3), watch_at = moved.watch_at
          FROM unnest($1::bigint[], $2::timestamptz[]) AS moved (id, watch_at)
         WHERE l.workflow_id = moved.id
        "#,
        &ids,
        &watch_at,
        until,
    )
    .execute(tx)
    .await
    .map(drop)
}
