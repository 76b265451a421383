//! The API as a client sees it: its answers, its refusals, and its access rules.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod audit;
mod auth_matrix;
mod browser;
mod connections;
mod console_pages;
mod cronbox;
mod cursors;
mod curves;
mod deprecation;
mod drift;
mod dry_runs;
mod errors;
mod etags;
mod events;
mod freezes;
mod key_restrictions;
mod key_revocation;
mod key_rotation;
mod labels;
mod limits;
mod lists;
mod live;
mod me;
mod notifications;
mod occurrences;
mod openapi;
mod outbox;
mod patches;
mod people;
mod previews;
mod repeats;
mod results;
mod run_details;
mod schedules;
mod secrets;
mod shared_types;
mod sorted;
mod team_limits;
mod teams;
mod tenant_isolation;
mod timestamps;
mod validation;
mod versions;
