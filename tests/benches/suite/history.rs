//! A ledger with months of history, made by SQL in a database of its own: the rows that the app would have written.
//!
//! Each workflow fires once or several times a day, at a minute of its own. All tables that a case fills are named only here.

use std::ops::Range;

use chrono::{DateTime, NaiveTime, TimeDelta, Utc};
use sqlx::PgConnection;

/// A day that is past its retention at each size of the table: the second one ends a day later, because the day of the
/// first is dropped by then.
const OLD_DAYS: [i64; 2] = [-95, -89];
/// The workflows whose old rows the prune removes: as many at each size of the table.
const OLD_WORKFLOWS: usize = 500;

/// When the workflows of a history fired, and what became of it.
#[derive(Clone, Debug)]
pub(crate) struct Rhythm {
    /// The days of which a workflow has occurrences and runs, from the first `now` on. Retention is 90 days.
    pub(crate) days: Range<i64>,
    /// A divisor of 24.
    pub(crate) fires_a_day: i64,
    /// One of so many due times was missed; 0 = none.
    pub(crate) missed_of: i64,
}

impl Rhythm {
    /// Once a day. The rows of three days to come exist, too, so that each pass of the watchdog finds every due time decided.
    pub(crate) const DAILY: Rhythm = Rhythm { days: -86..4, fires_a_day: 1, missed_of: 0 };

    /// The due times of one workflow.
    fn due_times(&self) -> u64 {
        u64::try_from(self.days.clone().count()).unwrap() * u64::try_from(self.fires_a_day).unwrap()
    }
}

/// A ledger that grows.
pub(crate) struct History {
    begin: DateTime<Utc>,
    rhythm: Rhythm,
    teams: Vec<i64>,
    ids: Vec<i64>,
    /// How many old days were added.
    old_days: usize,
}

impl History {
    /// An empty ledger of these teams.
    pub(crate) fn new(begin: DateTime<Utc>, teams: Vec<i64>, rhythm: Rhythm) -> History {
        History { begin, rhythm, teams, ids: Vec::new(), old_days: 0 }
    }

    /// The number of occurrences; there are as many runs, without those of missed times.
    pub(crate) fn rows(&self) -> u64 {
        self.rows_of(self.ids.len() as u64)
    }

    /// The number of occurrences of so many workflows.
    pub(crate) fn rows_of(&self, workflows: u64) -> u64 {
        workflows * self.rhythm.due_times()
    }

    /// Adds workflows with their history, day by day, until there are this many occurrences. The next check of the
    /// watchdog was due some minutes before `now`.
    pub(crate) async fn grow_to(&mut self, db: &mut PgConnection, rows: u64, now: DateTime<Utc>) {
        let wanted = usize::try_from(rows / self.rhythm.due_times()).unwrap();
        let made: Vec<i64> = sqlx::query_scalar(ADD_WORKFLOWS)
            .bind(now)
            .bind(&self.teams)
            .bind(i64::try_from(self.ids.len()).unwrap())
            .bind(i64::try_from(wanted).unwrap() - 1)
            .bind(self.begin - TimeDelta::days(100))
            .bind(self.rhythm.fires_a_day)
            .fetch_all(&mut *db)
            .await
            .unwrap();
        self.make_partitions(db).await;
        for day in self.rhythm.days.clone() {
            self.add_day(db, day, made[0], made[made.len() - 1]).await;
        }
        self.ids.extend(made);
        for statement in ["VACUUM (ANALYZE)", "CHECKPOINT"] {
            sqlx::raw_sql(statement).execute(&mut *db).await.unwrap();
        }
    }

    /// Adds a day that is past its retention, of the first workflows.
    pub(crate) async fn add_old_day(&mut self, db: &mut PgConnection) {
        self.make_partitions(db).await;
        let day = OLD_DAYS[self.old_days];
        self.old_days += 1;
        self.add_day(db, day, self.ids[0], self.ids[OLD_WORKFLOWS.min(self.ids.len()) - 1]).await;
    }

    /// How many workflows there are.
    pub(crate) fn workflows(&self) -> usize {
        self.ids.len()
    }

    /// A workflow of the first team.
    pub(crate) fn some_workflow(&self) -> i64 {
        self.ids[0]
    }

    /// Makes the partitions of all days, if this version has any.
    async fn make_partitions(&self, db: &mut PgConnection) {
        let has_partitions: bool = sqlx::query_scalar(HAS_PARTITIONS).fetch_one(&mut *db).await.unwrap();
        if has_partitions {
            let first = self.begin + TimeDelta::days(OLD_DAYS[0]);
            // Today and the next days have one each, as the job `prune` makes them.
            let days = i32::try_from(self.rhythm.days.end.max(8) - OLD_DAYS[0]).unwrap();
            sqlx::query(MAKE_PARTITIONS).bind(first).bind(days).execute(db).await.unwrap();
        }
    }

    async fn add_day(&self, db: &mut PgConnection, day: i64, first: i64, last: i64) {
        let day = (self.begin.date_naive() + TimeDelta::days(day)).and_time(NaiveTime::MIN).and_utc();
        let add = sqlx::query(ADD_DAY).bind(day).bind(first).bind(last).bind(self.rhythm.missed_of);
        add.execute(db).await.unwrap();
    }
}

const HAS_PARTITIONS: &str = "SELECT to_regproc('make_day_partitions') IS NOT NULL";
const MAKE_PARTITIONS: &str = "SELECT make_day_partitions(parent, $1, $2) FROM partition_bounds ORDER BY parent";

/// Workflows number `$3` to `$4` of the teams `$2`, made at `$5` and published, each with `$6` times a day. The watchdog is to
/// check them at `$1`.
const ADD_WORKFLOWS: &str = r#"
    WITH made AS (
        INSERT INTO workflows (team_id, name, action, cron_schedule, revision, created_on, updated_on)
        SELECT ($2::bigint[])[1 + nth % array_length($2, 1)], 'history ' || nth, '{"type":"log","message":"m"}',
               nth % 60 || ' ' || hours.list || ' * * *', 1, $5, $5
          FROM generate_series($3::bigint, $4::bigint) AS nth
         CROSS JOIN LATERAL (SELECT string_agg((nth / 60 % (24 / $6) + part * (24 / $6))::text, ',' ORDER BY part) AS list
                               FROM generate_series(0, $6 - 1) AS part) AS hours
         ORDER BY nth
        RETURNING id, cron_schedule
    ), versions AS (
        INSERT INTO schedule_versions (workflow_id, revision, valid_from, cron, state)
        SELECT id, 1, $5, cron_schedule, 'active' FROM made
    ), watched AS (
        INSERT INTO ledger (workflow_id, cursor, watch_at, activated_on)
        SELECT id, $1 - INTERVAL '11 minutes', $1 - INTERVAL '10 minutes', $5 FROM made
    ), published AS (
        INSERT INTO publications (workflow_id, desired_revision, applied_revision, spec_hash, applied_on)
        SELECT id, 1, 1, 'published', $5 FROM made
    )
    SELECT id FROM made ORDER BY id
"#;

/// The due times of the day `$1`, of the workflows `$2` to `$3`, in the order in which they were due: one of
/// fifty failed, one of `$4` was missed. The ids are of version 7, as the app makes them.
const ADD_DAY: &str = r#"
    WITH due AS MATERIALIZED (
        SELECT w.id AS workflow_id, w.team_id, d.time,
               (lpad(to_hex((EXTRACT(EPOCH FROM d.time) * 1000)::bigint), 12, '0') || '7' || substr(md5(random()::text), 1, 3)
                || '8' || substr(md5(random()::text), 1, 15))::uuid AS occurrence_id,
               (lpad(to_hex((EXTRACT(EPOCH FROM d.time) * 1000)::bigint), 12, '0') || '7' || substr(md5(random()::text), 1, 3)
                || '8' || substr(md5(random()::text), 1, 15))::uuid AS run_id,
               CASE WHEN (w.id + EXTRACT(DAY FROM d.time)::bigint) % 50 = 0 THEN 'failed' ELSE 'succeeded' END AS state,
               COALESCE((w.id + EXTRACT(EPOCH FROM d.time)::bigint / 3600) % NULLIF($4::bigint, 0) = 0, false) AS is_missed
          FROM workflows w
         CROSS JOIN LATERAL (SELECT $1::timestamptz + make_interval(
                                        hours => hour::int, mins => split_part(w.cron_schedule, ' ', 1)::int) AS time
                               FROM unnest(string_to_array(split_part(w.cron_schedule, ' ', 2), ',')) AS hour) AS d
         WHERE w.id BETWEEN $2 AND $3
         ORDER BY d.time
    ), recorded AS (
        INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, revision, run_id, lateness_s, decided_on,
                                 created_on, updated_on)
        SELECT occurrence_id, workflow_id, time, CASE WHEN is_missed THEN 'missed' ELSE 'fired' END, 1,
               CASE WHEN NOT is_missed THEN run_id END, 1, time, time, time
          FROM due
    )
    INSERT INTO runs (id, workflow_id, team_id, occurrence_id, trigger, state, scheduled_time, run_after, attempt,
                      created_on, started_on, finished_on, result, error, duration_ms)
    SELECT run_id, workflow_id, team_id, occurrence_id, 'schedule', state, time, time, 1, time, time, time,
           '{"status":200,"body":"ok"}', CASE state WHEN 'failed' THEN 'the receiver answered 500' END, 1
      FROM due
     WHERE NOT is_missed
"#;
