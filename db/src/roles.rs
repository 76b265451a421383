//! The groups of least privilege: one owns the schema, and app, publisher and notifier each do what they need.
//!
//! Logins are the operator's: `CREATE ROLE .. LOGIN IN ROLE cronbox_app`, or those of [`logins`]. A group passes its privileges on to its
//! logins, but not its settings, so the timeouts are set for each login.

pub(crate) mod logins;

use std::collections::HashSet;

use anyhow::Context;
use sqlx::error::DatabaseError;
use sqlx::migrate::Migrator;
use sqlx::{AssertSqlSafe, FromRow, PgConnection};

use crate::options::TIMEOUTS;

/// The group that owns the schema.
pub const OWNER_GROUP: &str = "cronbox_owner";
/// The group of the app's logins.
pub const APP_GROUP: &str = "cronbox_app";
/// The group of the publisher's logins.
pub const PUBLISHER_GROUP: &str = "cronbox_publisher";
/// The group of the notifier's logins.
pub const NOTIFIER_GROUP: &str = "cronbox_notifier";

/// Codes of a statement that another session has made unnecessary meanwhile, or that met its change of the same row.
const MADE_MEANWHILE: [&str; 3] = ["42710", "23505", "XX000"];
/// SQLSTATE of a statement that the role may not execute.
const INSUFFICIENT_PRIVILEGE: &str = "42501";

/// What a migration does about the groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Roles {
    /// It makes them, gives the schema to the owner, and grants
    Make,
    /// If the schema belongs to the owner, it migrates as the owner, and grants
    Grant,
    /// If the schema belongs to the owner, it migrates as the owner
    Follow,
}

/// Whether the groups exist now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Groups {
    Exist,
    /// Another session changes them at the same time, for example for another database of the server.
    ChangeNow,
}

/// Makes the groups, gives our tables and functions to the owner, and sets the timeouts of the logins.
///
/// Each table is a transaction of its own: the change of an owner locks the table, and the app uses the others.
pub(crate) async fn make_groups(migrator: &Migrator, connection: &mut PgConnection) -> anyhow::Result<Groups> {
    match sqlx::raw_sql(include_str!("roles/groups.sql")).execute(&mut *connection).await {
        Ok(_) => {}
        Err(error) if is_made_meanwhile(&error) => return Ok(Groups::ChangeNow),
        Err(error) if code(&error).as_deref() == Some(INSUFFICIENT_PRIVILEGE) => {
            return Err(error).context("this login may not make the groups: migrate with a role that has CREATEROLE");
        }
        Err(error) => return Err(error).context("cannot make the groups"),
    }
    give_to_owner(migrator, connection).await?;
    limit_logins(connection).await
}

/// Continues as the owner, if the schema belongs to it or `roles` gives it the schema. Returns whether it does.
pub(crate) async fn become_owner(roles: Roles, connection: &mut PgConnection) -> anyhow::Result<bool> {
    let is_owned = roles == Roles::Make || is_owned_by_group(connection).await?;
    if is_owned {
        sqlx::raw_sql("SET ROLE cronbox_owner")
            .execute(connection)
            .await
            .with_context(|| format!("the schema belongs to {OWNER_GROUP}: migrate with a login of that group"))?;
    }
    Ok(is_owned)
}

/// Grants what app, publisher and notifier may do, also on what the last migrations made.
pub(crate) async fn grant_privileges(connection: &mut PgConnection) -> anyhow::Result<Groups> {
    match sqlx::raw_sql(include_str!("roles/grants.sql")).execute(connection).await {
        Ok(_) => Ok(Groups::Exist),
        Err(error) if is_made_meanwhile(&error) => Ok(Groups::ChangeNow),
        Err(error) => Err(error).context("cannot grant the groups their privileges"),
    }
}

async fn is_owned_by_group(connection: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "-- is_owned_by_group
         SELECT EXISTS (SELECT FROM pg_class
                         WHERE oid = to_regclass('_sqlx_migrations') AND pg_get_userbyid(relowner) = $1)",
    )
    .bind(OWNER_GROUP)
    .fetch_one(connection)
    .await
}

/// A table, sequence or function of another owner.
#[derive(FromRow)]
struct Foreign {
    statement: String,
    name: String,
    owner: String,
}

async fn give_to_owner(migrator: &Migrator, connection: &mut PgConnection) -> anyhow::Result<()> {
    let made: HashSet<&str> = migrator.iter().flat_map(|migration| names_in(migration.sql.as_str())).collect();
    let foreign = list_foreign(connection).await?;
    // The database may have tables of other programs.
    for ours in foreign.iter().filter(|one| one.name == "_sqlx_migrations" || made.contains(&*one.name)) {
        keep_access(connection, &ours.owner).await?;
        // The name is that of a table, sequence or function of our migrations, quoted by the server.
        let given = sqlx::raw_sql(AssertSqlSafe(ours.statement.clone())).execute(&mut *connection).await;
        given.with_context(|| {
            format!("{} belongs to {}: migrate as that role, or with a role of its members", ours.name, ours.owner)
        })?;
    }
    Ok(())
}

/// The tables, views, sequences and functions that statements name, without words in comments.
fn names_in(sql: &str) -> impl Iterator<Item = &str> {
    let code = sql.lines().map(|line| line.split("--").next().unwrap_or_default());
    let is_part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut words = code.flat_map(move |line| line.split(move |c| !is_part_of_name(c))).filter(|word| !word.is_empty());
    std::iter::from_fn(move || {
        words.find(|word| ["TABLE", "VIEW", "SEQUENCE", "FUNCTION", "PROCEDURE", "TO"].contains(word))?;
        words.find(|word| !["IF", "NOT", "EXISTS", "ONLY"].contains(word))
    })
}

async fn list_foreign(connection: &mut PgConnection) -> sqlx::Result<Vec<Foreign>> {
    sqlx::query_as(
        "-- list_foreign: without what extensions own, and without sequences of identity columns, which follow their table;
         -- a partition, which a function may have named, has the name of its table
         SELECT format('ALTER %s %s OWNER TO cronbox_owner',
                       CASE relkind WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'TABLE' END,
                       oid::regclass) AS statement,
                COALESCE((SELECT root.relname FROM pg_class AS root WHERE root.oid = pg_partition_root(pg_class.oid)), relname)::text
                    AS name,
                pg_get_userbyid(relowner)::text AS owner
           FROM pg_class
          WHERE relnamespace = current_schema()::regnamespace
            AND relowner <> 'cronbox_owner'::regrole
            AND relkind IN ('r', 'p', 'v', 'm', 'S')
            AND NOT EXISTS (SELECT FROM pg_depend AS d
                             WHERE d.classid = 'pg_class'::regclass AND d.objid = pg_class.oid
                               AND (d.deptype = 'e' OR relkind = 'S' AND d.deptype IN ('a', 'i')))
         UNION ALL
         SELECT format('ALTER ROUTINE %s OWNER TO cronbox_owner', oid::regprocedure),
                proname::text, pg_get_userbyid(proowner)::text
           FROM pg_proc
          WHERE pronamespace = current_schema()::regnamespace
            AND proowner <> 'cronbox_owner'::regrole
            AND NOT EXISTS (SELECT FROM pg_depend AS d
                             WHERE d.classid = 'pg_proc'::regclass AND d.objid = pg_proc.oid AND d.deptype = 'e')
          ORDER BY 1",
    )
    .fetch_all(connection)
    .await
}

/// Makes the previous owner a member of the group, so that the processes that log in as it continue.
async fn keep_access(connection: &mut PgConnection, owner: &str) -> anyhow::Result<()> {
    let grant: Option<String> = sqlx::query_scalar(
        "-- keep_access
         SELECT format('GRANT cronbox_owner TO %I', $1::text) WHERE NOT pg_has_role($1::name, 'cronbox_owner', 'MEMBER')",
    )
    .bind(owner)
    .fetch_optional(&mut *connection)
    .await?;
    if let Some(grant) = grant {
        // The server has quoted the name.
        sqlx::raw_sql(AssertSqlSafe(grant))
            .execute(connection)
            .await
            .with_context(|| format!("cannot make {owner}, which owns the tables, a member of {OWNER_GROUP}"))?;
    }
    Ok(())
}

/// A timeout that a login lacks.
#[derive(FromRow)]
struct Unlimited {
    login: String,
    statement: String,
}

/// Sets the timeouts of the logins, behind those that our programs set themselves. A value of the operator stays.
async fn limit_logins(connection: &mut PgConnection) -> anyhow::Result<Groups> {
    let (names, values): (Vec<&str>, Vec<&str>) = TIMEOUTS.iter().copied().unzip();
    let unlimited: Vec<Unlimited> = sqlx::query_as(
        "-- limit_logins: an owner's migrations take as long as they need
         SELECT l.rolname::text AS login, format('ALTER ROLE %I SET %I = %L', l.rolname, t.name, t.value) AS statement
           FROM pg_roles AS l, unnest($1::text[], $2::text[]) AS t (name, value)
          WHERE l.rolcanlogin
            AND NOT l.rolsuper
            AND (pg_has_role(l.oid, 'cronbox_app', 'MEMBER') OR pg_has_role(l.oid, 'cronbox_publisher', 'MEMBER')
                 OR pg_has_role(l.oid, 'cronbox_notifier', 'MEMBER'))
            AND NOT pg_has_role(l.oid, 'cronbox_owner', 'MEMBER')
            AND NOT EXISTS (SELECT FROM pg_db_role_setting AS s, unnest(s.setconfig) AS set
                             WHERE s.setrole = l.oid AND set LIKE t.name || '=%')
          ORDER BY 1, 2",
    )
    .bind(names)
    .bind(values)
    .fetch_all(&mut *connection)
    .await
    .context("cannot read the timeouts of the logins")?;
    for one in unlimited {
        // The server has quoted the names.
        let done = sqlx::raw_sql(AssertSqlSafe(one.statement.clone())).execute(&mut *connection).await;
        match done {
            Ok(_) => {}
            Err(error) if is_made_meanwhile(&error) => return Ok(Groups::ChangeNow),
            // Our programs set the same timeouts themselves.
            Err(error) => {
                tracing::warn!(login = one.login, %error, "timeout of a login not set: run {}", one.statement);
            }
        }
    }
    Ok(Groups::Exist)
}

fn is_made_meanwhile(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| MADE_MEANWHILE.contains(&&*code))
}

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(DatabaseError::code).map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_statements_make() {
        let sql = "-- The table of others
                   CREATE TABLE IF NOT EXISTS mine (n INTEGER); -- no TABLE theirs
                   CREATE OR REPLACE FUNCTION count_mine() RETURNS void AS $$ SELECT $$;
                   ALTER TABLE mine RENAME TO ours;";
        assert_eq!(names_in(sql).collect::<Vec<_>>(), ["mine", "count_mine", "mine", "ours"]);
    }
}
