//! Step 6 of 7: the runner, a Lambda that EventBridge Scheduler invokes.

use std::process::ExitCode;

use anyhow::anyhow;
use runner::{Config, Runner};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cronbox-runner: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> anyhow::Result<()> {
    let (config, old_variables) = Config::read_environment().map_err(|sentence| anyhow!(sentence))?;
    logging::start_log(logging::Form::Json, "info");
    old_names::warn_of_variables(&old_variables);
    // Its environment comes from OTEL_RESOURCE_ATTRIBUTES: nothing else in it depends on one.
    traces::start_export("cronbox-runner", None);
    runner::serve_lambda(Runner::new(config)?).await.map_err(|error| anyhow!(error))
}
