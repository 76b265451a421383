//! A stand-in for AWS EventBridge Scheduler that fires, for tests of any client. The README shows how to use it.
//!
//! It depends on no other crate of the project: what it knows of EventBridge it has from AWS's documentation, so that
//! it can contradict the crate `schedule`.
//!
//! | module | its part |
//! |---|---|
//! | [`scheduler`] | step 4: EventBridge Scheduler's API and its schedules |
//! | [`fires`] | step 5: fires schedules |
//! | [`invoke`], [`dead_letters`] | Lambda's asynchronous invoke, and where failures go |
//! | [`stand_in`], [`control_api`] | the three above together, and the calls by which a test controls them |
//! | [`server`] | the stand-in as a server, and what it refuses of web pages |
//! | [`config`], [`process`], [`steps`] | the command line, the process, and the lines it prints |
//! | [`clock`] | the machine's clock, or one that a test sets |

mod browser_guard;
pub mod clock;
pub mod config;
pub mod control_api;
pub mod dead_letters;
pub mod fires;
pub mod invoke;
pub mod process;
mod queues;
pub mod scheduler;
pub mod server;
pub mod stand_in;
pub mod steps;

pub use self::clock::{Clock, FixedClock};
pub use self::server::StandInServer;
pub use self::stand_in::{Options, StandIn};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
