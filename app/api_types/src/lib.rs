//! Steps 1 and 7 of 7: what the answers of the API look like. The service writes these types; the command line and the tests read them.
//!
//! No axum and no sqlx: a client needs neither. An enum here has the same variants as that of the crate that decides it; the
//! service translates it by a `match` without a default, so that a new variant there is a compiler's error here.

pub mod actions;
pub mod audit;
pub mod backfills;
pub mod bulk;
pub mod dead_letters;
pub mod drift;
pub mod events;
pub mod freezes;
pub mod health;
pub mod instances;
pub mod jobs;
pub mod keys;
pub mod limits;
pub mod me;
pub mod nesting;
pub mod notifications;
pub mod occurrences;
pub mod outbox;
pub mod page;
pub mod previews;
pub mod problem;
pub mod raw;
pub mod reasons;
pub mod results;
pub mod runs;
pub mod schedules;
pub mod secrets;
pub mod sessions;
pub mod stats;
pub mod team_export;
pub mod teams;
pub mod upcoming;
pub mod verify;
pub mod versions;
pub mod workflows;
