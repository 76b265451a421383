//! The command line of the stand-in.

use std::net::SocketAddr;
use std::time::Duration;

use chrono::{DateTime, Utc};
use clap::Parser;

use crate::clock::Clock;
use crate::invoke::UnknownFunction;
use crate::{fires, invoke, scheduler, stand_in};

/// Only the stand-in: EventBridge Scheduler's API, for any AWS client, and schedules that fire.
///
/// In addition to AWS's operations it accepts POST /_faults (a plan of faults, by seed; `{}` ends it), POST /_clock
/// (with --clock: `{"now": "2026-03-29T01:00:00Z"}` or `{"advance_secs": 60}`), and GET of both, of /_fires and of
/// /_dead-letters.
#[derive(Debug, Parser)]
#[command(name = "cronbox-stand-in", version)]
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
    pub fn stand_in_options(&self) -> stand_in::Options {
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
