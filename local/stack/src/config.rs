//! The command line of `cronbox-local`, and the folders of its files and databases.

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use stand_in::config::SchedulerArgs;

/// cronbox on this machine: all parts, or only the stand-in for EventBridge Scheduler.
#[derive(Debug, Parser)]
#[command(name = "cronbox-local", bin_name = "cronbox-local", version)]
pub struct Config {
    /// What is printed: the steps as text, or the log as one JSON object for each line
    #[arg(long, global = true, env = "CRONBOX_LOG_FORMAT", default_value = "text", value_name = "text|json")]
    pub log_format: logging::Form,
    /// What to start
    #[command(subcommand)]
    pub command: Command,
}

/// The parts to start.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Starts everything: Postgres, the stand-in, the publisher, the runner and the app
    Up(UpArgs),
    /// Starts only the stand-in, for any AWS client
    Scheduler(SchedulerArgs),
}

/// The options of `up`.
#[derive(Debug, Args)]
pub struct UpArgs {
    /// Where the data are stored (default: target/local, or the temporary folder if Postgres cannot enter that)
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Fills a new database with three teams, 40 workflows and 90 days of history; refused if it has workflows
    #[arg(long)]
    pub demo: bool,
    /// The app's port on 127.0.0.1
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub app_port: u16,
    /// The stand-in's port on 127.0.0.1
    #[arg(long, value_name = "PORT", default_value_t = 8090)]
    pub scheduler_port: u16,
}

/// The folder of databases that are thrown away: `CRONBOX_TEST_DATA`, else the system's temporary folder.
#[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
pub(crate) fn throwaway_folder() -> PathBuf {
    let named = std::env::var_os("CRONBOX_TEST_DATA").filter(|folder| !folder.is_empty());
    named.map_or_else(std::env::temp_dir, PathBuf::from)
}

/// The build folder: `CARGO_TARGET_DIR`, else `target` in the workspace.
#[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
pub fn target_folder() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("."));
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), |target| workspace.join(target))
}
