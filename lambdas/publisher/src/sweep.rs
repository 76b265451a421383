//! Steps 3 and 4 of 7: the sweep: compares all schedules in EventBridge with the database.
//!
//! Edits reach EventBridge by the outbox; a manual change in EventBridge is found only by a comparison. Page by page
//! (`scheduler/list.rs`) the listed schedules are compared (`compare.rs`) with the database (`workflow_record.rs`), a
//! few schedules are read in full (`page.rs`), and differences are enqueued (`repair.rs`), so that the drain repairs
//! them. After the last page it is known which schedules are missing, and which are orphans (`orphans.rs`).
//!
//! No page is kept in memory: the listed workflows are stored in the database, so that any publisher can continue a
//! sweep that was interrupted (`turn.rs`).

mod changes;
mod compare;
pub(crate) mod difference;
mod findings;
mod limit;
mod missing;
mod orphans;
mod page;
mod repair;
mod rollout;
mod tombstones;
mod turn;
mod workflow_record;

use std::time::{Duration, Instant};

use db::PgConnection;
use schedule::ScheduleName;

use crate::claim::deployment::{ACCEPT, Admission, admit_publisher, hold_if_ahead};
use crate::claim::publishers::join_and_share;
use crate::failpoint::Point;
use crate::publisher::Publisher;
use crate::scheduler::fault::{Fault, Kind};
use crate::scheduler::identity::Identity;
use crate::scheduler::lease::{Lease, Renewal, Span};
use crate::scheduler::list::Page;

use self::changes::{Release, record_changes, release_changes};
pub use self::findings::Findings;
use self::missing::{Search, search_slice};
use self::orphans::record_orphans;
use self::page::Compared;
use self::rollout::{finish_rollout, force_rollout, queue_for_rollout};
use self::turn::{SAMPLE, Stage, Turn, advance_turn, finish_turn, lock_turn, record_refusal, release_turn, take_turn};

/// How many workflows one transaction enqueues.
const REPAIRS: i64 = 2000;
/// While this many repairs are due, no more are enqueued: the sweep continues when they are published.
const MOST_REPAIRS: i64 = 10_000;
/// How many orphans are read and enqueued together.
const ORPHANS: i64 = 100;
/// How often a daemon checks whether a sweep is due.
const POLL: Duration = Duration::from_secs(5);

/// The outcome of a call to sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swept {
    /// No sweep is due, or another publisher has its lease.
    NotNow,
    /// The deadline was reached, EventBridge refused, or another publisher took over; the next tick continues.
    Stopped(Findings),
    /// Everything was compared.
    Done(Findings),
}

/// The steps after the last page, in this order.
enum Step {
    /// Workflows whose schedule is missing.
    Missing,
    /// Schedules that would be deleted, disabled or changed.
    Changes,
    /// Orphans to read and delete.
    Orphans(Vec<String>),
}

/// Orphans by owner.
#[derive(Default)]
struct Orphans {
    ours: Vec<ScheduleName>,
    foreign: Vec<(String, Identity)>,
}

/// How a part of a sweep ended.
enum End {
    Done,
    /// The deadline was reached, or another publisher has the sweep now.
    Stopped,
    Refused(Fault),
}

impl Publisher {
    /// Sweeps if a sweep is due or was requested; ends shortly before `deadline`.
    ///
    /// # Errors
    /// Fails if the database fails; the sweep continues after its lease has expired.
    pub async fn sweep_schedules(&self, deadline: Instant) -> anyhow::Result<Swept> {
        self.sweep_for(&self.new_span(Some(deadline), Renewal::Off)).await
    }

    /// Requests a sweep, whenever the last one was.
    ///
    /// # Errors
    /// Fails if the database cannot be reached or refuses the statement.
    pub async fn request_sweep(&self, requested_by: &str) -> anyhow::Result<()> {
        Ok(turn::request_sweep(self.pool(), requested_by).await?)
    }

    /// The sweeps of a daemon, beside its drains: a long list must not delay an edit.
    pub(crate) async fn sweep_often(&self, span: &Span) {
        while span.may_claim() {
            match self.sweep_for(span).await {
                Ok(Swept::NotNow) => {}
                Ok(_) => span.notify_drain(),
                Err(error) => tracing::warn!("sweep stopped: {error:#}"),
            }
            if span.may_claim() {
                let _ = tokio::time::timeout(POLL, span.wait_for_end()).await;
            }
        }
    }

    pub(crate) async fn sweep_for(&self, span: &Span) -> anyhow::Result<Swept> {
        if !span.may_claim() {
            return Ok(Swept::NotNow);
        }
        let generation = self.claimant().generation;
        let admission = async {
            admit_publisher(&mut *self.pool().acquire().await?, generation, self.owner(), &self.config().env).await
        };
        let deployment = match admission.await? {
            Admission::Admitted(deployment) => deployment,
            Admission::Held(reason) => {
                tracing::error!(reason, "ledger held: nothing is swept; the publisher waits for `{ACCEPT}`");
                return Ok(Swept::NotNow);
            }
            Admission::Outdated(newer) => {
                tracing::error!(%newer, "publisher outdated: a newer configuration has published, so it does not sweep");
                return Ok(Swept::NotNow);
            }
        };
        turn::request_if_time(self.pool()).await?;
        let sent = span.now();
        let taken = take_turn(self.pool(), self.owner(), SAMPLE, generation, deployment.rollout).await?;
        let Some(mut turn) = taken else { return Ok(Swept::NotNow) };
        let lease = Lease::new(sent, span);
        self.presence().begin_activity();
        let ended = self.go_on(&mut turn, deployment.identity, &lease, span).await;
        self.presence().end_activity(self.pool(), self.owner()).await;
        if let Ok(End::Done) = ended {
            log_turn(&turn);
            self.metrics().count_sweep(turn.findings.listed, turn.findings.read);
            return Ok(Swept::Done(turn.findings));
        }
        let recorded = match &ended {
            Ok(End::Refused(fault)) => self.note_refusal(&mut turn, fault).await,
            Ok(End::Done | End::Stopped) | Err(_) => Ok(()),
        };
        // Released also after a database error, so that another publisher need not wait until the lease expires.
        let released = release_turn(self.pool(), &turn, self.owner()).await;
        ended?;
        recorded.and(released)?;
        Ok(Swept::Stopped(turn.findings))
    }

    async fn go_on(&self, turn: &mut Turn, identity: Identity, lease: &Lease, span: &Span) -> anyhow::Result<End> {
        if turn.stage == Stage::Listing {
            match self.list_all(turn, identity, lease, span).await? {
                End::Done => {}
                end => return Ok(end),
            }
        }
        self.conclude(turn, identity, lease, span).await
    }

    /// Processes the complete list; the next page is fetched while one is compared.
    async fn list_all(&self, turn: &mut Turn, identity: Identity, lease: &Lease, span: &Span) -> anyhow::Result<End> {
        let mut ahead = Some(self.list(turn.next_token.clone(), lease).await);
        while let Some(listed) = ahead.take() {
            let page = match listed {
                Ok(page) => page,
                Err(fault) => return Ok(End::Refused(fault)),
            };
            self.injector().pass_point(Point::C1).await;
            let next = async {
                match &page.next_token {
                    Some(token) if span.may_claim() => Some(self.list(Some(token.clone()), lease).await),
                    _ => None,
                }
            };
            let (next, compared) = tokio::join!(next, self.compare_page(turn, &page, identity, lease));
            let compared = compared?;
            if compared.may_be_ahead() && hold_if_ahead(self.pool(), &compared.ahead, compared.never_given).await? {
                tracing::error!("ledger held: EventBridge has a later state than the database; the sweep stops");
                return Ok(End::Stopped);
            }
            let is_repairing = !compared.free.is_empty();
            let Some(written) = self.write_down(turn, compared, &page, lease, span).await? else {
                return Ok(End::Stopped);
            };
            *turn = written;
            if is_repairing && self.has_many_repairs(&mut *self.pool().acquire().await?).await? {
                return Ok(End::Stopped);
            }
            ahead = next;
        }
        Ok(if turn.stage == Stage::Listed { End::Done } else { End::Stopped })
    }

    /// Fetches a page, at the rate of the account's quota of lists.
    async fn list(&self, token: Option<String>, lease: &Lease) -> Result<Page, Fault> {
        self.list_rate().wait_for_slot(|| lease.is_live()).await;
        join_and_share(self.pool(), self.owner(), self.rate()).await;
        self.call_when_allowed(lease, self.list_rate(), self.schedules().list_page(token, lease)).await
    }

    /// Writes the result of a page, and where the list continues, in one transaction; returns what it has written. `None` =
    /// another publisher has the sweep now.
    async fn write_down(
        &self,
        turn: &Turn,
        compared: Compared,
        page: &Page,
        lease: &Lease,
        span: &Span,
    ) -> anyhow::Result<Option<Turn>> {
        let sent = span.now();
        let now = self.clock().now();
        let mut tx = db::begin_transaction(self.pool()).await?;
        let Some(mut next) = lock_turn(&mut tx, turn, self.owner()).await? else { return Ok(None) };
        next.findings = compared.findings;
        next.next_token.clone_from(&page.next_token);
        next.stage = if page.next_token.is_some() { Stage::Listing } else { Stage::Listed };
        turn::forget_older_list(&mut tx, &next).await?;
        repair::record_sightings(&mut tx, &next, &compared.sighted).await?;
        record_orphans(&mut tx, &compared.orphans).await?;
        repair::record_ahead(&mut tx, &compared.ahead).await?;
        repair::confirm_schedules(&mut tx, &compared.confirmed).await?;
        repair::adopt_schedules(&mut tx, &compared.adopted).await?;
        let (known, unpublished): (Vec<_>, Vec<_>) = compared.free.into_iter().partition(|one| one.epoch.is_some());
        next.findings.repaired += repair::enqueue_differences(&mut tx, &known, now).await?;
        next.findings.repaired += repair::enqueue_unpublished(&mut tx, &unpublished, now).await?;
        record_changes(&mut tx, &next, &compared.braked).await?;
        queue_for_rollout(&mut tx, &compared.explained).await?;
        advance_turn(&mut tx, &next).await?;
        self.injector().pass_point(Point::C2).await;
        tx.commit().await?;
        lease.extend_from(sent);
        Ok(Some(next))
    }

    /// After the last page: processes missing schedules, changes, and orphans.
    async fn conclude(&self, turn: &mut Turn, identity: Identity, lease: &Lease, span: &Span) -> anyhow::Result<End> {
        let (mut step, mut last_orphan) = (Step::Missing, String::new());
        loop {
            let sent = span.now();
            let now = self.clock().now();
            let orphans = match &step {
                Step::Orphans(names) => self.read_orphans(names, identity, lease).await,
                _ => Orphans::default(),
            };
            if !span.may_claim() {
                return Ok(End::Stopped);
            }
            let mut tx = db::begin_transaction(self.pool()).await?;
            let Some(mut next) = lock_turn(&mut tx, turn, self.owner()).await? else { return Ok(End::Stopped) };
            // Force was requested after the brake was applied, so check again before the sweep may end.
            if next.force && !turn.force && matches!(step, Step::Orphans(_)) {
                step = Step::Changes;
                last_orphan.clear();
            }
            if !matches!(step, Step::Orphans(_)) && self.has_many_repairs(&mut tx).await? {
                return Ok(End::Stopped);
            }
            step = match step {
                Step::Missing => match search_slice(&mut tx, &mut next, REPAIRS, now).await? {
                    Search::More => Step::Missing,
                    Search::Done => Step::Changes,
                },
                Step::Changes => match release_changes(&mut tx, &mut next, REPAIRS, now).await? {
                    Release::More => Step::Changes,
                    Release::Done => {
                        orphans::forget_gone(&mut tx, &next).await?;
                        Step::Orphans(orphans::list_deletable(&mut tx, &mut next, ORPHANS).await?)
                    }
                },
                Step::Orphans(names) => {
                    last_orphan = names.last().cloned().unwrap_or(last_orphan);
                    next.findings.orphans_deleted += orphans::enqueue_deletions(&mut tx, &orphans.ours, now).await?;
                    next.findings.orphans_foreign += orphans.foreign.len() as u64;
                    orphans::mark_foreign(&mut tx, &orphans.foreign).await?;
                    Step::Orphans(orphans::list_ripe(&mut tx, &next, &last_orphan, ORPHANS).await?)
                }
            };
            let is_done = matches!(&step, Step::Orphans(names) if names.is_empty());
            advance_turn(&mut tx, &next).await?;
            if is_done {
                if next.force {
                    force_rollout(&mut tx, next.generation).await?;
                }
                // A schedule that was not read may be of an older generation.
                if next.findings.explained == 0 && next.findings.unread == 0 {
                    finish_rollout(&mut tx, next.generation, next.id).await?;
                }
                finish_turn(&mut tx, &next).await?;
            }
            self.injector().pass_point(Point::C2).await;
            tx.commit().await?;
            *turn = next;
            lease.extend_from(sent);
            if is_done {
                return Ok(End::Done);
            }
        }
    }

    /// Whether so many repairs are due that the drain must publish some before the sweep enqueues more.
    async fn has_many_repairs(&self, tx: &mut PgConnection) -> sqlx::Result<bool> {
        let due = repair::count_due_repairs(tx, self.low_water().marks(), MOST_REPAIRS).await?;
        Ok(due >= MOST_REPAIRS)
    }

    /// Reads orphans before their deletion, because one may be another database's. Unreadable ones wait for the next
    /// sweep.
    async fn read_orphans(&self, names: &[String], identity: Identity, lease: &Lease) -> Orphans {
        let mut orphans = Orphans::default();
        for name in names {
            let Some(parsed) = ScheduleName::parse(name, &self.config().env) else { continue };
            match self.call_when_allowed(lease, self.rate(), self.schedules().get_schedule(&parsed, lease)).await {
                Ok(existing) => {
                    match existing.and_then(|existing| identity.other_in(existing.description.as_deref())) {
                        Some(other) => {
                            tracing::error!(name, identity = %other.0, "schedule {name} belongs to another database");
                            orphans.foreign.push((name.clone(), other));
                        }
                        None => orphans.ours.push(parsed),
                    }
                }
                Err(fault) => tracing::warn!(name, "schedule {name} not read: {}", fault.message),
            }
        }
        orphans
    }

    /// Records why EventBridge refused to list, for operators and for the publisher that continues.
    async fn note_refusal(&self, turn: &mut Turn, fault: &Fault) -> sqlx::Result<()> {
        tracing::warn!(sweep = turn.id, "sweep stopped: {}", fault.message);
        turn.findings.stopped_by = Some(fault.message.clone());
        // A token expires; then list from the beginning. The workflows seen so far stay recorded. EventBridge's message
        // about the token names no field, so it may be classified as a refused setting.
        if turn.next_token.is_some() && matches!(fault.kind, Kind::Invalid | Kind::Setting) {
            turn.next_token = None;
            turn.findings.restart_list();
        }
        record_refusal(self.pool(), turn, self.owner()).await
    }
}

fn log_turn(turn: &Turn) {
    let findings = &turn.findings;
    tracing::info!(
        sweep = turn.id,
        report = %serde_json::json!(findings),
        "sweep: {} of {} schedules differ",
        findings.total_drift(),
        findings.listed
    );
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const THROTTLED: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nx-amzn-errortype: ThrottlingException\r\n\
                               content-length: 2\r\nconnection: close\r\n\r\n{}";

    /// An EventBridge that throttles each call.
    async fn throttling() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                // A list has no body, so one read returns the complete request.
                assert!(stream.read(&mut [0; 8192]).await.unwrap() > 0);
                stream.write_all(THROTTLED).await.unwrap();
            }
        });
        endpoint
    }

    /// Lists have their own quota, so edits continue at their rate.
    #[tokio::test(start_paused = true)]
    async fn a_throttled_list_slows_lists_only() {
        let nowhere = "postgres://u@127.0.0.1:9/d?sslmode=disable";
        let publisher = Publisher::of_test(nowhere, &throttling().await).await;
        let span = publisher.new_span(None, Renewal::Off);
        let refused = publisher.list(None, &Lease::new(span.now(), &span)).await;
        assert_eq!(refused.unwrap_err().kind, Kind::Throttled);
        assert!(publisher.list_rate().is_slowed() && !publisher.rate().is_slowed());
    }
}
