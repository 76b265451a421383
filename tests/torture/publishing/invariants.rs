//! Invariants that must hold after every step, checked against the database and the previous step.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};

use crate::database::Admin;

/// The publications after the previous step, and which actor owns which lease.
#[derive(Default)]
pub(crate) struct Watch {
    before: BTreeMap<i64, Publication>,
    owners: BTreeMap<String, usize>,
    /// Claims of a workflow whose former owner was still alive.
    pub(crate) takeovers_of_the_living: u32,
}

#[derive(Clone, Debug, sqlx::FromRow)]
struct Publication {
    workflow_id: i64,
    desired_revision: i64,
    applied_revision: Option<i64>,
    applied_on: Option<DateTime<Utc>>,
    epoch: i64,
    lease_owner: Option<String>,
    is_leased: bool,
    revision: Option<i64>,
}

impl Watch {
    /// The first invariant that the last step has broken; `movers` are the actors that moved in it.
    pub(crate) async fn check(
        &mut self,
        admin: &Admin,
        movers: &[usize],
        alive: &BTreeSet<usize>,
    ) -> Result<(), String> {
        let now: Vec<Publication> = sqlx::query_as(
            "SELECT p.workflow_id, p.desired_revision, p.applied_revision, p.applied_on, p.epoch, p.lease_owner,
                    COALESCE(p.lease_until > cronbox_now(), FALSE) AS is_leased, w.revision
               FROM publications AS p LEFT JOIN workflows AS w ON w.id = p.workflow_id",
        )
        .fetch_all(&mut *admin.connection().await)
        .await
        .unwrap();
        for publication in now {
            let before = self.before.remove(&publication.workflow_id);
            self.check_change(before.as_ref(), &publication, movers, alive)?;
            self.before.insert(publication.workflow_id, publication);
        }
        Ok(())
    }

    /// After the clock has advanced, some leases may have expired.
    pub(crate) async fn time_passes(&mut self, admin: &Admin) {
        let lapsed: Vec<i64> =
            sqlx::query_scalar("SELECT workflow_id FROM publications WHERE lease_until <= cronbox_now()")
                .fetch_all(&mut *admin.connection().await)
                .await
                .unwrap();
        for id in lapsed {
            if let Some(before) = self.before.get_mut(&id) {
                before.is_leased = false;
            }
        }
    }

    /// S4: a publisher signs a request only under its own live lease. A later one could undo the next owner's changes.
    pub(crate) fn signed(&self, actor: usize, workflow: i64) -> Result<(), String> {
        let publication = self.before.get(&workflow);
        let owner = publication.and_then(|now| now.lease_owner.as_ref()).and_then(|owner| self.owners.get(owner));
        // If a delayed publisher moved in the same step, a claim has no known owner.
        if owner.is_none_or(|owner| *owner == actor) && publication.is_some_and(|now| now.is_leased) {
            return Ok(());
        }
        Err(format!("S4: actor {actor} signed for {workflow} without a lease: {publication:?}"))
    }

    fn check_change(
        &mut self,
        before: Option<&Publication>,
        now: &Publication,
        movers: &[usize],
        alive: &BTreeSet<usize>,
    ) -> Result<(), String> {
        let id = now.workflow_id;
        if now.applied_revision > Some(now.desired_revision) {
            return Err(format!("S1: {id} has applied more than was desired: {now:?}"));
        }
        if now.revision.is_some_and(|revision| revision != now.desired_revision) {
            return Err(format!("S1: {id} desires another revision than the workflow's: {now:?}"));
        }
        let claimed = now.epoch - before.map_or(0, |before| before.epoch);
        if !(0..=1).contains(&claimed) {
            return Err(format!("S2: the epoch of {id} went by {claimed}: {before:?} to {now:?}"));
        }
        if claimed == 1 {
            return self.claimed(before, now, movers, alive);
        }
        let Some(before) = before else { return Ok(()) };
        let is_settled =
            before.lease_owner.is_some() && now.lease_owner.is_none() || before.applied_on != now.applied_on;
        let owner = before.lease_owner.as_ref().and_then(|owner| self.owners.get(owner));
        if is_settled && owner.is_some_and(|owner| !movers.contains(owner)) {
            return Err(format!("S4: {movers:?} settled {id}, which is {owner:?}'s: {before:?} to {now:?}"));
        }
        Ok(())
    }

    fn claimed(
        &mut self,
        before: Option<&Publication>,
        now: &Publication,
        movers: &[usize],
        alive: &BTreeSet<usize>,
    ) -> Result<(), String> {
        if before.is_some_and(|before| before.is_leased) {
            return Err(format!("S3: {} was claimed under a live lease: {before:?} to {now:?}", now.workflow_id));
        }
        if let (Some(owner), [mover]) = (&now.lease_owner, movers) {
            self.owners.insert(owner.clone(), *mover);
        }
        let former = before.and_then(|before| before.lease_owner.as_ref()).and_then(|owner| self.owners.get(owner));
        if former.is_some_and(|former| alive.contains(former) && !movers.contains(former)) {
            self.takeovers_of_the_living += 1;
        }
        Ok(())
    }
}

/// S5: each committed revision of an existing workflow has exactly one row in the outbox.
pub(crate) async fn outbox_is_complete(admin: &Admin) -> Result<(), String> {
    let broken: Vec<(i64, i64, Vec<i64>)> = sqlx::query_as(
        "SELECT w.id, w.revision, array_agg((o.payload ->> 'revision')::bigint ORDER BY o.id)
           FROM workflows AS w JOIN outbox_events AS o ON o.aggregate_id = w.id AND o.payload ? 'team_id'
          GROUP BY w.id, w.revision
         HAVING array_agg((o.payload ->> 'revision')::bigint ORDER BY o.id)
                <> ARRAY(SELECT generate_series(1, w.revision))",
    )
    .fetch_all(&mut *admin.connection().await)
    .await
    .unwrap();
    if broken.is_empty() { Ok(()) } else { Err(format!("S5: workflow, revision, rows: {broken:?}")) }
}

/// What is not at rest: publications that are due or leased, or whose verify pass is due, and open or failed outbox
/// rows.
pub(crate) async fn unrest(admin: &Admin) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT format('%s: due %s, leased until %s, verify %s, %s', workflow_id, due_at, lease_until, verify_at, error_class)
           FROM publications
          WHERE due_at IS NOT NULL OR lease_owner IS NOT NULL OR verify_at IS NOT NULL OR error_class IS NOT NULL
          UNION ALL
         SELECT format('outbox row %s of %s: %s', id, aggregate_id, COALESCE(error_message, 'open'))
           FROM outbox_events
          WHERE processed_on IS NULL",
    )
    .fetch_all(&mut *admin.connection().await)
    .await
    .unwrap()
}
