//! Steps 1, 2, 4 and 7 of 7: the API of operators: audit, outbox, drift, jobs, keys, statistics, verification and health.

pub mod allowed_hosts;
pub mod audit;
pub mod bulk;
pub mod dead_letters;
pub mod drift;
pub mod events;
pub mod freezes;
pub mod health;
pub mod instances;
pub mod jobs;
pub mod keys;
pub mod me;
pub mod outbox;
pub mod sessions;
pub mod signing;
pub mod stats;
pub mod team_export;
pub mod team_limits;
pub mod team_secrets;
pub mod teams;
pub mod upcoming;
pub mod verify;
