//! The command line of `local`, and the folder of its files.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{DateTime, Utc};
use clap::{Args, Parser, Subcommand};
use schedule::Clock;

use crate::invoke::UnknownFunction;
use crate::{fires, invoke, scheduler, stand_in};

/// cronbox on this machine: all parts, or only the stand-in for EventBridge Scheduler.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Config {
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
    /// The app's port on 127.0.0.1
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub app_port: u16,
    /// The stand-in's port on 127.0.0.1
    #[arg(long, value_name = "PORT", default_value_t = 8090)]
    pub scheduler_port: u16,
}

/// Only the stand-in: EventBridge Scheduler's API, for any AWS client, and schedules that fire.
///
/// In addition to AWS's operations it accepts POST /_faults (a plan of faults, by seed; `{}` ends it), POST /_clock
/// (with --clock: `{"now": "2026-03-29T01:00:00Z"}` or `{"advance_secs": 60}`), and GET of both, of /_fires and of
/// /_dead-letters.
#[derive(Debug, Args)]
pub struct SchedulerArgs {
    /// The address to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8090")]
    pub listen: SocketAddr,
    /// How long each call of the API takes
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub latency_ms: u64,
    /// Above this many calls per second the API answers 429 (default: no limit)
    #[arg(long, value_name = "N")]
    pub tps: Option<u32>,
    /// Start the clock at this time and change it only by POST /_clock, instead of following the machine's clock
    #[arg(long, value_name = "RFC3339")]
    pub clock: Option<DateTime<Utc>>,
    /// Makes everything random repeatable: the faults of POST /_faults, and execution ids
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

impl SchedulerArgs {
    /// The configured clock.
    pub fn clock(&self) -> Clock {
        self.clock.map_or(Clock::System, Clock::fixed)
    }

    /// The configured behaviour. Without the other parts there are no functions, so any target is accepted.
    pub fn options(&self) -> stand_in::Options {
        stand_in::Options {
            scheduler: scheduler::Options {
                latency: Duration::from_millis(self.latency_ms),
                calls_per_second: self.tps,
                seed: self.seed,
                ..scheduler::Options::default()
            },
            invoke: invoke::Options { unknown: UnknownFunction::Taken, ..invoke::Options::default() },
            fires: fires::Options { seed: self.seed, ..fires::Options::default() },
        }
    }
}

/// The build folder: `CARGO_TARGET_DIR`, else `target` in the workspace.
#[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
pub fn target_folder() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), |target| workspace.join(target))
}
