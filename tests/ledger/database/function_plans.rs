//! A function in SQL is planned for each statement that calls it, if Postgres cannot put its text into the statement. A function in
//! PL/pgSQL is planned once for each session. So a function that statements call is either put into them or is in PL/pgSQL.

use local::stack::Database;
use sqlx::{Connection as _, PgConnection};

/// Migrations, jobs, the gauges of the publisher and the verification of the audit log call these, and no edit, fire or claim.
const RARELY_CALLED: [&str; 4] = ["audit_kept_from", "cronbox_xmin_age", "day_bound", "reason_code"];

/// Every function in SQL, with a call whose arguments are columns of several rows, so that it is no constant.
const CALLS: &str = "
    SELECT p.proname::text,
           CASE WHEN p.proretset THEN format('SELECT * FROM (VALUES %s) AS t (%s), LATERAL %s', a.rows, a.names, a.call)
                                 ELSE format('SELECT %s FROM (VALUES %s) AS t (%s)', a.call, a.rows, a.names) END
      FROM pg_proc p
      JOIN pg_language l ON l.oid = p.prolang
     CROSS JOIN LATERAL (
           SELECT format('(0, %1$s), (1, %1$s)', COALESCE(string_agg('NULL::' || format_type(type, NULL), ', ' ORDER BY nth), '0')) AS rows,
                  concat_ws(', ', 'nth', COALESCE(string_agg('a' || nth, ', ' ORDER BY nth), 'other')) AS names,
                  format('%I(%s)', p.proname, string_agg('a' || nth, ', ' ORDER BY nth)) AS call
             FROM unnest(p.proargtypes) WITH ORDINALITY AS arguments (type, nth)) AS a
     WHERE l.lanname = 'sql' AND p.pronamespace = 'public'::regnamespace
     ORDER BY p.proname
";

#[tokio::test]
async fn no_statement_plans_a_function_anew() {
    let database = Database::clone_template().await.unwrap();
    let mut session = PgConnection::connect(&database.dsn()).await.unwrap();
    let functions: Vec<(String, String)> = sqlx::query_as(CALLS).fetch_all(&mut session).await.unwrap();
    let mut called = Vec::new();
    for (name, call) in functions {
        let explain = sqlx::AssertSqlSafe(format!("EXPLAIN (VERBOSE, COSTS OFF) {call}"));
        let plan: Vec<String> = sqlx::query_scalar(explain).fetch_all(&mut session).await.unwrap();
        if plan.iter().any(|line| line.contains(&format!("{name}("))) {
            called.push(name);
        }
    }
    assert_eq!(called, RARELY_CALLED);
    session.close().await.unwrap();
    database.remove_clone().await.unwrap();
}
