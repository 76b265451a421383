//! All of cronbox on one machine: to try it, and for its tests.
//!
//! | module | its part |
//! |---|---|
//! | [`postgres`] | a private Postgres server |
//! | [`stack`], [`up`] | all parts together, for tests and for people |
//! | [`demo`] | teams, workflows and their history, for `up --demo` |
//! | [`clock_and_zones`] | what the stand-in has in common with the other parts: the clock, the zone data |
//! | [`client`] | the SDK's client of a stand-in |
//! | [`config`] | the command line |
//!
//! The stand-in for EventBridge Scheduler is the crate `stand_in`.

pub mod client;
pub mod clock_and_zones;
pub mod config;
pub mod demo;
pub mod postgres;
pub mod stack;
pub mod up;
