//! What the groups of least privilege may do, and how `cronbox-app migrate --roles` makes them.

use std::borrow::Cow;
use std::collections::BTreeSet;

use local::postgres::{Login, log_in_as};
use sqlx::error::DatabaseError;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tests::Story;
use tokio::process::Command;

use crate::migrations::{migrator, owner_options};
use crate::startup::{app, expect_error, run};

/// Each table, and what the app and the publisher may do with its rows: Select, Insert, Update, Delete; `s` = some columns.
const TABLES: [(&str, &str, &str); 64] = [
    ("_sqlx_migrations", "S", "s"),
    ("api_keys", "SIU", ""),
    ("audit_chain", "SI", ""),
    ("audit_chain_start", "S", ""),
    ("audit_log", "SI", ""),
    ("backfills", "SIUD", ""),
    ("bulk_items", "SIUD", ""),
    ("bulk_operations", "SIUD", ""),
    ("config_generation", "S", "SIU"),
    ("console_sessions", "SIUD", ""),
    ("daily_verifications", "SIUD", ""),
    ("database_identity", "SIU", "SIU"),
    ("dead_letters", "SU", "SIUD"),
    ("decision_minutes", "SIUD", "s"),
    ("decision_sums", "SIUD", "s"),
    ("deleted_workflows", "SIUD", "s"),
    ("event_listeners", "SU", "S"),
    ("events", "SIUD", "I"),
    ("failed_logins", "SIUD", ""),
    ("failure_streaks", "SIUD", ""),
    ("fire_disagreements", "SIUD", "s"),
    ("freezes", "SIUD", "s"),
    ("idempotency_keys", "SIUD", ""),
    ("instances", "SIUD", ""),
    ("job_failures", "SIUD", ""),
    ("jobs", "SIUD", ""),
    ("ledger", "SIUD", "S"),
    ("notification_channels", "SIUD", ""),
    ("notification_conditions", "SIUD", ""),
    ("notification_items", "SIUD", ""),
    ("notification_messages", "SIUD", "s"),
    ("notification_rule_channels", "SIUD", ""),
    ("notification_rules", "SIUD", ""),
    ("notifications", "SIUD", ""),
    ("occurrences", "SIUD", "s"),
    ("orphans", "S", "SIUD"),
    ("outbox_events", "SIUD", "SIU"),
    ("partition_bounds", "S", ""),
    ("prune_marks", "SIU", ""),
    ("publications", "SIUD", "SIUD"),
    ("publishers", "SUD", "SIUD"),
    ("rollout_queue", "S", "SIUD"),
    ("run_attempts", "SIUD", ""),
    ("run_end_minutes", "SIUD", "s"),
    ("run_end_sums", "SIUD", "s"),
    ("run_results", "SIUD", ""),
    ("runs", "SIUD", "s"),
    ("schedule_versions", "SIUD", ""),
    ("sign_in_links", "SIUD", ""),
    ("sightings", "S", "SIUD"),
    ("statistics_start", "S", ""),
    ("sweep_changes", "S", "SIUD"),
    ("sweep_sightings", "S", "SIUD"),
    ("sweeps", "SIUD", "SIUD"),
    ("team_data_keys", "SIU", ""),
    ("team_limits", "SIU", "s"),
    ("team_requested_fires", "SIU", ""),
    ("team_secrets", "SIUD", ""),
    ("team_usage", "SIU", ""),
    ("teams", "SIU", "s"),
    ("watchdog_shards", "SU", "S"),
    ("workflows", "SIUD", "s"),
    ("zone_changes", "SD", "S"),
    ("zone_data", "SD", "S"),
];

/// Each table that the notifier sees, and what it may do, as above. It may change some columns of the messages.
const OF_NOTIFIER: [(&str, &str); 6] = [
    ("notification_channels", "s"),
    ("notification_items", "s"),
    ("notification_messages", "S"),
    ("notifications", "S"),
    ("teams", "s"),
    ("workflows", "s"),
];

/// What the notifier may not do in the tables that it sees.
const NOT_OF_NOTIFIER: [&str; 5] = [
    "SELECT url FROM notification_channels",
    "SELECT signing_secret FROM teams",
    "SELECT action FROM workflows",
    "UPDATE notification_messages SET event = event",
    "UPDATE notification_messages SET channel_id = channel_id",
];

/// What no login of app, publisher or notifier may do.
const NEVER: [&str; 12] = [
    "CREATE TABLE mine ()",
    "ALTER TABLE runs ADD COLUMN mine INTEGER",
    "DROP TABLE runs",
    "ALTER TABLE outbox_processed DETACH PARTITION outbox_processed_before",
    "ALTER TABLE audit_log DISABLE TRIGGER ALL",
    "CREATE INDEX mine ON runs (id)",
    "CREATE OR REPLACE FUNCTION cronbox_now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS 'SELECT now()'",
    "CREATE FUNCTION mine() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
    "ALTER TABLE api_keys OWNER TO CURRENT_USER",
    "SET ROLE cronbox_owner",
    "CREATE ROLE mine",
    "SET session_replication_role = replica",
];

/// The publisher sees neither what a workflow does nor any secret.
const SECRETS: [&str; 6] = [
    "SELECT action FROM workflows",
    "SELECT starting_inputs FROM workflows",
    "SELECT inputs FROM runs",
    "SELECT result FROM runs",
    "SELECT signing_secret FROM teams",
    "SELECT * FROM api_keys",
];

/// The server's opinion of a statement, whose effects are undone.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Permitted,
    Forbidden,
}

async fn verdict(login: &mut PgConnection, statement: String) -> Verdict {
    let mut tx = login.begin().await.unwrap();
    let done = sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(&mut *tx).await;
    tx.rollback().await.unwrap();
    match done {
        Ok(_) => Verdict::Permitted,
        Err(error) => {
            let code = error.as_database_error().and_then(DatabaseError::code).map(Cow::into_owned);
            assert_eq!(code.as_deref(), Some("42501"), "{statement}: {error}");
            Verdict::Forbidden
        }
    }
}

/// The statements of one table, each with the letter of its permission. `EXPLAIN` checks permissions, and changes nothing.
fn statements_of(table: &str, column: &str) -> [(char, String); 5] {
    [
        ('s', format!("EXPLAIN SELECT count(*) FROM {table}")),
        ('S', format!("EXPLAIN SELECT * FROM {table}")),
        ('I', format!("EXPLAIN INSERT INTO {table} DEFAULT VALUES")),
        ('U', format!("EXPLAIN UPDATE {table} SET {column} = DEFAULT WHERE FALSE")),
        ('D', format!("EXPLAIN DELETE FROM {table} WHERE FALSE")),
    ]
}

#[tokio::test]
async fn groups_may_do_only_their_work() {
    let s = Story::today().await;
    let tables: Vec<(String, String)> = sqlx::query_as(
        "SELECT relname::text, attname::text FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attnum = 1
          WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition",
    )
    .fetch_all(&s.pool)
    .await
    .unwrap();
    let found: BTreeSet<&str> = tables.iter().map(|(table, _)| table.as_str()).collect();
    let named: BTreeSet<&str> = TABLES.iter().map(|(table, ..)| *table).collect();
    assert_eq!(found, named, "db/src/roles/grants.sql and TABLES say of each table who may use it");

    let mut app = PgConnection::connect(&s.dsn()).await.unwrap();
    let mut publisher = PgConnection::connect(&s.publisher_dsn()).await.unwrap();
    let mut notifier = PgConnection::connect(&log_in_as(&s.owner_dsn(), Login::Notifier)).await.unwrap();
    for (table, of_app, of_publisher) in TABLES {
        let column = &tables.iter().find(|(name, _)| name == table).unwrap().1;
        let of_notifier = OF_NOTIFIER.iter().find(|(name, _)| *name == table).map_or("", |(_, permitted)| permitted);
        for (who, login, permitted) in [
            ("app", &mut app, of_app),
            ("publisher", &mut publisher, of_publisher),
            ("notifier", &mut notifier, of_notifier),
        ] {
            for (letter, statement) in statements_of(table, column) {
                let is_permitted = permitted.contains(letter) || letter == 's' && permitted.contains('S');
                let expected = if is_permitted { Verdict::Permitted } else { Verdict::Forbidden };
                assert_eq!(verdict(login, statement.clone()).await, expected, "{who}: {statement}");
            }
            assert_eq!(verdict(login, format!("TRUNCATE {table}")).await, Verdict::Forbidden, "{who}: {table}");
        }
    }
    // A right on a partition of the audit log would be another way to its entries.
    let open =
        "SELECT count(*) FROM pg_inherits, LATERAL aclexplode((SELECT relacl FROM pg_class WHERE oid = inhrelid)) AS a
                 WHERE inhparent = 'audit_log'::regclass AND a.grantee <> 'cronbox_owner'::regrole";
    assert_eq!(s.count(open).await, 0);
    for login in [&mut app, &mut publisher, &mut notifier] {
        for statement in NEVER {
            assert_eq!(verdict(login, statement.to_owned()).await, Verdict::Forbidden, "{statement}");
        }
    }
    for statement in SECRETS {
        assert_eq!(verdict(&mut publisher, statement.to_owned()).await, Verdict::Forbidden, "{statement}");
    }
    for statement in NOT_OF_NOTIFIER {
        assert_eq!(verdict(&mut notifier, statement.to_owned()).await, Verdict::Forbidden, "{statement}");
    }
    s.end().await;
}

/// A function that does what its caller may not must not find another function or table by the caller's path.
#[tokio::test]
async fn functions_of_the_owner_are_closed() {
    let s = Story::today().await;
    let open = "SELECT count(*) FROM pg_proc
                 WHERE prosecdef AND pronamespace = 'public'::regnamespace
                   AND (has_function_privilege('public', oid, 'EXECUTE')
                        OR NOT EXISTS (SELECT FROM unnest(proconfig) AS set WHERE set LIKE 'search_path=%'))";
    assert_eq!(s.count(open).await, 0);
    s.end().await;
}

/// The app writes a table that it knows after its deployment. The publisher reads it when the grants say so.
#[tokio::test]
async fn later_tables_are_the_apps() {
    let s = Story::today().await;
    db::migrate_by(&migrator("CREATE TABLE later (n INTEGER)", false), &owner_options(&s)).await.unwrap();
    let owner = "SELECT count(*) FROM pg_class WHERE relname = 'later' AND relowner = 'cronbox_owner'::regrole";
    assert_eq!(s.count(owner).await, 1, "a migration runs as the owner");
    let mut app = PgConnection::connect(&s.dsn()).await.unwrap();
    let mut publisher = PgConnection::connect(&s.publisher_dsn()).await.unwrap();
    let insert = || "INSERT INTO later VALUES (1)".to_owned();
    assert_eq!(verdict(&mut app, insert()).await, Verdict::Permitted);
    assert_eq!(verdict(&mut publisher, insert()).await, Verdict::Forbidden);
    assert_eq!(verdict(&mut publisher, "SELECT FROM later".to_owned()).await, Verdict::Forbidden);
    s.end().await;
}

/// A second line of defence, for a login whose program sets no timeouts.
#[tokio::test]
async fn logins_have_timeouts() {
    let s = Story::today().await;
    for dsn in [s.dsn(), s.publisher_dsn(), log_in_as(&s.owner_dsn(), Login::Notifier)] {
        let mut login = PgConnection::connect(&dsn).await.unwrap();
        for (name, value) in
            [("statement_timeout", "15s"), ("lock_timeout", "5s"), ("idle_in_transaction_session_timeout", "10s")]
        {
            let shown = sqlx::query_scalar::<_, String>("SELECT current_setting($1)").bind(name);
            assert_eq!(shown.fetch_one(&mut login).await.unwrap(), value, "{name}");
        }
    }
    s.end().await;
}

/// A deployment makes the logins from its secret store, by two tasks at once, and again with other passwords. The password
/// is in no statement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logins_get_the_passwords_of_a_secret_store() {
    let s = Story::today().await;
    let (first, second) = ("a first password%@/", "a-second-password%@/");
    let refused = migrate_with(&s, "too short", "a publisher's password").await;
    assert!(refused.contains("the password of cronbox_serve cannot be used"), "{refused}");
    assert!(!refused.contains("too short"), "{refused}");
    let first = first.replace(' ', "-");
    for (serve, other) in [(&*first, second), (second, &*first)] {
        let both = tokio::join!(
            migrate_with(&s, serve, "the-publishers-password"),
            migrate_with(&s, serve, "the-publishers-password")
        );
        assert_eq!(both, (String::new(), String::new()));
        let mut login = log_in(&s, "cronbox_serve", serve).await.unwrap();
        let limit: String = sqlx::query_scalar("SHOW statement_timeout").fetch_one(&mut login).await.unwrap();
        assert_eq!(limit, "15s", "as every login of the app");
        sqlx::query("SELECT FROM workflows").execute(&mut login).await.unwrap();
        assert!(log_in(&s, "cronbox_serve", other).await.is_err(), "the other password");
        let mut publisher = log_in(&s, "cronbox_publish", "the-publishers-password").await.unwrap();
        assert_eq!(verdict(&mut publisher, "SELECT * FROM api_keys".to_owned()).await, Verdict::Forbidden);
        let mut notifier = log_in(&s, "cronbox_notify", "the-notifiers-password").await.unwrap();
        let sees = "SELECT FROM notification_messages".to_owned();
        assert_eq!(verdict(&mut notifier, sees).await, Verdict::Permitted);
        assert_eq!(verdict(&mut notifier, "SELECT FROM publications".to_owned()).await, Verdict::Forbidden);
    }
    s.end().await;
}

/// Logins belong to the server: with names of its own, another environment leaves the passwords of the first one as they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn environments_on_one_server_have_logins_of_their_own() {
    let s = Story::today().await;
    let (first, second) = ("the-first-password", "the-second-password");
    for (name, password) in [("cronbox_serve_one", first), ("cronbox_serve_two", second)] {
        let mut migrate = migration(&s, password, "the-publishers-password");
        let done =
            run(migrate.env("CRONBOX_SERVE_LOGIN", name).env("CRONBOX_PUBLISH_LOGIN", "cronbox_publish_one")).await;
        assert_eq!(String::from_utf8(done.stderr).unwrap(), "");
    }
    log_in(&s, "cronbox_serve_one", first).await.unwrap();
    log_in(&s, "cronbox_serve_two", second).await.unwrap();
    for refused in ["", "Cronbox", "a-b", "pg_read_all_data", "cronbox_owner", &"a".repeat(64)] {
        let mut migrate = migration(&s, first, "the-publishers-password");
        expect_error(&run(migrate.env("CRONBOX_SERVE_LOGIN", refused)).await, "cannot be made");
    }
    s.end().await;
}

/// The error of `cronbox-app migrate --roles` with these passwords; empty if it succeeds.
async fn migrate_with(s: &Story, serve: &str, publish: &str) -> String {
    String::from_utf8(run(&mut migration(s, serve, publish)).await.stderr).unwrap()
}

fn migration(s: &Story, serve: &str, publish: &str) -> Command {
    let mut migrate = app();
    migrate.args(["migrate", "--roles"]).env("DATABASE_URL", s.owner_dsn()).env("RUST_LOG", "error");
    migrate.env("CRONBOX_SERVE_PASSWORD", serve).env("CRONBOX_PUBLISH_PASSWORD", publish);
    migrate.env("CRONBOX_NOTIFY_PASSWORD", "the-notifiers-password");
    migrate
}

async fn log_in(s: &Story, login: &str, password: &str) -> sqlx::Result<PgConnection> {
    let options: sqlx::postgres::PgConnectOptions = s.owner_dsn().parse()?;
    sqlx::ConnectOptions::connect(&options.username(login).password(password)).await
}

/// The schema has a table and a function of another program, as with an extension that the provider of the database owns.
/// No other role may use them afterwards.
#[tokio::test]
async fn objects_of_other_programs_stay_as_they_are() {
    let s = Story::today().await;
    let others = "
        CREATE TABLE others (n INTEGER);
        CREATE FUNCTION others() RETURNS INTEGER LANGUAGE sql AS 'SELECT 1';
        REVOKE EXECUTE ON FUNCTION others() FROM PUBLIC";
    sqlx::raw_sql(others).execute(&s.pool).await.unwrap();
    let grants = "SELECT count(*) FROM (SELECT relacl AS acl FROM pg_class WHERE relname = 'others'
                                         UNION ALL
                                        SELECT proacl FROM pg_proc WHERE proname = 'others') AS of_others,
                                       aclexplode(acl)
                   WHERE grantee <> grantor";
    let taken = "SELECT count(*) FROM (SELECT relowner AS owner FROM pg_class WHERE relname = 'others'
                                        UNION ALL
                                       SELECT proowner FROM pg_proc WHERE proname = 'others') AS of_others
                  WHERE owner = 'cronbox_owner'::regrole";
    for words in [&["migrate"][..], &["migrate", "--roles"]] {
        let done = run(app().args(words).env("DATABASE_URL", s.owner_dsn()).env("RUST_LOG", "warn")).await;
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
        // Logins belong to the server: another test may remove one that this command is about to limit.
        let said = String::from_utf8_lossy(&done.stderr);
        let said: Vec<_> = said.lines().filter(|line| !line.contains("timeout of a login not set")).collect();
        assert_eq!(said, [""; 0], "{words:?}");
        assert_eq!(s.count(grants).await, 0, "{words:?}");
        assert_eq!(s.count(taken).await, 0, "{words:?}");
    }
    s.end().await;
}

/// A database of one login gets the groups, twice at the same time. The old login goes on, and may migrate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemas_change_to_the_owner() {
    let s = Story::today().await;
    let dsn = s.owner_dsn();
    let (server, database) = dsn.rsplit_once('/').unwrap();
    let (old, name) = (format!("{database}_old"), format!("{database}_single"));
    for statement in [format!("CREATE ROLE {old} LOGIN PASSWORD 'x'"), format!("CREATE DATABASE {name} OWNER {old}")] {
        s.pool.execute(AssertSqlSafe(statement)).await.unwrap();
    }
    let single = format!("{server}/{name}");
    let (_, place) = single.rsplit_once('@').unwrap();
    let as_old = format!("postgres://{old}:x@{place}");
    let migrate = async |dsn: &str, words: &[&str]| {
        let output = run(app().arg("migrate").args(words).env("DATABASE_URL", dsn).env("NO_COLOR", "1")).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    migrate(&as_old, &[]).await;

    tokio::join!(migrate(&single, &["--roles"]), migrate(&single, &["--roles"]));
    migrate(&as_old, &["--roles"]).await;

    let mut admin = PgConnection::connect(&single).await.unwrap();
    let others = "SELECT count(*) FROM (SELECT relowner AS owner FROM pg_class WHERE relnamespace = 'public'::regnamespace
                                         UNION ALL
                                        SELECT proowner FROM pg_proc WHERE pronamespace = 'public'::regnamespace) AS all_owners
                   WHERE owner <> 'cronbox_owner'::regrole";
    assert_eq!(sqlx::query_scalar::<_, i64>(others).fetch_one(&mut admin).await.unwrap(), 0);
    let mut login = PgConnection::connect(&as_old).await.unwrap();
    let still = "UPDATE jobs SET locked_by = locked_by".to_owned();
    assert_eq!(verdict(&mut login, still).await, Verdict::Permitted, "the processes of before continue");
    drop((admin, login));
    for statement in [
        format!("DROP DATABASE {name} WITH (FORCE)"),
        format!("REVOKE cronbox_owner FROM {old}"),
        format!("DROP ROLE {old}"),
    ] {
        s.pool.execute(AssertSqlSafe(statement)).await.unwrap();
    }
    s.end().await;
}
