//! The schema's migrations: applied without a time limit for a statement, and with a short one for a lock.

mod partition_indexes;

use std::time::Duration;

use anyhow::{Context, bail};
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};

use self::partition_indexes::{build_partition_indexes, is_partition_index};
use crate::options::{Options, migration_options, migration_settings};
use crate::pool::PgPool;
use crate::roles::{Groups, Roles, become_owner, grant_privileges, make_groups};

/// The schema: `migrations/NNNN_noun.sql`, forward only.
pub static MIGRATOR: Migrator = sqlx::migrate!("../migrations");

/// SQLSTATEs of a lock that could not be acquired within `lock_timeout`, and of a deadlock: fires lock workflows and
/// occurrences in another order than the removal of a foreign key does.
const LOCK_NOT_AVAILABLE: [&str; 2] = ["55P03", "40P01"];
/// How often to try a lock: ten minutes with the waits of 5 s.
const MOST_TRIES: u32 = 100;
/// Between two tries the statements that waited behind the lock run.
const PAUSE: Duration = Duration::from_secs(1);

/// Applies all pending migrations, as the owner of the schema if the schema belongs to the group of owners. Refuses a
/// database that has a migration which this program does not know.
///
/// A migration that waits for a lock makes all later statements on the table wait behind it, so it stops waiting after
/// 5 s, lets them pass and tries again. It waits without a limit while another process migrates, because an index on
/// many rows takes time.
///
/// # Errors
/// Fails if a migration fails or cannot get its lock.
pub async fn migrate_schema(options: &Options) -> anyhow::Result<()> {
    migrate_until_done(&MIGRATOR, options, Roles::Grant).await
}

/// Like [`migrate_schema`]; before, it makes the groups of least privilege, and gives them the schema.
///
/// # Errors
/// Fails like [`migrate_schema`], and if the login may not make the groups or does not own the tables.
pub async fn migrate_with_roles(options: &Options) -> anyhow::Result<()> {
    migrate_until_done(&MIGRATOR, options, Roles::Make).await
}

/// Like [`migrate_schema`], with the given migrations and without the grants.
///
/// # Errors
/// Fails like [`migrate_schema`].
pub async fn migrate_by(migrator: &Migrator, options: &Options) -> anyhow::Result<()> {
    migrate_until_done(migrator, options, Roles::Follow).await
}

/// Whether the schema is now the one of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaState {
    /// All migrations of this program are applied, and no other one is.
    Current,
    /// The schema has a migration that this program does not know. Nothing is changed.
    Newer,
}

/// Like [`migrate_with_roles`] or, without `makes_roles`, [`migrate_schema`], but accepts a database that has a migration
/// which this program does not know: it changes neither the schema nor the groups nor their privileges, because those of
/// the newer program include what this one needs (expand, then contract).
///
/// # Errors
/// Fails like [`migrate_with_roles`], except for a newer schema.
pub async fn migrate_unless_newer(options: &Options, makes_roles: bool) -> anyhow::Result<SchemaState> {
    let roles = if makes_roles { Roles::Make } else { Roles::Grant };
    migrate_in_tries(&MIGRATOR, options, roles, NewerSchema::Accept).await
}

async fn migrate_until_done(migrator: &Migrator, options: &Options, roles: Roles) -> anyhow::Result<()> {
    migrate_in_tries(migrator, options, roles, NewerSchema::Refuse).await.map(drop)
}

/// What to do if the schema has a migration that this program does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NewerSchema {
    Refuse,
    Accept,
}

async fn migrate_in_tries(
    migrator: &Migrator,
    options: &Options,
    roles: Roles,
    newer: NewerSchema,
) -> anyhow::Result<SchemaState> {
    let (mut locked, mut is_logged) = (0, false);
    while locked < MOST_TRIES {
        // A new connection for each try, because closing it releases the advisory lock of the migrations.
        let mut connection = migration_options(options)?.connect().await.context("cannot reach the database")?;
        let done = try_once(migrator, &mut connection, options, roles, newer).await;
        drop(connection.close().await);
        match done {
            Ok(Tried::Migrated) => return Ok(SchemaState::Current),
            Ok(Tried::FoundNewer(version)) => {
                tracing::warn!(
                    migration = version,
                    "newer schema accepted: this program does not know the migration, and changes nothing"
                );
                return Ok(SchemaState::Newer);
            }
            Ok(Tried::GroupsChange) => {
                locked += 1;
                tracing::info!(attempt = locked, "migration tries again: another process changes the groups");
            }
            Ok(Tried::AnotherMigrates) => {
                if !std::mem::replace(&mut is_logged, true) {
                    tracing::info!("migration waits: another process migrates the database");
                }
            }
            Err(error) if is_locked(&error) => {
                locked += 1;
                tracing::warn!(attempt = locked, "migration waits for a lock and tries again");
            }
            Err(error) => return Err(explain_newer(error).context("cannot bring the database's schema up to date")),
        }
        tokio::time::sleep(PAUSE).await;
    }
    bail!("a migration did not get its lock: end the long transactions, then migrate again")
}

/// Key of the advisory lock of one try.
const MIGRATING: i64 = 0x63_726f_6e62_6f78;

/// The outcome of one try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tried {
    Migrated,
    /// The schema has this migration, which the program does not know and accepts.
    FoundNewer(i64),
    AnotherMigrates,
    GroupsChange,
}

async fn try_once(
    migrator: &Migrator,
    connection: &mut PgConnection,
    options: &Options,
    roles: Roles,
    newer: NewerSchema,
) -> anyhow::Result<Tried> {
    if let Some(settings) = migration_settings(options) {
        sqlx::raw_sql(settings).execute(&mut *connection).await?;
    }
    // Another process may be building an index that is incomplete now. Do not wait for the lock: a waiting statement
    // has a snapshot, and CREATE INDEX CONCURRENTLY waits for all snapshots.
    let is_alone = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(MIGRATING);
    if !is_alone.fetch_one(&mut *connection).await? {
        return Ok(Tried::AnotherMigrates);
    }
    // Before the groups: those of the newer program stay as they are.
    if newer == NewerSchema::Accept
        && let Some(version) = find_unknown_migration(migrator, connection).await?
    {
        return Ok(Tried::FoundNewer(version));
    }
    if roles == Roles::Make && make_groups(migrator, connection).await? == Groups::ChangeNow {
        return Ok(Tried::GroupsChange);
    }
    let is_owner = become_owner(roles, connection).await?;
    drop_invalid_indexes(migrator, connection).await?;
    // The migrations refuse a newer schema, so it stays as it is.
    if find_unknown_migration(migrator, connection).await?.is_none() {
        build_partition_indexes(connection).await?;
    }
    match migrator.run(&mut *connection).await {
        Err(MigrateError::VersionMissing(version)) if newer == NewerSchema::Accept => {
            return Ok(Tried::FoundNewer(version));
        }
        done => done?,
    }
    if is_owner && roles != Roles::Follow && grant_privileges(connection).await? == Groups::ChangeNow {
        return Ok(Tried::GroupsChange);
    }
    Ok(Tried::Migrated)
}

/// Returns the latest applied migration that the program does not know.
async fn find_unknown_migration(migrator: &Migrator, connection: &mut PgConnection) -> sqlx::Result<Option<i64>> {
    // A login that may not read the table yet finds out when it migrates as the owner.
    let is_readable: bool = sqlx::query_scalar(
        "-- is_readable
         SELECT COALESCE(has_table_privilege(to_regclass('_sqlx_migrations'), 'SELECT'), FALSE)",
    )
    .fetch_one(&mut *connection)
    .await?;
    if !is_readable {
        return Ok(None);
    }
    // Also one that failed halfway: the rollback from its version must start.
    let applied: Vec<i64> = sqlx::query_scalar(
        "-- find_unknown_migration
         SELECT version FROM _sqlx_migrations ORDER BY version DESC",
    )
    .fetch_all(&mut *connection)
    .await?;
    Ok(applied.into_iter().find(|version| !migrator.version_exists(*version)))
}

/// Drops the index of an interrupted `CREATE INDEX CONCURRENTLY`, so that it can be created again.
async fn drop_invalid_indexes(migrator: &Migrator, connection: &mut PgConnection) -> anyhow::Result<()> {
    let invalid: Vec<String> = sqlx::query_scalar(
        "-- drop_invalid_indexes
         SELECT relname::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
          WHERE NOT indisvalid AND pg_class.relnamespace = current_schema()::regnamespace",
    )
    .fetch_all(&mut *connection)
    .await?;
    for name in invalid.iter().filter(|name| is_ours(migrator, name)) {
        tracing::warn!(index = name, "unfinished index dropped; it is created again");
        // The name is that of an index of ours.
        sqlx::raw_sql(AssertSqlSafe(format!("DROP INDEX CONCURRENTLY IF EXISTS {name}")))
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

fn is_ours(migrator: &Migrator, index: &str) -> bool {
    let mut unlocked = migrator.iter().filter(|migration| migration.no_tx);
    is_partition_index(index)
        || unlocked.any(|migration| migration.sql.as_str().split_whitespace().any(|word| word == index))
}

/// An older program must not touch a newer schema: it would apply nothing, and would report that it had.
fn explain_newer(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<MigrateError>() {
        Some(MigrateError::VersionMissing(version)) => anyhow::anyhow!(
            "the database has migration {version}, which this program does not know: migrate with the program of the \
             version that applied it, or a later one"
        ),
        _ => error,
    }
}

fn is_locked(error: &anyhow::Error) -> bool {
    let cause = match error.downcast_ref::<MigrateError>() {
        Some(MigrateError::Execute(cause) | MigrateError::ExecuteMigration(cause, _)) => Some(cause),
        _ => error.downcast_ref::<sqlx::Error>(),
    };
    let code = cause.and_then(sqlx::Error::as_database_error).and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| LOCK_NOT_AVAILABLE.contains(&&*code))
}

/// Refuses a database whose schema is older than this program; a newer one is accepted (expand, then contract).
///
/// # Errors
/// Returns one sentence that says what to do.
pub async fn check_migrated(pool: &PgPool) -> anyhow::Result<()> {
    let applied: Vec<i64> = sqlx::query_scalar("SELECT version FROM _sqlx_migrations WHERE success")
        .fetch_all(pool)
        .await
        .or_else(|error| match error.as_database_error().and_then(sqlx::error::DatabaseError::code) {
            Some(code) if code == "42P01" => Ok(Vec::new()), // undefined table: never migrated
            _ => Err(error),
        })
        .context("cannot read the version of the database's schema")?;
    match MIGRATOR.iter().find(|migration| !applied.contains(&migration.version)) {
        None => Ok(()),
        Some(missing) => {
            bail!(
                "the database lacks migration {} ({}): run `cronbox-app migrate`",
                missing.version,
                missing.description
            )
        }
    }
}
