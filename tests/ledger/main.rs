//! The ledger: one decision for each due time, and one end for each accepted run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bulk;
mod examples;
mod freezes;
mod process;
mod receiver;
mod retention;
mod schedules_file;
mod statistics;
mod steps;

/// Requests of `http` actions: where they may go, and how they are signed.
mod actions {
    mod allowed_hosts;
    mod encryption;
    mod named_secrets;
    mod network_policy;
    mod rotation;
    mod schemes_and_ports;
    mod secret_inputs;
    mod signatures;
}

/// Past times that run on request.
mod backfills {
    mod progress;
    pub(crate) mod requests;
    mod timing;
}

/// Times whose fire is late or never comes.
mod catch_up {
    mod late_fires;
    mod outages;
    mod watchdog;
    pub(crate) mod watchdog_races;
    mod watermarks;
}

/// The database: its constraints, its clock, and the plans of its statements.
mod database {
    mod audit_log;
    mod clock_skew;
    mod constraints;
    mod count_plans;
    mod function_plans;
    mod list_plans;
    mod outbox_days;
    mod partition_plans;
    mod partitions;
    pub(crate) mod query_plans;
}

/// From an accepted run to its end.
mod execution {
    mod attempts;
    pub(crate) mod crashes;
    mod database_stalls;
    mod documents;
    mod ends;
    mod fairness;
    mod heartbeats;
    mod leases;
    mod pause_and_archive;
    mod recovery;
    mod retries;
    mod shutdown;
    mod started_fires;
}

/// Fires of the schedule and manual ones.
mod fires {
    mod batching;
    mod load;
    mod manual;
}

/// The background jobs.
mod jobs {
    mod failing_workflows;
    mod heartbeat;
    mod instances;
    mod turns;
}

/// Messages to people: what becomes a notification, and its delivery.
mod notifications {
    mod aws;
    mod delivery;
    mod events;
    mod fairness;
    #[cfg(debug_assertions)]
    mod kills;
    mod lists;
    mod mail;
    mod mail_failures;
    mod nightly;
    mod signatures;
    mod team;
}

/// Fires while an earlier run has not ended.
mod overlap {
    mod policies;
    mod waiting_fires;
}

/// The proof, `GET /verify`.
mod verify {
    pub(crate) mod due_times;
    mod pages;
    mod runs;
}
