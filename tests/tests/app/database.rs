//! The database's pool: whatever is cancelled, no transaction stays open behind somebody's back.

use std::time::Duration;

use sqlx::postgres::PgPoolOptions;
use tests::Story;

const LEFT_OPEN: &str = "SELECT count(*) FROM pg_stat_activity
                          WHERE datname = current_database() AND application_name = 'cancelled'
                            AND state LIKE 'idle in transaction%'";

fn options(s: &Story) -> db::Options {
    db::Options {
        dsn: s.dsn(),
        max_connections: 8,
        acquire_timeout: Duration::from_secs(5),
        application_name: "cancelled",
    }
}

#[tokio::test]
async fn a_cancelled_begin_leaves_no_transaction_open() {
    let s = Story::today().await;
    let pool = db::connect(&options(&s)).await.unwrap();
    for micros in 0..300 {
        let begin = db::begin(&pool);
        drop(tokio::time::timeout(Duration::from_micros(micros * 3), begin).await);
    }
    s.until(LEFT_OPEN, 0).await;
    let mut tx = db::begin(&pool).await.unwrap();
    sqlx::query("SELECT 1").execute(&mut *tx).await.unwrap();
    assert_eq!(s.count(LEFT_OPEN).await, 1, "the watch sees an open transaction");
    drop(tx);
    pool.close().await;
    s.end().await;
}

#[tokio::test]
async fn a_transaction_that_was_left_on_a_connection_is_rolled_back_at_its_return() {
    let s = Story::today().await;
    let pool = db::connect(&options(&s)).await.unwrap();
    // As sqlx leaves it when a begin is cancelled between the server's work and the client's note of it.
    let mut connection = pool.acquire().await.unwrap();
    sqlx::raw_sql("BEGIN; CREATE TABLE left_over ()").execute(&mut *connection).await.unwrap();
    assert_eq!(s.count(LEFT_OPEN).await, 1);
    drop(connection);
    s.until(LEFT_OPEN, 0).await;
    assert_eq!(s.count("SELECT count(*) FROM pg_tables WHERE tablename = 'left_over'").await, 0);
    pool.close().await;

    // Without our hook it stays: that is what the hook is for.
    let dsn = format!("{}?application_name=cancelled", s.dsn());
    let bare = PgPoolOptions::new().max_connections(1).connect(&dsn).await.unwrap();
    let mut connection = bare.acquire().await.unwrap();
    sqlx::raw_sql("BEGIN").execute(&mut *connection).await.unwrap();
    drop(connection);
    drop(bare.acquire().await.unwrap());
    assert_eq!(s.count(LEFT_OPEN).await, 1);
    bare.close().await;
    s.end().await;
}
