//! Step 7 of 7, the first half: the ledger. It decides each due time once, and accepts the run of the decision.
//!
//! | floor | files |
//! |---|---|
//! | 4 fires | `invoke.rs`, `watchdog.rs`, `acceptance.rs`, `bulk.rs` |
//! | 3 past times | `catch_up.rs`, `backfills.rs`, `manual.rs`, `verify.rs` |
//! | 2 due times | `due_times.rs`, `followers.rs`, `admission/`, `stats.rs`, `upcoming.rs` |
//! | 1 rows | `versions.rs`, `occurrences.rs`, `runs.rs`, `ledger_cursor.rs`, `freezes.rs`, `requested_fires.rs`, `job_failures.rs`, .. |
//!
//! A file imports from its own floor and from those below it. This crate imports `schedule`, `db` and `workflows`. It
//! must not import the executor, which performs the runs, nor `access`: a key decides no fire. It must not depend on
//! axum, on an HTTP client or on an AWS client.

pub mod acceptance;
pub mod admission;
pub mod backfills;
pub mod bulk;
pub mod catch_up;
pub mod due_times;
pub mod followers;
pub mod freezes;
pub mod identity;
pub mod invoke;
pub mod job_failures;
pub mod ledger_cursor;
pub mod manual;
pub mod occurrences;
pub mod prune_marks;
pub mod requested_fires;
pub mod runs;
pub mod spread;
pub mod stats;
pub mod upcoming;
pub mod verify;
pub mod versions;
pub mod watchdog;
