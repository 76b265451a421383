//! A ledger with months of history, made by SQL in a database of its own: the rows that the app would have written.
//!
//! Each workflow fires once a day, at a minute of its own. All tables that the case fills are named only here.

use chrono::{DateTime, Days, NaiveTime, TimeDelta, Utc};
use sqlx::PgConnection;

/// For how many days a workflow has occurrences and runs; retention is 90 days, so none of them is old.
pub(crate) const DAYS: u64 = 89;
/// The workflows whose old rows the prune removes: as many at each size of the table.
const OLD_WORKFLOWS: i64 = 500;

/// A ledger that grows.
pub(crate) struct History {
    now: DateTime<Utc>,
    teams: Vec<i64>,
    ids: Vec<i64>,
}

impl History {
    /// An empty ledger of these teams. Everything is decided up to `now`.
    pub(crate) fn new(now: DateTime<Utc>, teams: Vec<i64>) -> History {
        History { now, teams, ids: Vec::new() }
    }

    /// The number of occurrences; there are as many runs.
    pub(crate) fn rows(&self) -> u64 {
        self.ids.len() as u64 * DAYS
    }

    /// Adds workflows with their history, day by day, until there are this many occurrences.
    pub(crate) async fn grow_to(&mut self, db: &mut PgConnection, rows: u64) {
        let wanted = usize::try_from(rows / DAYS).unwrap();
        let first = self.ids.len();
        let made: Vec<i64> = sqlx::query_scalar(ADD_WORKFLOWS)
            .bind(self.now)
            .bind(&self.teams)
            .bind(i64::try_from(first).unwrap())
            .bind(i64::try_from(wanted).unwrap() - 1)
            .fetch_all(&mut *db)
            .await
            .unwrap();
        for ago in (0..DAYS).rev() {
            self.add_day(db, ago, made[0], made[made.len() - 1]).await;
        }
        self.ids.extend(made);
        for statement in ["VACUUM (ANALYZE)", "CHECKPOINT"] {
            sqlx::raw_sql(statement).execute(&mut *db).await.unwrap();
        }
    }

    /// Adds a day that is past its retention, of the first workflows.
    pub(crate) async fn add_old_day(&self, db: &mut PgConnection) {
        let last = self.ids[usize::try_from(OLD_WORKFLOWS).unwrap().min(self.ids.len()) - 1];
        self.add_day(db, 95, self.ids[0], last).await;
    }

    /// Makes the watchdog check this many workflows, whose due times are all decided.
    pub(crate) async fn make_due(&self, db: &mut PgConnection, workflows: usize) {
        let ids = &self.ids[..workflows.min(self.ids.len())];
        sqlx::query(MAKE_DUE).bind(self.now).bind(ids).execute(db).await.unwrap();
    }

    /// How many workflows there are.
    pub(crate) fn workflows(&self) -> usize {
        self.ids.len()
    }

    /// A workflow of the first team.
    pub(crate) fn some_workflow(&self) -> i64 {
        self.ids[0]
    }

    async fn add_day(&self, db: &mut PgConnection, days_ago: u64, first: i64, last: i64) {
        let day = (self.now.date_naive() - Days::new(days_ago)).and_time(NaiveTime::MIN).and_utc();
        // What is due now and not decided yet stays so.
        let until = self.now - TimeDelta::minutes(1);
        sqlx::query(ADD_DAY).bind(day).bind(until).bind(first).bind(last).execute(db).await.unwrap();
    }
}

/// Workflows number `$3` to `$4` of the teams `$2`, published, and decided up to `$1`.
const ADD_WORKFLOWS: &str = r#"
    WITH made AS (
        INSERT INTO workflows (team_id, name, action, cron_schedule, revision, created_on, updated_on,
                               schedule_activated_at, ledger_cursor, watch_at)
        SELECT ($2::bigint[])[1 + nth % array_length($2, 1)], 'history ' || nth, '{"type":"log","message":"m"}',
               nth % 60 || ' ' || nth / 60 % 24 || ' * * *', 1, $1 - INTERVAL '100 days', $1 - INTERVAL '100 days',
               $1 - INTERVAL '100 days', $1, $1 + INTERVAL '1 day'
          FROM generate_series($3::bigint, $4::bigint) AS nth
         ORDER BY nth
        RETURNING id, cron_schedule
    ), versions AS (
        INSERT INTO schedule_versions (workflow_id, revision, valid_from, cron, state)
        SELECT id, 1, $1 - INTERVAL '100 days', cron_schedule, 'active' FROM made
    ), published AS (
        INSERT INTO publications (workflow_id, desired_revision, applied_revision, applied_on)
        SELECT id, 1, 1, $1 - INTERVAL '100 days' FROM made
    )
    SELECT id FROM made ORDER BY id
"#;

/// The due times of the day `$1` up to `$2`, of the workflows `$3` to `$4`, in the order in which they were due: one of
/// fifty failed. The ids are of version 7, as the app makes them.
const ADD_DAY: &str = r#"
    WITH due AS MATERIALIZED (
        SELECT w.id AS workflow_id, w.team_id, d.time,
               (lpad(to_hex((EXTRACT(EPOCH FROM d.time) * 1000)::bigint), 12, '0') || '7' || substr(md5(random()::text), 1, 3)
                || '8' || substr(md5(random()::text), 1, 15))::uuid AS occurrence_id,
               (lpad(to_hex((EXTRACT(EPOCH FROM d.time) * 1000)::bigint), 12, '0') || '7' || substr(md5(random()::text), 1, 3)
                || '8' || substr(md5(random()::text), 1, 15))::uuid AS run_id,
               CASE WHEN (w.id + EXTRACT(DAY FROM d.time)::bigint) % 50 = 0 THEN 'failed' ELSE 'succeeded' END AS state
          FROM workflows w
         CROSS JOIN LATERAL (SELECT $1::timestamptz + make_interval(
                                        hours => split_part(w.cron_schedule, ' ', 2)::int,
                                        mins => split_part(w.cron_schedule, ' ', 1)::int) AS time) AS d
         WHERE w.id BETWEEN $3 AND $4 AND d.time <= $2
         ORDER BY d.time
    ), recorded AS (
        INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, revision, run_id, lateness_s, decided_on,
                                 created_on, updated_on)
        SELECT occurrence_id, workflow_id, time, 'fired', 1, run_id, 1, time, time, time FROM due
    )
    INSERT INTO runs (id, workflow_id, team_id, occurrence_id, trigger, state, scheduled_time, run_after, attempt,
                      created_on, started_on, finished_on, result, error, duration_ms)
    SELECT run_id, workflow_id, team_id, occurrence_id, 'schedule', state, time, time, 1, time, time, time,
           '{"status":200,"body":"ok"}', CASE state WHEN 'failed' THEN 'the receiver answered 500' END, 1
      FROM due
"#;

/// The next check of these workflows was due ten minutes before `$1`, and everything before it is decided.
const MAKE_DUE: &str = "
    UPDATE workflows SET watch_at = $1 - INTERVAL '10 minutes', ledger_cursor = $1 - INTERVAL '11 minutes'
     WHERE id = ANY($2)
";
