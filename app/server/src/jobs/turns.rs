//! Step 7 of 7: how an instance runs the jobs.
//!
//! About every second it takes the jobs that are due and not leased. A turn runs while its lease is renewed. If the
//! lease is lost, the turn stops, because another instance may run the job already.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use executor::Shutdown;
use futures::FutureExt as _;
use ledger::identity;
use schedule::Moment;
use tokio::task::{Id, JoinSet};

use super::table::{self, Ended, LastResult};
use super::{Did, Job, all_jobs};
use crate::App;

/// How often to check for due jobs.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// How long a lease lasts without a renewal.
const LEASE: Duration = Duration::from_secs(60);
/// The time limit of a turn. A turn is a bounded batch, so a longer one is stuck.
const LONGEST: Duration = Duration::from_secs(300);
/// How long turns may take to end at shutdown; another instance repeats the interrupted ones.
const TURNS_END: Duration = Duration::from_secs(5);
/// How often the log repeats that the ledger waits for acceptance.
const LOG_HOLD_EVERY: Duration = Duration::from_secs(60);
/// The shortest wait before a failed turn is repeated.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// The longest wait before a turn is repeated that failed, or for which something was locked.
const SOON: Duration = Duration::from_secs(60);

/// Runs all jobs until `shutdown`, then lets active turns end or releases their leases.
pub(crate) async fn take_turns(app: App, shutdown: Shutdown) {
    let jobs = all_jobs(&app.config);
    let mut under_way = UnderWay::default();
    let (mut registered, mut hold_log) = (false, HoldLog::default());
    loop {
        match take_due_jobs(&app, &jobs, &mut registered, &mut hold_log, &mut under_way).await {
            Ok(()) => {}
            Err(error) => tracing::warn!(%error, "due jobs not read; the next check tries again"),
        }
        tokio::select! {
            () = shutdown.wait_for_drain() => break,
            () = tokio::time::sleep(CHECK_EVERY.mul_f64(0.75 + rand::random::<f64>() / 2.0)) => {}
        }
        under_way.forget_ended();
    }
    end(&app, under_way.turns, &shutdown).await;
}

/// The turns of this instance.
#[derive(Default)]
struct UnderWay {
    turns: JoinSet<()>,
    /// The group of each turn that has one.
    groups: HashMap<Id, &'static str>,
}

impl UnderWay {
    fn start_turn(&mut self, app: App, job: Job) {
        let group = job.group;
        let task = self.turns.spawn(turn(app, job)).id();
        self.groups.extend(group.map(|group| (task, group)));
    }

    fn forget_ended(&mut self) {
        while let Some(ended) = self.turns.try_join_next_with_id() {
            let task = ended.map_or_else(|error| error.id(), |(task, ())| task);
            self.groups.remove(&task);
        }
    }

    /// Returns the jobs that this instance may take now: of each group one, by chance, and none while one is under way.
    fn list_free<'a>(&self, jobs: &'a [Job]) -> Vec<&'a Job> {
        let mut shuffled: Vec<_> = jobs.iter().collect();
        shuffled.sort_by_cached_key(|_| rand::random::<u64>());
        let mut met: HashSet<_> = self.groups.values().copied().collect();
        shuffled.retain(|job| job.group.is_none_or(|group| met.insert(group)));
        shuffled
    }
}

/// Logs once a minute that the ledger waits for acceptance.
#[derive(Default)]
struct HoldLog(Option<Instant>);

impl HoldLog {
    fn log(&mut self, hold: Option<String>) {
        match (hold, self.0) {
            (None, _) => self.0 = None,
            (Some(_), Some(logged)) if logged.elapsed() < LOG_HOLD_EVERY => {}
            (Some(reason), _) => {
                self.0 = Some(Instant::now());
                let command = identity::COMMAND;
                tracing::error!(reason, "ledger held: no run starts and no job is taken; it waits for `{command}`");
            }
        }
    }
}

async fn take_due_jobs(
    app: &App,
    jobs: &[Job],
    registered: &mut bool,
    hold_log: &mut HoldLog,
    under_way: &mut UnderWay,
) -> sqlx::Result<()> {
    let mut connection = app.pools.leases.acquire().await?;
    hold_log.log(identity::read_hold(&mut connection).await?);
    // The other instances take the jobs, because a machine whose clock is so wrong cannot be trusted.
    if !app.clock_skew.permits_jobs() {
        return Ok(());
    }
    let names: Vec<&str> = jobs.iter().map(|job| job.name).collect();
    if !*registered {
        let timezone = app.config.jobs_timezone;
        let wait = |job: &Job| job.when.first_wait(app.clock.now(), timezone).as_secs_f64();
        table::register_jobs(&mut connection, &names, &jobs.iter().map(wait).collect::<Vec<_>>()).await?;
        *registered = true;
    }
    let free: Vec<&str> = under_way.list_free(jobs).iter().map(|job| job.name).collect();
    let taken = table::take_due(&mut connection, &free, app.instance, LEASE, app.clock.now()).await?;
    for job in jobs.iter().filter(|job| taken.iter().any(|name| name == job.name)) {
        under_way.start_turn(app.clone(), job.clone());
    }
    Ok(())
}

/// Runs one turn and writes its result.
async fn turn(app: App, job: Job) {
    let began = Instant::now();
    let work = AssertUnwindSafe((job.run)(app.clone())).catch_unwind();
    let done = tokio::select! {
        done = tokio::time::timeout(LONGEST, work) => match done {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(anyhow::anyhow!("the turn panicked: read the log")),
            Err(_) => Err(anyhow::anyhow!("the turn took longer than {} s and was stopped", LONGEST.as_secs())),
        },
        () = until_lost(&app, job.name) => {
            tracing::warn!(job = job.name, "job lease lost; this turn stops, and another instance continues");
            return;
        }
    };
    let ended = ended(&app, &job, done, began.elapsed());
    if let Err(error) = settle(&app, job.name, &ended).await {
        tracing::warn!(job = job.name, %error, "turn of a job not recorded; its lease will expire");
    }
}

fn ended(app: &App, job: &Job, done: anyhow::Result<Did>, took: Duration) -> Ended {
    let usual = job.when.next_wait(app.clock.now(), app.config.jobs_timezone);
    let (result, error, next_in) = match done {
        Ok(Did::Nothing) => (LastResult::Skipped, None, usual),
        Ok(Did::All(what)) => {
            tracing::info!(job = job.name, "{}: {what}", job.name);
            (LastResult::Success, None, usual)
        }
        Ok(Did::Some(what)) => {
            tracing::info!(job = job.name, "{}: {what}; more remains", job.name);
            (LastResult::Success, None, Duration::ZERO)
        }
        Ok(Did::Waits(what)) => {
            tracing::info!(job = job.name, "{}: {what}; a part is locked", job.name);
            (LastResult::Success, None, usual.min(SOON))
        }
        Err(error) => {
            let error = format!("{error:#}");
            tracing::error!(job = job.name, error, "job failed; its next turn tries again");
            let short: String = error.chars().filter(|c| *c != '\0').take(500).collect();
            (LastResult::Failed, Some(short), usual.min(SOON).max(AFTER_FAILURE))
        }
    };
    Ended { took, result, error, next_in }
}

async fn settle(app: &App, name: &str, ended: &Ended) -> sqlx::Result<()> {
    let mut connection = app.pools.leases.acquire().await?;
    table::record_turn(&mut connection, name, app.instance, ended).await
}

/// Renews the lease; returns when it is lost, or may be lost.
async fn until_lost(app: &App, name: &str) {
    let mut kept = Moment::now();
    loop {
        tokio::time::sleep(LEASE / 4).await;
        let requested = Moment::now();
        match renewed(app, name).await {
            Ok(true) => kept = requested,
            Ok(false) => return,
            // A renewal takes at most this long to fail, and the turn must stop before the lease expires.
            Err(_) if kept.elapsed() > LEASE / 2 => return,
            Err(error) => tracing::warn!(job = name, %error, "job lease not renewed; trying again"),
        }
    }
}

async fn renewed(app: &App, name: &str) -> sqlx::Result<bool> {
    let mut connection = app.pools.leases.acquire().await?;
    table::renew_lease(&mut connection, name, app.instance, LEASE).await
}

async fn end(app: &App, mut under_way: JoinSet<()>, shutdown: &Shutdown) {
    let limit = Duration::from_secs(app.config.shutdown_drain_secs).min(TURNS_END);
    let all_ended = async { while under_way.join_next().await.is_some() {} };
    tokio::select! {
        () = all_ended => return,
        () = tokio::time::sleep(limit) => {}
        () = shutdown.wait_for_hand_over() => {}
    }
    under_way.shutdown().await;
    let released = async { table::release_all(&mut *app.pools.leases.acquire().await?, app.instance).await };
    if let Err(error) = released.await {
        tracing::warn!(%error, "job leases not released; they expire");
    }
}
