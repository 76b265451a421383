//! Step 4 of 7: a stand-in for EventBridge Scheduler, in memory, behind Scheduler's REST API.
//!
//! The AWS SDKs, the AWS CLI, boto3 and Terraform use it like AWS if they are configured with its address. It stores
//! schedules and schedule groups, and computes by its own evaluation when each fires; `fires` fires them.

pub mod account;
pub mod api;
pub mod clock_change;
pub mod constraint;
pub mod cron;
pub mod error;
pub mod expression;
pub mod faults;
mod fields;
pub mod groups;
pub mod list;
mod quota;
mod recent_changes;
mod request;
pub mod spec;
pub mod store;
pub mod stored_schedule;
pub mod views;
pub mod wire;
pub mod zone;
pub mod zone_files;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::Notify;

use self::account::Account;
use self::clock_change::Fold;
use self::faults::{Faults, Plan, Progress};
use self::quota::Quota;
use self::store::Store;
use self::stored_schedule::Due;
use self::zone_files::ZoneFiles;
use crate::clock::Clock;

/// One account of Scheduler; clones share it.
#[derive(Clone)]
pub struct Scheduler(Arc<Shared>);

/// How the stand-in behaves.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The account of the schedules
    pub account: Account,
    /// Whether a time that occurs twice fires twice
    pub fold: Fold,
    /// Where the rules of timezones are read
    pub zone_files: ZoneFiles,
    /// How long each call of the API takes
    pub latency: Duration,
    /// Above this many calls per second the API answers 429; `None` = no limit
    pub calls_per_second: Option<u32>,
    /// The seed of a plan without a seed of its own
    pub seed: Option<u64>,
}

struct Shared {
    clock: Clock,
    zone_files: ZoneFiles,
    latency: Duration,
    quota: Quota,
    faults: Faults,
    store: Mutex<Store>,
    changed: Notify,
}

impl Scheduler {
    /// Creates an account with only the schedule group `default`.
    pub fn new(options: Options, clock: Clock) -> Scheduler {
        let store = Store::new(options.account, options.fold, clock.now());
        Scheduler(Arc::new(Shared {
            clock,
            zone_files: options.zone_files,
            latency: options.latency,
            quota: Quota::new(options.calls_per_second),
            faults: Faults::new(options.seed),
            store: Mutex::new(store),
            changed: Notify::new(),
        }))
    }

    /// Returns the next time at which any schedule fires, if that is not after `until`.
    pub fn next_due(&self, until: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.lock_store().next_due().filter(|at| *at <= until)
    }

    /// Takes the schedules that are due at `now`, in the order of time.
    pub fn take_due(&self, now: DateTime<Utc>) -> Vec<Due> {
        self.lock_store().take_due(now)
    }

    /// The clock of the evaluation.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// The schedules and schedule groups.
    pub fn lock_store(&self) -> MutexGuard<'_, Store> {
        self.0.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the plan of faults.
    pub fn plan_faults(&self, plan: Plan) {
        self.0.faults.replace_plan(plan);
    }

    /// The plan of faults, and how often each was applied.
    pub fn faults_injected(&self) -> Progress {
        self.0.faults.read_progress()
    }

    /// Returns when the next late request arrives, if that is not after `until`.
    pub fn next_arrival(&self, until: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.0.faults.next_arrival().filter(|at| *at <= until)
    }

    /// Lets the late requests arrive that are due at `now`.
    pub async fn receive_late_requests(&self, now: DateTime<Utc>) {
        self.0.faults.receive_late_requests(now).await;
    }

    /// Answers the calls that were to get no answer, because a server that stops waits for them.
    pub fn end_silence(&self) {
        self.0.faults.end_silence();
    }

    fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// Returns after a schedule was created, replaced or deleted since the last call.
    pub async fn wait_until_changed(&self) {
        self.0.changed.notified().await;
    }
}
