//! Postgres restarts behind the real pgbouncer.

use std::time::{Duration, Instant};

use local::postgres::{Login, log_in_as};
use tests::{PATIENCE, PgBouncer, Way};

use crate::database_outages::Server;

/// The open transaction is lost, and is reported as such. The pool then reaches the new server through the same pooler.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_pass_through_poolers() {
    for mode in ["session", "transaction"] {
        let mut server = Server::start().await;
        let mut way = Way::to(&server.dsn()).await;
        let pooler = PgBouncer::start(&way.dsn(&server.dsn()), mode).await;
        let dsn = pooler.dsn(&way.dsn(&log_in_as(&server.dsn(), Login::App)));
        let options = db::Options { pooler: mode.parse().unwrap(), ..app::config::database_options(&dsn, 4) };
        let pool = db::connect_pool(&options).await.unwrap();
        let insert = "INSERT INTO jobs (name, next_run) VALUES ($1, now()) ON CONFLICT DO NOTHING";
        sqlx::query(insert).bind("before").execute(&pool).await.unwrap();
        let mut lost = db::begin_transaction(&pool).await.unwrap();
        sqlx::query(insert).bind("lost").execute(&mut *lost).await.unwrap();

        server = server.restart_at_once(way.cut()).await;
        way.lead_to(&server.dsn());
        way.mend().await;

        assert!(lost.commit().await.is_err(), "{mode}: a commit that is not durable is no success");
        let began = Instant::now();
        while sqlx::query(insert).bind("after").execute(&pool).await.is_err() {
            assert!(began.elapsed() < PATIENCE, "{mode}: never reached again");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let names = sqlx::query_scalar::<_, String>("SELECT name FROM jobs ORDER BY name").fetch_all(&pool).await;
        assert_eq!(names.unwrap(), ["after", "before"], "{mode}");
        pool.close().await;
        server.remove();
    }
}
