//! A database for each story, and the publisher's binary.

use std::path::PathBuf;
use std::time::Duration;

use db::PgPool;
use local::postgres::{Login, log_in_as};
use local::stack::Database;
use tests::PATIENCE;

/// A new migrated database. It is removed when the test process ends.
pub(crate) async fn fresh() -> (PgPool, String) {
    let dsn = Database::clone_template().await.unwrap().dsn();
    (pool(&dsn), dsn)
}

/// A pool like that of a publisher process, with its login.
pub(crate) fn publisher_pool(dsn: &str) -> PgPool {
    pool(&log_in_as(dsn, Login::Publisher))
}

/// A pool like that of a publisher process, which waits for a connection for a second at most.
pub(crate) fn impatient_pool(dsn: &str) -> PgPool {
    pool_that_waits(&log_in_as(dsn, Login::Publisher), Duration::from_secs(1))
}

/// A pool with the login of the DSN.
pub(crate) fn pool(dsn: &str) -> PgPool {
    pool_that_waits(dsn, PATIENCE)
}

fn pool_that_waits(dsn: &str, acquire_timeout: Duration) -> PgPool {
    db::create_pool(&db::Options {
        acquire_timeout,
        application_name: "cronbox test",
        ..app::config::database_options(dsn, 6)
    })
    .unwrap()
}

/// `make test` builds it next to the tests.
pub(crate) fn publisher_binary() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.set_file_name("cronbox-publisher");
    path
}
