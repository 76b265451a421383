//! The publisher: what EventBridge has after edits, crashes and every kind of answer.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod database;
mod edits;
mod proxy;
mod sweep;
mod world;

/// Which publisher processes which workflow, and when.
mod claims {
    mod blocking;
    mod concurrent_publishers;
    mod polling;
}

/// What EventBridge has after edits, in whatever order events happen.
mod converge {
    pub(crate) mod interleavings;
    mod moto;
    mod operator_retry;
    mod random_histories;
    pub(crate) mod schedules;
    mod zone_data;
}

/// The ways to run the publisher: once, as a daemon, and as a Lambda.
mod entry {
    pub(crate) mod lambda;
    pub(crate) mod listen;
    mod signals;
    mod startup;
    mod tick;
}

/// What fails, and what the publisher does about it.
mod failures {
    mod answers;
    mod configuration_mistakes;
    mod connections;
    // Only debug builds have fault points.
    #[cfg(debug_assertions)]
    mod crashes;
    mod denials;
    mod outage;
}

/// What the publisher reports for the alarms.
mod metrics {
    mod alarms;
    mod ledger_gauges;
    mod page;
    mod waiting_runs;
}

/// What the publisher's statements read and leave in large tables.
mod scale {
    mod backlogs;
    mod gauges;
    mod history;
    mod lanes;
    // Only debug builds have a time that a test can set.
    #[cfg(debug_assertions)]
    mod low_water;
    mod settles;
    pub(crate) mod statement;
    mod sweeps;
}

/// The connection between the publisher and Postgres.
mod postgres {
    mod lost_replies;
    mod password_rotation;
    mod silent_server;
    mod tls;
    mod tls_server;
}
