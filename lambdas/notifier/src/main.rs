//! Step 7 of 7: the notifier, a Lambda that a rule invokes every minute.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use lambda_database::Login;
use notifier::{Config, Notifier};
use schedule::Clock;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cronbox-notifier: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> anyhow::Result<()> {
    let config = Config::read_environment().map_err(|sentence| anyhow!(sentence))?;
    logging::start_log(logging::Form::Json, "info");
    let login = Login::new(config.database.clone(), of_tick);
    // It connects when it is invoked, so that its start does not wait for the database.
    let pool = db::create_pool(&login.load_options().await?)?;
    let notifier = Notifier::new(config, pool, Clock::System).await;
    notifier::serve_lambda(notifier, login).await.map_err(|error| anyhow!(error))
}

/// Connections for messages that are read and settled at once.
fn of_tick(dsn: String) -> db::Options {
    db::Options {
        dsn,
        pooler: db::Pooler::None,
        direct_dsn: None,
        max_connections: 3,
        // A tick has 50 s: if it cannot connect, it reports that and leaves the rest to the next one.
        acquire_timeout: Duration::from_secs(5),
        application_name: "cronbox notifier",
    }
}
