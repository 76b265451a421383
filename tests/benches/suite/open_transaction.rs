//! B4: a drain beside a transaction that stays open, so that vacuum can remove no dead row.

use crate::backlog::Backlog;
use crate::table::Row;

const ROWS: i64 = 200_000;
const WORKFLOWS: i64 = 20_000;

pub(crate) async fn all() -> Vec<Row> {
    let backlog = Backlog::new(0, None).await;
    backlog.fill(ROWS, WORKFLOWS).await;
    let mut open = db::begin_transaction(&backlog.pool).await.unwrap();
    sqlx::raw_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM workflows LIMIT 1")
        .execute(&mut *open)
        .await
        .unwrap();
    let drained = backlog.drain(1, None).await;
    open.rollback().await.unwrap();
    let ends: Vec<f64> = backlog.scalar(QUARTERS).await;
    // The first quarter begins at its own first row, because before that the process starts.
    let quarter = |nth: usize| ends[nth + 1] - ends[nth];
    #[expect(clippy::cast_precision_loss, reason = "a number of rows")]
    let rate = |secs: f64| ROWS as f64 / 4.0 / secs;
    let figures = vec![
        ("rows/s", drained.rows / drained.secs),
        ("first quarter rows/s", rate(quarter(0))),
        ("last quarter rows/s", rate(quarter(3))),
        ("dead rows", backlog.scalar::<i64>(DEAD).await as f64),
    ];
    let row = Row::new("B4", "200,000 rows / 20,000 workflows, a transaction held open", figures);
    let row = row.against("last quarter against the first", quarter(0) / quarter(3), 0.5, 0.9);
    backlog.end().await;
    vec![row]
}

/// When the first row was marked, and when each quarter of the rows was.
const QUARTERS: &str = "
    SELECT ARRAY[0.0::float8] || array_agg(EXTRACT(EPOCH FROM at - (SELECT MIN(processed_on) FROM outbox_events))::float8 ORDER BY at)
      FROM (SELECT MAX(processed_on) AS at
              FROM (SELECT processed_on, NTILE(4) OVER (ORDER BY processed_on) AS nth FROM outbox_events) AS rows
             GROUP BY nth) AS quarters";
const DEAD: &str =
    "SELECT SUM(n_dead_tup)::bigint FROM pg_stat_user_tables WHERE relname IN ('outbox_open', 'publications')";
