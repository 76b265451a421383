//! `cronbox-app migrate` on a database that is in use.

use std::process::Stdio;
use std::time::{Duration, Instant};

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{Executor as _, SqlSafeStr as _};
use tests::{PATIENCE, Story};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use workflows::reasons::{Reason, ReasonCode};

use crate::startup::{app, run, serve, stop};

pub(super) fn migrator(sql: &'static str, is_alone: bool) -> Migrator {
    let migration = Migration::new(1, "a".into(), MigrationType::Simple, sql.into_sql_str(), is_alone);
    let mut migrator = Migrator::with_migrations(vec![migration]);
    migrator.dangerous_set_table_name("migrations_of_this_test");
    migrator
}

/// The connection of the owner.
pub(super) fn owner_options(s: &Story) -> db::Options {
    db::Options { application_name: "migrate", ..app::config::database_options(&s.owner_dsn(), 1) }
}

/// A migration's statement may take as long as it needs. It must not wait long for a lock, because all other sessions
/// queue behind it.
#[tokio::test]
async fn migrations_have_limits_of_their_own() {
    let s = Story::today().await;
    let limits = "DO $$ BEGIN
        ASSERT current_setting('statement_timeout') = '0', 'statement_timeout';
        ASSERT current_setting('lock_timeout') = '5s', 'lock_timeout';
    END $$";
    db::migrate_by(&migrator(limits, false), &owner_options(&s)).await.unwrap();
    s.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migrations_ask_again_for_a_lock() {
    let s = Story::today().await;
    let mut holder = db::begin_transaction(&s.pool).await.unwrap();
    sqlx::raw_sql("LOCK TABLE jobs").execute(&mut *holder).await.unwrap();
    let options = owner_options(&s);
    let column = migrator("ALTER TABLE jobs ADD COLUMN of_this_test INTEGER", false);
    let released = async {
        let mut backends: Vec<i32> = Vec::new();
        let began = Instant::now();
        // Each try uses a new backend. The holder stays active, so that no idle timeout ends it.
        while backends.len() < 2 {
            assert!(began.elapsed() < PATIENCE, "it asks only once");
            let waiting = "SELECT pid FROM pg_stat_activity WHERE application_name = 'migrate'
                              AND datname = current_database() AND wait_event_type = 'Lock'";
            // Uses another connection, because within a transaction pg_stat_activity keeps the values of the first
            // query.
            backends.extend(sqlx::query_scalar::<_, i32>(waiting).fetch_all(&s.pool).await.unwrap());
            backends.dedup();
            sqlx::query("SELECT 1").execute(&mut *holder).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        holder.rollback().await.unwrap();
    };
    let (migrated, ()) = tokio::join!(db::migrate_by(&column, &options), released);
    migrated.unwrap();
    s.end().await;
}

/// A fire locks a workflow, and then writes its occurrence; a migration needs both tables in another order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlocked_migrations_try_again() {
    let s = Story::today().await;
    let mut fire = db::begin_transaction(&s.pool).await.unwrap();
    // The other one finds the deadlock. This one is idle until the other one waits, so no idle timeout may end it.
    let locked = "SET LOCAL deadlock_timeout = '60s'; SET LOCAL idle_in_transaction_session_timeout = 0;
                  LOCK TABLE workflows IN ROW SHARE MODE";
    sqlx::raw_sql(locked).execute(&mut *fire).await.unwrap();
    let options = owner_options(&s);
    let crosswise = migrator("LOCK TABLE occurrences; LOCK TABLE workflows", false);
    let fired = async {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'migrate'
                          AND datname = current_database() AND wait_event_type = 'Lock'";
        s.until(waiting, 1).await;
        sqlx::raw_sql("LOCK TABLE occurrences IN ROW EXCLUSIVE MODE").execute(&mut *fire).await.unwrap();
        fire.rollback().await.unwrap();
    };
    let (migrated, ()) = tokio::join!(db::migrate_by(&crosswise, &options), fired);
    migrated.unwrap();
    s.end().await;
}

/// An index could not be built, and an invalid index is left. The next try must replace it.
#[tokio::test]
async fn an_unfinished_index_is_made_again() {
    let s = Story::today().await;
    s.execute(
        "CREATE TABLE numbers (n INTEGER);
         ALTER TABLE numbers OWNER TO cronbox_owner;
         INSERT INTO numbers VALUES (1), (1)",
    )
    .await;
    let index = migrator("CREATE UNIQUE INDEX CONCURRENTLY numbers_n ON numbers (n)", true);
    assert!(db::migrate_by(&index, &owner_options(&s)).await.is_err(), "1 is there twice");
    s.execute("DELETE FROM numbers").await;
    db::migrate_by(&index, &owner_options(&s)).await.unwrap();
    let valid = "SELECT count(*) FROM pg_index WHERE indisvalid AND indexrelid = 'numbers_n'::regclass";
    assert_eq!(s.count(valid).await, 1);
    s.end().await;
}

/// The index was built, and the process ended before it recorded the migration. The next try must succeed.
#[tokio::test]
async fn an_unrecorded_index_is_no_obstacle() {
    let s = Story::today().await;
    // These tables are partitioned now, so that their indexes cannot be built without a lock any more.
    let is_on_partitioned = |sql: &str| sql.contains(" ON runs ") || sql.contains(" ON occurrences ");
    let unlocked = db::MIGRATOR.iter().filter(|one| one.no_tx && !is_on_partitioned(one.sql.as_str()));
    let unlocked: Vec<i64> = unlocked.map(|one| one.version).collect();
    assert!(!unlocked.is_empty());
    let forgotten = "DELETE FROM _sqlx_migrations WHERE version = ANY($1)";
    sqlx::query(forgotten).bind(&unlocked).execute(&s.pool).await.unwrap();
    db::migrate_schema(&owner_options(&s)).await.unwrap();
    s.end().await;
}

/// As a database of the version before, which has days but not the index of retries.
const WITHOUT_INDEX_OF_RETRIES: &str =
    "DROP INDEX idx_runs_retry_of; DELETE FROM _sqlx_migrations WHERE version IN (119, 131)";

/// A partition of one day of ended runs.
async fn day_of_runs(s: &Story) -> String {
    let day = "SELECT c.relname::text FROM pg_partition_tree('runs_ended') t JOIN pg_class c ON c.oid = t.relid
                WHERE t.isleaf AND c.relname ~ '_[0-9]{8}$' ORDER BY 1 LIMIT 1";
    sqlx::query_scalar(day).fetch_one(&s.pool).await.unwrap()
}

/// The build of an index waits for a transaction that ends a run of the same partition, and meanwhile another run ends there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_end_while_indexes_are_built() {
    let s = Story::today().await;
    let (day, options) = (day_of_runs(&s).await, owner_options(&s));
    for partition in ["runs_ended_before", day.as_str()] {
        s.execute(WITHOUT_INDEX_OF_RETRIES).await;
        // The lock of an INSERT. The first transaction is idle until the build waits, so no idle timeout may end it.
        let end_run = || {
            let lock = format!(
                "SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL lock_timeout = '1s';
                 LOCK TABLE {partition} IN ROW EXCLUSIVE MODE"
            );
            sqlx::raw_sql(sqlx::AssertSqlSafe(lock))
        };
        let mut first = db::begin_transaction(&s.pool).await.unwrap();
        end_run().execute(&mut *first).await.unwrap();
        let beside = async {
            let waiting = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'migrate'
                              AND datname = current_database() AND wait_event_type = 'Lock'";
            s.until(waiting, 1).await;
            let mut second = db::begin_transaction(&s.pool).await.unwrap();
            let ended = end_run().execute(&mut *second).await;
            assert!(ended.is_ok(), "{partition}: {ended:?}");
            second.rollback().await.unwrap();
            first.rollback().await.unwrap();
        };
        let (migrated, ()) = tokio::join!(db::migrate_schema(&options), beside);
        migrated.unwrap();
        let valid = "SELECT count(*) FROM pg_index WHERE indisvalid AND indexrelid = 'idx_runs_retry_of'::regclass";
        assert_eq!(s.count(valid).await, 1, "{partition}");
    }
    s.end().await;
}

/// The build of a day's index was interrupted. The index of the table, which takes it over, would be invalid, too.
#[tokio::test]
async fn unfinished_indexes_of_days_are_made_again() {
    let s = Story::today().await;
    s.execute(WITHOUT_INDEX_OF_RETRIES).await;
    let day = day_of_runs(&s).await;
    let unfinished = format!(
        "CREATE INDEX idx_{day}_retry_of ON {day} (retry_of) WHERE retry_of IS NOT NULL;
         UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid = 'idx_{day}_retry_of'::regclass"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(unfinished)).execute(&s.pool).await.unwrap();
    db::migrate_schema(&owner_options(&s)).await.unwrap();
    assert_eq!(s.count("SELECT count(*) FROM pg_index WHERE NOT indisvalid").await, 0);
    s.end().await;
}

/// The migration locks the table of runs, so it must not read the ended runs.
#[tokio::test]
async fn team_migration_reads_no_ended_runs() {
    let s = Story::today().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    let ended = "INSERT INTO runs (id, workflow_id, trigger, state, run_after, created_on, finished_on)
                 SELECT gen_random_uuid(), $1, 'manual', 'cancelled', now(), now(), now()
                   FROM generate_series(1, 20000)";
    sqlx::query(ended).bind(wf.0).execute(&s.pool).await.unwrap();
    s.execute("ANALYZE").await;
    let migration = db::MIGRATOR.iter().find(|one| one.version == 21).unwrap().sql.as_str();
    let update = migration.split(';').find(|statement| statement.contains("UPDATE runs")).unwrap();
    let explain = sqlx::AssertSqlSafe(format!("EXPLAIN {update}"));
    let plan: Vec<String> = sqlx::query_scalar(explain).fetch_all(&s.pool).await.unwrap();
    assert!(plan.iter().any(|line| line.contains("runs_live")), "{plan:#?}");
    assert!(!plan.iter().any(|line| line.contains("runs_ended")), "{plan:#?}");
    s.publish().await;
    s.end_early().await;
}

/// An older version stored these changes while the database's clock went back. The migration puts them in order.
#[tokio::test]
async fn stored_zone_changes_are_put_in_order() {
    let s = Story::today().await;
    s.execute(
        "DELETE FROM _sqlx_migrations WHERE version = 36;
         ALTER TABLE zone_changes DROP CONSTRAINT zone_changes_in_force_from_key;
         DELETE FROM zone_changes;
         DELETE FROM zone_data;
         INSERT INTO zone_data (version, archive) VALUES ('2025a', ''), ('2025b', '');
         INSERT INTO zone_changes (version, in_force_from)
         VALUES ('2025a', '2025-07-01Z'), ('2025b', '2025-01-01Z'), ('2025a', '2025-07-02Z')",
    )
    .await;
    db::migrate_schema(&owner_options(&s)).await.unwrap();
    let descending = "SELECT count(*) FROM zone_changes a JOIN zone_changes b ON b.id > a.id
                       WHERE b.in_force_from <= a.in_force_from";
    assert_eq!(s.count(descending).await, 0);
    let changes = "SELECT count(*) FROM zone_changes WHERE in_force_from >= '2025-07-01Z'";
    assert_eq!(s.count(changes).await, 3, "no change comes into force earlier than it was stored");
    s.execute("DELETE FROM zone_changes; DELETE FROM zone_data").await;
    s.end().await;
}

/// The previous version stored sentences. A terminal run changes from its sentence to the code of it, and to nothing
/// else.
#[tokio::test]
async fn stored_reasons_become_codes() {
    let s = Story::today().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    let runs = "INSERT INTO runs (id, workflow_id, trigger, state, run_after, created_on, finished_on, error, cancel_reason)
                SELECT gen_random_uuid(), $1, 'manual', 'cancelled', now(), now(), now(), error, 'replaced by a later run'
                  FROM unnest(ARRAY['no answer within 30 s', 'the workflow was archived; its instance was lost',
                                    'the receiver answered 500']) AS error";
    let occurrences = "INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, reason, lateness_s, decided_on,
                                                created_on, updated_on)
                       SELECT gen_random_uuid(), $1, '2026-01-01Z'::timestamptz + n * INTERVAL '1 day', decision, reason, 0,
                              now(), now(), now()
                         FROM (VALUES (1, 'missed', 'nobody asked in time, and the workflow does not catch up'),
                                      (2, 'missed', 'restored'),
                                      (3, 'skipped_paused', 'cancelled on request')) AS v (n, decision, reason)";
    for statement in [runs, occurrences] {
        sqlx::query(statement).bind(wf.0).execute(&s.pool).await.unwrap();
    }
    s.execute("DELETE FROM _sqlx_migrations WHERE version = 39").await;
    db::migrate_schema(&owner_options(&s)).await.unwrap();
    assert_eq!(
        s.table("SELECT error FROM runs ORDER BY error").await,
        "instance_lost_after_cancel:workflow_archived\nthe receiver answered 500\ntimed_out:30"
    );
    assert_eq!(s.table("SELECT DISTINCT cancel_reason FROM runs").await, "replaced_by_later_run");
    assert_eq!(
        s.table("SELECT reason FROM occurrences ORDER BY scheduled_time").await,
        "no_fire_and_no_catch_up\nrestored\ncancelled on request",
        "the last one is the text of a person"
    );
    let other = sqlx::query("UPDATE runs SET error = NULL WHERE error = 'timed_out:30'").execute(&s.pool).await;
    assert!(other.unwrap_err().to_string().contains("is final"));
    s.publish().await;
    s.end_early().await;
}

/// The migration and the program name the same code for each old sentence.
#[test]
fn migrated_sentences_have_their_codes() {
    let migration = db::MIGRATOR.iter().find(|one| one.version == 39).unwrap().sql.as_str();
    let arms = regex::Regex::new(r"WHEN '((?:[^']|'')+)' THEN '([a-z_:]+)'").unwrap();
    let mut codes = Vec::new();
    for arm in arms.captures_iter(migration) {
        let sentence = arm[1].replace("''", "'");
        let reason = Reason::parse(&sentence).unwrap_or_else(|| panic!("{sentence} is no reason"));
        assert_eq!((reason.to_string().as_str(), reason.sentence_before()), (&arm[2], sentence));
        codes.push(reason.code);
    }
    for code in ReasonCode::ALL {
        let is_stored_as_code = Reason::from(code).sentence_before() == code.as_str();
        let is_with_fact = migration.contains(&format!("THEN '{}:' ||", code.as_str()));
        let is_newer = code == ReasonCode::Frozen;
        assert!(is_stored_as_code || is_with_fact || is_newer || codes.contains(&code), "{code:?} is not migrated");
    }
}

/// An empty database of the version before this migration; returns its DSN.
async fn database_before(s: &Story, version: i64) -> String {
    let dsn = format!("{}_before", s.owner_dsn());
    let (_, name) = dsn.rsplit_once('/').unwrap();
    s.pool.execute(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
    let before = db::MIGRATOR.iter().filter(|one| one.version < version).cloned().collect();
    db::migrate_by(&Migrator::with_migrations(before), &options_at(&dsn)).await.unwrap();
    dsn
}

fn options_at(dsn: &str) -> db::Options {
    db::Options { application_name: "migrate", ..app::config::database_options(dsn, 1) }
}

async fn pool_at(dsn: &str) -> db::PgPool {
    db::connect_pool(&app::config::database_options(dsn, 1)).await.unwrap()
}

async fn drop_database(s: &Story, pool: db::PgPool, dsn: &str) {
    pool.close().await;
    let (_, name) = dsn.rsplit_once('/').unwrap();
    s.pool.execute(sqlx::AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)"))).await.unwrap();
}

/// One column of text, a line per row.
async fn lines_of(pool: &db::PgPool, query: &'static str) -> String {
    sqlx::query_scalar::<_, String>(query).fetch_all(pool).await.unwrap().join("\n")
}

const WORKFLOW: &str = "INSERT INTO teams (name, signing_secret, created_on) VALUES ('a', 'whsec_a', now());
    INSERT INTO workflows (team_id, name, action, cron_schedule, revision, created_on, updated_on)
    SELECT id, 'w', '{\"type\": \"log\"}', '* * * * *', 1, now(), now() FROM teams;
    INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, run_id, lateness_s, decided_on, created_on, updated_on)
    SELECT gen_random_uuid(), id, '2026-03-02T09:00:00Z', 'fired', gen_random_uuid(), 0, now(), now(), now() FROM workflows;";

/// The last ended run is of a version that did not store the team.
const RUNS_OF_EACH_STATE: &str = "
    INSERT INTO runs (id, workflow_id, occurrence_id, trigger, state, scheduled_time, run_after, created_on, finished_on, result, error)
    SELECT CASE state WHEN 'running' THEN o.run_id WHEN 'failed' THEN '0195f000-0000-7000-8000-000000000000' ELSE gen_random_uuid() END, o.workflow_id, o.id, trigger, state, o.scheduled_time,
           now(), now(), CASE WHEN is_ended THEN now() END, CASE state WHEN 'succeeded' THEN '{\"status\": 200}'::jsonb END,
           CASE state WHEN 'failed' THEN 'the receiver answered 500' END
      FROM occurrences o,
           (VALUES ('running', 'schedule', FALSE), ('accepted', 'retry', FALSE), ('queued', 'backfill', FALSE),
                   ('succeeded', 'retry', TRUE), ('failed', 'retry', TRUE)) AS v (state, trigger, is_ended);
    UPDATE runs SET attempt = 1, started_on = now(), locked_by = gen_random_uuid(), locked_at = now(), lease_until = now()
     WHERE state = 'running';
    UPDATE runs SET team_id = NULL WHERE state = 'failed'";

/// The migration moves what has not ended, and keeps the table of the others as a partition.
#[tokio::test]
async fn migration_keeps_runs_of_each_state() {
    let s = Story::today().await;
    let dsn = database_before(&s, 54).await;
    let pool = pool_at(&dsn).await;
    for statements in [WORKFLOW, RUNS_OF_EACH_STATE] {
        sqlx::raw_sql(statements).execute(&pool).await.unwrap();
    }
    let all =
        "SELECT concat_ws(' ', state, trigger, scheduled_time AT TIME ZONE 'UTC', attempt, locked_by, result, error)
                 FROM runs ORDER BY state";
    let before = lines_of(&pool, all).await;
    db::migrate_schema(&options_at(&dsn)).await.unwrap();
    assert_eq!(lines_of(&pool, all).await, before);
    let live = "SELECT state FROM runs_live ORDER BY 1";
    assert_eq!(lines_of(&pool, live).await, "accepted\nqueued\nrunning");
    let teams = "SELECT DISTINCT (r.team_id = w.team_id)::text FROM runs r JOIN workflows w ON w.id = r.workflow_id";
    assert_eq!(lines_of(&pool, teams).await, "true", "also of runs that lacked their team");
    let decided = "SELECT o.decision || ' ' || r.state FROM occurrences o JOIN runs r ON r.id = o.run_id";
    assert_eq!(lines_of(&pool, decided).await, "fired running");
    drop_database(&s, pool, &dsn).await;
    s.end().await;
}

/// During a deployment an instance of the version before ends its runs by an UPDATE of their state.
#[tokio::test]
async fn the_version_before_still_ends_runs() {
    let s = Story::today().await;
    let dsn = database_before(&s, 54).await;
    let pool = pool_at(&dsn).await;
    for statements in [WORKFLOW, RUNS_OF_EACH_STATE] {
        sqlx::raw_sql(statements).execute(&pool).await.unwrap();
    }
    db::migrate_schema(&options_at(&dsn)).await.unwrap();
    let finish =
        "UPDATE runs SET state = 'succeeded', result = '{}', error = NULL, finished_on = now(), tries = tries + 0,
                         locked_by = NULL, locked_at = NULL, lease_until = NULL
                   WHERE state = 'running' AND attempt = 1";
    assert_eq!(sqlx::query(finish).execute(&pool).await.unwrap().rows_affected(), 1);
    let ended = "SELECT state FROM runs_ended WHERE trigger = 'schedule'";
    assert_eq!(lines_of(&pool, ended).await, "succeeded");
    drop_database(&s, pool, &dsn).await;
    s.end().await;
}

/// Rows 1 to 4: processed, open, failed, discarded. Each is of a workflow with this number.
const OUTBOX_ROWS: &str = "
    INSERT INTO publications (workflow_id, desired_revision) SELECT nth, 1 FROM generate_series(1, 5) AS nth;
    INSERT INTO outbox_events (aggregate_id, op, payload, created_on, processed_on, failed_on, error_message)
    VALUES (1, 'upsert', '{\"revision\": 1}', now(), now(), NULL, NULL), (2, 'delete', '{\"revision\": 2}', now(), NULL, NULL, NULL),
           (3, 'upsert', '{}', now(), NULL, now(), 'refused'), (4, 'upsert', '{}', now(), now(), now(), 'refused')";
const STATUSES: &str = "SELECT concat_ws(' ', id, aggregate_id, op, payload, outbox_status(o), error_message) FROM outbox_events o ORDER BY id";

/// The migration moves what is open or has failed, and keeps the table of the others as a partition. The numbers continue.
#[tokio::test]
async fn migration_keeps_outbox_rows() {
    let s = Story::today().await;
    let dsn = database_before(&s, 61).await;
    let pool = pool_at(&dsn).await;
    sqlx::raw_sql(OUTBOX_ROWS).execute(&pool).await.unwrap();
    sqlx::raw_sql("GRANT SELECT ON outbox_events TO PUBLIC").execute(&pool).await.unwrap();
    let before = lines_of(&pool, STATUSES).await;
    db::migrate_schema(&options_at(&dsn)).await.unwrap();
    assert_eq!(lines_of(&pool, STATUSES).await, before);
    let partitions = "SELECT tableoid::regclass::text FROM outbox_events ORDER BY id";
    assert_eq!(
        lines_of(&pool, partitions).await,
        "outbox_processed_before\noutbox_open\noutbox_open\noutbox_discarded"
    );
    let granted = "SELECT has_table_privilege('public', 'outbox_events', 'SELECT')::text";
    assert_eq!(lines_of(&pool, granted).await, "true", "a publisher does not wait for the end of migrate");
    let delete = "INSERT INTO outbox_events (aggregate_id, op, payload, created_on) VALUES (5, 'delete', '{\"revision\": 7}', now())";
    sqlx::raw_sql(delete).execute(&pool).await.unwrap();
    let noted = "SELECT o.id || ' ' || p.removal_revision
                   FROM outbox_events o JOIN publications p ON p.workflow_id = o.aggregate_id WHERE p.workflow_id = 5";
    assert_eq!(lines_of(&pool, noted).await, "5 7");
    drop_database(&s, pool, &dsn).await;
    s.end().await;
}

/// During a deployment a publisher of the version before settles: its statement names no partition.
#[tokio::test]
async fn the_version_before_still_settles() {
    let s = Story::today().await;
    let dsn = database_before(&s, 61).await;
    let pool = pool_at(&dsn).await;
    sqlx::raw_sql(OUTBOX_ROWS).execute(&pool).await.unwrap();
    db::migrate_schema(&options_at(&dsn)).await.unwrap();
    let settle =
        "UPDATE outbox_events AS o SET processed_on = (SELECT cronbox_now()), attempt_count = 1, error_message = NULL
                   WHERE o.id = 2 AND o.id = ANY(ARRAY[2::bigint])";
    assert_eq!(sqlx::query(settle).execute(&pool).await.unwrap().rows_affected(), 1);
    let settled = "SELECT outbox_status(o) || ' ' || (tableoid::regclass::text LIKE 'outbox_processed%') FROM outbox_events o WHERE id = 2";
    assert_eq!(lines_of(&pool, settled).await, "processed true");
    drop_database(&s, pool, &dsn).await;
    s.end().await;
}

/// The table of before is a partition, and the version before writes and reads the log as it did.
#[tokio::test]
async fn the_migration_keeps_audit_entries() {
    let s = Story::today().await;
    let dsn = database_before(&s, 65).await;
    let pool = pool_at(&dsn).await;
    let write = "INSERT INTO audit_log (at, actor, verb, subject)
                 SELECT now() + days * INTERVAL '1 day', 'key', 'delete', 'workflow:' || days FROM unnest(ARRAY[-500, 0, 500]) AS days";
    sqlx::raw_sql(write).execute(&pool).await.unwrap();
    let entries = "SELECT id || ' ' || subject FROM audit_log ORDER BY id";
    let before = lines_of(&pool, entries).await;
    db::migrate_schema(&options_at(&dsn)).await.unwrap();
    assert_eq!(lines_of(&pool, entries).await, before);
    sqlx::raw_sql(write).execute(&pool).await.unwrap();
    let mut connection = pool.acquire().await.unwrap();
    let newest = workflows::audit::newest_id(&mut connection).await.unwrap();
    let deleted = workflows::audit::deleted_workflows(&mut connection, 3).await.unwrap();
    assert_eq!(deleted.last().map(|(id, _)| *id), Some(newest), "ids continue where they were");
    assert_eq!(deleted.len(), 3, "{deleted:?}");
    drop(connection);
    drop_database(&s, pool, &dsn).await;
    s.end().await;
}

/// A workflow that was saved before https was required keeps its URL, also if its header values are encrypted. An instance of
/// the version before, which does not know the column, may change the URL.
#[tokio::test]
async fn the_migration_excuses_saved_urls() {
    let s = Story::today().await;
    let dsn = database_before(&s, 117).await;
    let pool = pool_at(&dsn).await;
    let old = "INSERT INTO teams (name, signing_secret, created_on) VALUES ('a', 'whsec_a', now());
        INSERT INTO workflows (team_id, name, action, created_on, updated_on)
        SELECT id, 'old', '{\"type\": \"http\", \"url\": \"http://a.example/\"}', now(), now() FROM teams";
    sqlx::raw_sql(old).execute(&pool).await.unwrap();
    db::migrate_schema(&options_at(&dsn)).await.unwrap();
    let new = "INSERT INTO workflows (team_id, name, action, created_on, updated_on)
        SELECT team_id, 'new', action, now(), now() FROM workflows";
    sqlx::raw_sql(new).execute(&pool).await.unwrap();
    let excused = "SELECT name || ' ' || may_use_http::text FROM workflows ORDER BY name";
    assert_eq!(lines_of(&pool, excused).await, "new false\nold true");
    sqlx::raw_sql("UPDATE workflows SET action = action || '{\"headers\": {}}'").execute(&pool).await.unwrap();
    assert_eq!(lines_of(&pool, excused).await, "new false\nold true");
    let other = "UPDATE workflows SET action = action || '{\"url\": \"http://b.example/\"}'";
    sqlx::raw_sql(other).execute(&pool).await.unwrap();
    assert_eq!(lines_of(&pool, excused).await, "new false\nold false");
    drop_database(&s, pool, &dsn).await;
    s.end().await;
}

/// What was archived before counts, too, and the counts of the others stay.
#[tokio::test]
async fn the_migration_counts_archived_workflows() {
    let s = Story::today().await;
    let dsn = database_before(&s, 134).await;
    let pool = pool_at(&dsn).await;
    let old = "INSERT INTO teams (name, signing_secret, created_on) VALUES ('a', 'whsec_a', now());
        INSERT INTO workflows (team_id, name, action, state, fires_per_hour, input_bytes, created_on, updated_on)
        SELECT id, 'w' || nth, '{\"type\": \"log\"}', CASE nth WHEN 1 THEN 'active' ELSE 'archived' END, 1, 100, now(), now()
          FROM teams, generate_series(1, 3) AS nth";
    sqlx::raw_sql(old).execute(&pool).await.unwrap();
    db::migrate_schema(&options_at(&dsn)).await.unwrap();
    let counted = "SELECT concat_ws(' ', workflows, input_bytes, archived_workflows, archived_bytes) FROM team_usage";
    assert_eq!(lines_of(&pool, counted).await, "1 100 2 200");
    sqlx::raw_sql("UPDATE workflows SET state = 'archived'").execute(&pool).await.unwrap();
    assert_eq!(lines_of(&pool, counted).await, "0 0 3 300");
    drop_database(&s, pool, &dsn).await;
    s.end().await;
}

#[tokio::test]
async fn duplicate_runs_stop_the_migration() {
    let s = Story::today().await;
    let dsn = database_before(&s, 24).await;
    let pool = pool_at(&dsn).await;
    let two = "INSERT INTO runs (id, workflow_id, occurrence_id, trigger, state, scheduled_time, run_after, created_on)
               SELECT id, workflow_id, occurrence_id, 'schedule', 'accepted', scheduled_time, now(), now()
                 FROM (SELECT run_id, gen_random_uuid(), workflow_id, id, scheduled_time FROM occurrences)
                      AS o (first, second, workflow_id, occurrence_id, scheduled_time),
                      unnest(ARRAY[first, second]) AS id";
    sqlx::raw_sql(WORKFLOW).execute(&pool).await.unwrap();
    sqlx::raw_sql(two).execute(&pool).await.unwrap();
    let refused = format!("{:#}", db::migrate_schema(&options_at(&dsn)).await.unwrap_err());
    assert!(refused.contains("idx_runs_automatic"), "the runbook has this name: {refused}");
    let automatic = "SELECT count(*)::text FROM runs WHERE trigger = 'schedule'";
    assert_eq!(lines_of(&pool, automatic).await, "2", "nothing is changed");
    // Follows the runbook: the second run becomes a retry.
    let further = "UPDATE runs SET trigger = 'retry' WHERE id NOT IN (SELECT run_id FROM occurrences)";
    sqlx::raw_sql(further).execute(&pool).await.unwrap();
    db::migrate_schema(&options_at(&dsn)).await.unwrap();
    assert_eq!(lines_of(&pool, automatic).await, "1");
    drop_database(&s, pool, &dsn).await;
    s.end().await;
}

/// The program is older than the schema, for example after a rollback of a deployment.
#[tokio::test]
async fn migrate_refuses_a_newer_schema() {
    let s = Story::today().await;
    s.execute(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'of a later version', TRUE, '', 0)",
    )
    .await;
    let refused = format!("{:#}", db::migrate_schema(&owner_options(&s)).await.unwrap_err());
    assert!(refused.contains("the database has migration 9999, which this program does not know"), "{refused}");
    s.end().await;
}

/// On ECS each task migrates before it serves, also the tasks of the version before after a rollback: they change neither
/// the schema nor what the newer version granted. The logins get their passwords, which may be newer than the rollback.
#[tokio::test]
async fn rolled_back_versions_start() {
    let s = Story::today().await;
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                 VALUES (9999, 'of a later version', TRUE, '', 0);
                 GRANT DELETE ON audit_log TO cronbox_app";
    sqlx::raw_sql(newer).execute(&s.pool).await.unwrap();
    let unchanged = "SELECT relname || ' ' || relowner || ' ' || COALESCE(relacl::text, '') FROM pg_class
                      WHERE relnamespace = 'public'::regnamespace AND NOT relispartition
                      UNION ALL
                     SELECT version::text FROM _sqlx_migrations ORDER BY 1";
    let before = lines_of(&s.pool, unchanged).await;

    for words in [&["--accept-newer"][..], &["--roles", "--accept-newer"]] {
        let done = run(migrate(&s.owner_dsn()).args(words)).await;
        let log = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.success(), "{words:?}: {log}");
        assert!(log.contains("WARN") && log.contains("newer schema accepted") && log.contains("9999"), "{log}");
        assert_eq!(lines_of(&s.pool, unchanged).await, before, "{words:?}");
    }
    let login = format!("rolled_back_{}", std::process::id());
    let mut with_login = migrate(&s.owner_dsn());
    with_login.args(["--roles", "--accept-newer"]).env("CRONBOX_SERVE_LOGIN", &login);
    with_login.env("CRONBOX_SERVE_PASSWORD", "the-password-of-today");
    assert!(run(&mut with_login).await.status.success());
    let dsn = s.owner_dsn();
    let (_, place) = dsn.rsplit_once('@').unwrap();
    let (mut serving, _) = serve(&format!("postgres://{login}:the-password-of-today@{place}")).await;
    stop(&mut serving).await;

    s.pool.execute(sqlx::AssertSqlSafe(format!("DROP ROLE {login}"))).await.unwrap();
    s.end().await;
}

/// `cronbox-app migrate` on this database.
fn migrate(dsn: &str) -> Command {
    let mut command = app();
    command.arg("migrate").env("DATABASE_URL", dsn).env("NO_COLOR", "1").stderr(Stdio::piped());
    command
}

/// The first `cronbox-app migrate` is inside a migration when the second one starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_migrate_waits_for_the_first() {
    let s = Story::today().await;
    s.execute("CREATE TABLE gate (is_open BOOLEAN NOT NULL); GRANT SELECT ON gate TO PUBLIC").await;
    let gated = "DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM gate) LOOP PERFORM pg_sleep(0.01); END LOOP; END $$";
    let (gated, options) = (migrator(gated, false), owner_options(&s));
    let second = async {
        let at_gate = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'migrate'
                          AND datname = current_database() AND wait_event = 'PgSleep'";
        s.until(at_gate, 1).await;
        let mut second = migrate(&s.owner_dsn()).spawn().unwrap();
        let mut lines = BufReader::new(second.stderr.take().unwrap()).lines();
        let waits = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.contains("migration waits: another process migrates the database") {
                    return;
                }
            }
            panic!("it ends beside the first one");
        };
        tokio::time::timeout(PATIENCE, waits).await.expect("it says that it waits");
        s.execute("INSERT INTO gate VALUES (TRUE)").await;
        while lines.next_line().await.unwrap().is_some() {}
        assert!(second.wait().await.unwrap().success(), "after the first one it has its turn");
    };
    let (first, ()) = tokio::join!(db::migrate_by(&gated, &options), second);
    first.unwrap();
    s.end().await;
}

/// The database is empty. Both succeed, and only one of them stores the zone data.
#[tokio::test]
async fn two_migrates_may_start_at_once() {
    let s = Story::today().await;
    let (server, database) = s.owner_dsn().rsplit_once('/').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let empty = format!("{database}_empty");
    s.pool.execute(sqlx::AssertSqlSafe(format!("CREATE DATABASE {empty}"))).await.unwrap();
    let dsn = format!("{server}/{empty}");
    let (mut first, mut second) = (migrate(&dsn), migrate(&dsn));
    let (first, second) = tokio::join!(run(&mut first), run(&mut second));
    for done in [first, second] {
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    let pool = db::connect_pool(&app::config::database_options(&dsn, 1)).await.unwrap();
    db::check_migrated(&pool).await.unwrap();
    let zone_data: i64 = sqlx::query_scalar("SELECT count(*) FROM zone_data").fetch_one(&pool).await.unwrap();
    assert_eq!(zone_data, 1, "stored by one of them");
    pool.close().await;
    s.pool.execute(sqlx::AssertSqlSafe(format!("DROP DATABASE {empty} WITH (FORCE)"))).await.unwrap();
    s.end().await;
}
