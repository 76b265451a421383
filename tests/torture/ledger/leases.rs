//! Invariants of runs and their leases, checked after each step.
//!
//! | | |
//! |---|---|
//! | S8 | no more runs of a workflow are executed at the same time than its policy permits |
//! | S12 | a lease is renewed only for an attempt that its process executes |
//! | S13 | the next renewal of a process stops an attempt whose run was taken away |
//! | S15 | a stopped attempt has no lease, and neither has a claim or a start whose reply was lost, unless its run was locked |
//! | S16 | a request says if an earlier request of its run may have reached the receiver |
//! | S18 | a process executes no more runs of a team than its share of the slots |
//!
//! A run that the decision of its fire has started may wait for its attempt while its process claims. If it does not
//! wait any more, because a reply was lost, one claim may be on its way; it must be handed over before the next one. The
//! same holds for a run of a claim, or of the commit of a fire, that Postgres executes late.
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
    /// Those of claims and fires that Postgres has executed late.
    late: HashSet<Fence>,
    /// The attempts in an actor's next renewal; its answer does not contain attempts that are claimed later.
    requested: BTreeMap<usize, Vec<Fence>>,
    /// How often each process has claimed while none of its slots waited for an attempt.
    claims: HashMap<Uuid, u32>,
    /// Attempts whose request has reached the receiver.
    called: HashSet<Fence>,
    /// Started runs whose attempt has not begun, and runs of late statements, and how often their process had claimed
    /// when they were first seen so.
    waiting_starts: HashMap<Fence, u32>,
    /// How many of them never got that attempt.
    pub(super) lost_starts: u32,
    /// Attempts whose runs were already taken away when their actor began to renew.
    replaced: BTreeMap<usize, Vec<Fence>>,
}

/// What a process knows of its attempts.
pub(super) struct Knowing {
    pub(super) instance: Uuid,
    pub(super) known: Vec<Fence>,
    /// How many attempts it executes, and how many of one team it may; a history has one team.
    pub(super) executing: usize,
    pub(super) share: usize,
    /// It is about to claim, so it has handed over the claims whose reply it lost.
    pub(super) is_claiming: bool,
}

impl Knowing {
    pub(super) fn of(instance: &Instance, is_claiming: bool) -> Knowing {
        Knowing {
            instance: instance.app.instance,
            known: instance.executor.known_attempts(),
            executing: instance.executor.under_way().len(),
            share: instance.app.config.slots_of_a_team(),
            is_claiming,
        }
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
    /// Whether the decision of its fire has started it, and this is that attempt.
    is_started: bool,
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
    Option<bool>,
    Option<i32>,
);

const RUNNING: &str = "
    SELECT f.finding, r.id, r.attempt, r.tries, r.workflow_id, r.locked_by, r.lease_until, r.lease_until > cronbox_now(),
           r.xmax <> 0 AND pg_xact_status(r.xmax::text::xid8) IS NOT DISTINCT FROM 'in progress',
           r.attempt = 1 AND EXISTS (SELECT FROM torture_started AS s WHERE s.id = r.id),
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
        overfull(processes)?;
        self.known.extend(processes.iter().flat_map(|process| &process.known));
        self.called.extend(calls.iter().map(|call| call.fence));
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
            let began_late = self.late.contains(&fence);
            let is_left = if began_late || run.is_started && !self.called.contains(&fence) {
                self.has_outlasted_a_claim(run) && is_handed_over
            } else {
                self.known.contains(&fence) || is_handed_over
            };
            if is_left {
                return Err(format!("S15: a lease is left of which its process knows nothing: {run:?}"));
            }
            unknown.insert(fence, run.lease_until);
        }
        self.locked.retain(|fence| unknown.contains_key(fence));
        self.late.retain(|fence| unknown.contains_key(fence));
        self.count_lost_starts(&unknown, processes);
        self.unknown = unknown;
        Ok(())
    }

    /// Whether the process of a started run has claimed since it was first seen without its attempt, and the run did not
    /// wait for it any more.
    fn has_outlasted_a_claim(&mut self, run: &Running) -> bool {
        let claims = self.claims.get(&run.instance).copied().unwrap_or_default();
        let since = *self.waiting_starts.entry(run.fence).or_insert(claims);
        claims > since
    }

    fn count_lost_starts(&mut self, unknown: &HashMap<Fence, DateTime<Utc>>, processes: &[Knowing]) {
        let is_known = |fence: &Fence| processes.iter().any(|process| process.known.contains(fence));
        let ended = self.waiting_starts.extract_if(|fence, _| !unknown.contains_key(fence));
        let lost = ended.filter(|(fence, _)| !is_known(fence)).count();
        self.lost_starts += u32::try_from(lost).unwrap_or(u32::MAX);
    }

    /// A process passes the point before a claim, and executes as many runs as it uses slots.
    pub(super) fn count_claim(&mut self, instance: Uuid) {
        *self.claims.entry(instance).or_default() += 1;
    }

    /// `actor` is about to read which attempts it executes, in order to renew their leases.
    pub(super) fn asks(&mut self, actor: usize, under_way: Vec<Fence>) {
        self.requested.insert(actor, under_way);
    }

    /// `actor` is about to renew its leases, while the requests of these attempts are unanswered.
    pub(super) async fn renews(&mut self, admin: &Admin, actor: usize, instance: Uuid, open: Vec<Fence>) {
        let theirs = runs_of(admin, instance).await;
        let is_theirs = |fence: &Fence| theirs.contains(fence);
        let requested = self.requested.remove(&actor).unwrap_or_default();
        let is_replaced = |fence: &Fence| requested.contains(fence) && !is_theirs(fence);
        self.replaced.insert(actor, open.into_iter().filter(is_replaced).collect());
    }

    /// A delayed statement of an instance is being executed: its attempts may begin only now. Returns how many do.
    pub(super) async fn deliver_late(&mut self, admin: &Admin, instance: &Instance) -> usize {
        let before = runs_of(admin, instance.app.instance).await;
        instance.tap.deliver_late().await;
        let after = runs_of(admin, instance.app.instance).await;
        let begun: Vec<Fence> = after.into_iter().filter(|fence| !before.contains(fence)).collect();
        self.late.extend(&begun);
        begun.len()
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

/// The attempts that an instance has claimed.
async fn runs_of(admin: &Admin, instance: Uuid) -> Vec<Fence> {
    let theirs = "SELECT id, attempt FROM runs WHERE state = 'running' AND locked_by = $1";
    let theirs: Vec<(Uuid, i32)> =
        sqlx::query_as(theirs).bind(instance).fetch_all(&mut *admin.connection().await).await.unwrap();
    theirs.into_iter().map(|(id, attempt)| Fence { id, attempt }).collect()
}

fn running(answer: Answer) -> Option<Running> {
    let (_, id, attempt, tries, workflow, instance, lease_until, is_leased, is_locked, is_started, most) = answer;
    Some(Running {
        fence: Fence { id: id?, attempt: attempt? },
        tries: tries?,
        workflow: workflow?,
        instance: instance?,
        lease_until: lease_until?,
        is_leased: is_leased?,
        is_locked: is_locked?,
        is_started: is_started?,
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

/// Checks S18.
fn overfull(processes: &[Knowing]) -> Result<(), String> {
    match processes.iter().find(|process| process.executing > process.share) {
        Some(Knowing { instance, executing, share, .. }) => {
            Err(format!("S18: instance {instance} executes {executing} runs, and its share is {share}"))
        }
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
