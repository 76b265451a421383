//! Invariants of runs and their leases, checked after each step.
//!
//! | | |
//! |---|---|
//! | S8 | no more runs of a workflow are executed at the same time than its policy permits |
//! | S12 | a lease is renewed only for an attempt that its process executes |
//! | S13 | the next renewal of a process stops an attempt whose run was taken away |
//! | S15 | a stopped attempt has no lease, and neither has a claim whose reply was lost, unless its run was locked |
//! | S16 | a request says if an earlier request of its run may have reached the receiver |
//!
//! The database records violations of S7, S14 and S17 (`instance.rs`).

use std::collections::{BTreeMap, HashMap, HashSet};

use chrono::{DateTime, Utc};
use executor::claim::Fence;
use uuid::Uuid;

use super::instance::Instance;
use super::oracle::Call;
use super::receiver::Callers;
use crate::database::Admin;

/// What the earlier steps have shown.
#[derive(Default)]
pub(super) struct Leases {
    /// Attempts that their process has executed.
    known: HashSet<Fence>,
    /// Attempts with a lease that their process does not know, and the end of that lease.
    unknown: HashMap<Fence, DateTime<Utc>>,
    /// Those of them whose run another transaction had locked, so that no hand-over could take them.
    locked: HashSet<Fence>,
    /// The attempts in an actor's next renewal; its answer does not contain attempts that are claimed later.
    requested: BTreeMap<usize, Vec<Fence>>,
    /// Attempts whose runs were already taken away when their actor began to renew.
    replaced: BTreeMap<usize, Vec<Fence>>,
}

/// What a process knows of its attempts.
pub(super) struct Knowing {
    pub(super) instance: Uuid,
    pub(super) known: Vec<Fence>,
    /// It is about to claim, so it has handed over the claims whose reply it lost.
    pub(super) is_claiming: bool,
}

impl Knowing {
    pub(super) fn of(instance: &Instance, is_claiming: bool) -> Knowing {
        Knowing { instance: instance.app.instance, known: instance.executor.known_attempts(), is_claiming }
    }
}

/// A running run, whose lease may have ended.
#[derive(Clone, Debug)]
struct Running {
    fence: Fence,
    tries: i32,
    workflow: i64,
    instance: Uuid,
    lease_until: DateTime<Utc>,
    is_leased: bool,
    /// Whether a transaction in progress has locked it.
    is_locked: bool,
    /// How many runs of its workflow may be executed at the same time.
    most: i32,
}

/// One row of the answer: a violation that the database recorded, and a running run, if there is one.
type Answer = (
    Option<String>,
    Option<Uuid>,
    Option<i32>,
    Option<i32>,
    Option<i64>,
    Option<Uuid>,
    Option<DateTime<Utc>>,
    Option<bool>,
    Option<bool>,
    Option<i32>,
);

const RUNNING: &str = "
    SELECT f.finding, r.id, r.attempt, r.tries, r.workflow_id, r.locked_by, r.lease_until, r.lease_until > cronbox_now(),
           r.xmax <> 0 AND pg_xact_status(r.xmax::text::xid8) IS NOT DISTINCT FROM 'in progress',
           CASE w.overlap_policy WHEN 'concurrent' THEN w.max_concurrent ELSE 1 END
      FROM (SELECT min(finding) AS finding FROM torture_findings) AS f
      LEFT JOIN runs AS r ON r.state = 'running'
      LEFT JOIN workflows AS w ON w.id = r.workflow_id";

impl Leases {
    /// The first invariant that the last step has broken. `processes` was read before the query, and may be older.
    pub(super) async fn check(&mut self, admin: &Admin, processes: &[Knowing], calls: &[Call]) -> Result<(), String> {
        let answers: Vec<Answer> = sqlx::query_as(RUNNING).fetch_all(&mut *admin.connection().await).await.unwrap();
        if let Some(finding) = answers.iter().find_map(|answer| answer.0.clone()) {
            return Err(finding);
        }
        let running: Vec<Running> = answers.into_iter().filter_map(running).collect();
        crowded(&running)?;
        undeclared(&running, calls)?;
        self.known.extend(processes.iter().flat_map(|process| &process.known));
        let mut unknown = HashMap::new();
        for run in running.iter().filter(|run| run.is_leased) {
            let Some(process) = processes.iter().find(|process| process.instance == run.instance) else { continue };
            if process.known.contains(&run.fence) {
                continue;
            }
            let fence = run.fence;
            if self.unknown.get(&fence).is_some_and(|before| *before < run.lease_until) {
                return Err(format!("S12: a lease was renewed of which its process knows nothing: {run:?}"));
            }
            if run.is_locked {
                self.locked.insert(fence);
            }
            let is_handed_over = process.is_claiming && !self.locked.contains(&fence);
            if self.known.contains(&fence) || is_handed_over {
                return Err(format!("S15: a lease is left of which its process knows nothing: {run:?}"));
            }
            unknown.insert(fence, run.lease_until);
        }
        self.locked.retain(|fence| unknown.contains_key(fence));
        self.unknown = unknown;
        Ok(())
    }

    /// `actor` is about to read which attempts it executes, in order to renew their leases.
    pub(super) fn asks(&mut self, actor: usize, under_way: Vec<Fence>) {
        self.requested.insert(actor, under_way);
    }

    /// `actor` is about to renew its leases, while the requests of these attempts are unanswered.
    pub(super) async fn renews(&mut self, admin: &Admin, actor: usize, instance: Uuid, open: Vec<Fence>) {
        let theirs = "SELECT id, attempt FROM runs WHERE state = 'running' AND locked_by = $1";
        let theirs: Vec<(Uuid, i32)> =
            sqlx::query_as(theirs).bind(instance).fetch_all(&mut *admin.connection().await).await.unwrap();
        let is_theirs = |fence: &Fence| theirs.contains(&(fence.id, fence.attempt));
        let requested = self.requested.remove(&actor).unwrap_or_default();
        let is_replaced = |fence: &Fence| requested.contains(fence) && !is_theirs(fence);
        self.replaced.insert(actor, open.into_iter().filter(is_replaced).collect());
    }

    /// S13: `actor` has renewed its leases; `has_learned` = it has received the answer.
    pub(super) async fn renewed(
        &mut self,
        actor: usize,
        instance: &Instance,
        callers: &Callers,
        has_learned: bool,
    ) -> Result<(), String> {
        let replaced = self.replaced.remove(&actor).unwrap_or_default();
        if !has_learned {
            return Ok(());
        }
        let goes_on = || {
            let (under_way, open) = (instance.executor.under_way(), callers.open(actor));
            replaced.iter().find(|fence| under_way.contains(fence) && open.contains(fence))
        };
        // The task of a stopped attempt is ready, and runs within a few rounds of the runtime.
        for _ in 0..1_000 {
            if goes_on().is_none() {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
        Err(format!("S13: an attempt goes on whose run was taken away: {:?}", goes_on()))
    }

    /// Whether `actor` is renewing its leases.
    pub(super) fn is_renewing(&self, actor: usize) -> bool {
        self.replaced.contains_key(&actor)
    }

    /// A dead actor renews no lease.
    pub(super) fn forget(&mut self, actor: usize) {
        self.replaced.remove(&actor);
    }
}

fn running(answer: Answer) -> Option<Running> {
    let (_, id, attempt, tries, workflow, instance, lease_until, is_leased, is_locked, most) = answer;
    Some(Running {
        fence: Fence { id: id?, attempt: attempt? },
        tries: tries?,
        workflow: workflow?,
        instance: instance?,
        lease_until: lease_until?,
        is_leased: is_leased?,
        is_locked: is_locked?,
        most: most?,
    })
}

/// Checks S8.
fn crowded(running: &[Running]) -> Result<(), String> {
    let leased = || running.iter().filter(|run| run.is_leased);
    let at_once = |workflow: i64| leased().filter(|run| run.workflow == workflow).count();
    match leased().find(|run| at_once(run.workflow) > usize::try_from(run.most).unwrap_or_default()) {
        Some(run) => Err(format!("S8: {} runs at once of workflow {}", at_once(run.workflow), run.workflow)),
        None => Ok(()),
    }
}

/// S16: failed tries account for as many earlier requests. If there is one more, its result was lost.
fn undeclared(running: &[Running], calls: &[Call]) -> Result<(), String> {
    let is_unaccounted = |call: &&Call| running.iter().any(|run| run.fence == call.fence && run.tries < call.before);
    match calls.iter().find(|call| !call.is_recovery && is_unaccounted(call)) {
        Some(call) => Err(format!("S16: a request may be a second one and does not say so: {call:?}")),
        None => Ok(()),
    }
}
