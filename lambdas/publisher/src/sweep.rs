//! Steps 3 and 4 of 7: the sweep: all that stands in EventBridge, held against the database.
//!
//! Edits reach EventBridge by the outbox; what somebody changes there by hand is found only by
//! looking. Page by page (`schedules/list.rs`) what is listed is compared (`compare.rs`) with what
//! is known (`known.rs`), a few schedules are read whole (`page.rs`), and what differs is enqueued
//! (`repair.rs`): the drain puts it right. After the last page it is clear what is missing, and which
//! schedules belong to nobody (`orphans.rs`).
//!
//! No page is kept in memory: what was seen is in the database, so that whoever has time goes on
//! where a killed sweep has stopped (`turn.rs`).

mod compare;
mod findings;
mod known;
mod orphans;
mod page;
mod repair;
mod turn;

use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::Publisher;
use crate::drain::{Drained, Ending};
use crate::fault::{Fault, Kind};
use crate::inject::Point;
use crate::lease::{Lease, Renewal, Span};
use crate::report::Report;
use crate::schedules::Page;

pub use self::findings::Findings;
use self::orphans::Disposal;
use self::page::Compared;
use self::turn::{Hold, Stage, Turn};

/// AWS grants 50 a second to the whole account.
pub(crate) const LISTS_PER_SEC: u32 = 40;
/// So many schedules that nothing speaks against are read whole in each sweep.
const SAMPLE: i64 = 100;
/// Workflows enqueued in one transaction.
const REPAIRS: i64 = 2000;
/// How often a daemon looks whether a sweep is due.
const POLL: Duration = Duration::from_secs(5);

/// What became of a call to sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swept {
    /// None is due, or another publisher is at it.
    NotNow,
    /// The time was up, EventBridge refused, or somebody took over; the next tick goes on.
    Stopped(Findings),
    /// All was compared.
    Done(Findings),
}

/// How a stretch of work on a sweep ended.
enum End {
    Done,
    /// The time is up, or the sweep is somebody else's by now.
    Stopped,
    Refused(Fault),
}

impl Publisher {
    /// One tick: drains, sweeps if that is due, and drains what the sweep has enqueued.
    ///
    /// # Errors
    /// Those of [`Publisher::drain`]; a sweep that fails is logged, and goes on in the next tick.
    pub async fn tick(&self, deadline: Instant) -> anyhow::Result<Report> {
        let span = self.span(deadline);
        let Drained { mut report, ending } = self.drain_for(&span).await?;
        // Who may not write now may not list either, and is not to be asked to write more.
        if ending == Ending::Stopped {
            return Ok(report);
        }
        match self.sweep_for(&span).await {
            Ok(Swept::NotNow) => {}
            Ok(_) => report.add(self.drain_for(&span).await?.report),
            Err(error) => tracing::warn!("the sweep stopped: {error:#}"),
        }
        Ok(report)
    }

    /// Sweeps if it is time, or if somebody has asked; ends shortly before `deadline`.
    ///
    /// # Errors
    /// The database's; the sweep goes on when its lease has lapsed.
    pub async fn sweep(&self, deadline: Instant) -> anyhow::Result<Swept> {
        self.sweep_for(&self.span(deadline)).await
    }

    /// Asks for a sweep, whenever the last one was.
    ///
    /// # Errors
    /// The database's.
    pub async fn request_sweep(&self, requested_by: &str) -> anyhow::Result<()> {
        Ok(turn::request(self.pool(), requested_by).await?)
    }

    /// A daemon's sweeps, beside its drains: a long list must not hold up an edit.
    pub(crate) async fn sweep_often(&self, span: &Span, word: &Notify, over: &Notify) {
        while span.may_claim() {
            match self.sweep_for(span).await {
                Ok(Swept::NotNow) => {}
                Ok(_) => word.notify_one(),
                Err(error) => tracing::warn!("the sweep stopped: {error:#}"),
            }
            if span.may_claim() {
                let _ = tokio::time::timeout(POLL, over.notified()).await;
            }
        }
    }

    async fn sweep_for(&self, span: &Span) -> anyhow::Result<Swept> {
        if !span.may_claim() {
            return Ok(Swept::NotNow);
        }
        turn::request_if_time(self.pool()).await?;
        let sent = span.now();
        let Some(mut turn) = turn::take(self.pool(), self.owner(), SAMPLE).await? else { return Ok(Swept::NotNow) };
        let lease = Lease::new(sent, span);
        let ended = self.go_on(&mut turn, &lease, span).await;
        if let Ok(End::Done) = ended {
            tell(&turn);
            return Ok(Swept::Done(turn.findings));
        }
        if let Ok(End::Refused(fault)) = &ended {
            self.note_refusal(&mut turn, fault);
        }
        // Also after an error of the database, if that is back: nobody need wait for the lease.
        let released = turn::release(self.pool(), &turn, self.owner()).await;
        ended?;
        released?;
        Ok(Swept::Stopped(turn.findings))
    }

    async fn go_on(&self, turn: &mut Turn, lease: &Lease, span: &Span) -> anyhow::Result<End> {
        if turn.stage == Stage::Listing {
            match self.list_all(turn, lease, span).await? {
                End::Done => {}
                end => return Ok(end),
            }
        }
        self.conclude(turn, lease, span).await
    }

    /// Goes through the list; the next page is asked for while one is compared.
    async fn list_all(&self, turn: &mut Turn, lease: &Lease, span: &Span) -> anyhow::Result<End> {
        let mut ahead = Some(self.list(turn.next_token.clone(), lease).await);
        while let Some(listed) = ahead.take() {
            let page = match listed {
                Ok(page) => page,
                Err(fault) => return Ok(End::Refused(fault)),
            };
            self.injector().at(Point::C1).await;
            let next = async {
                match &page.next_token {
                    Some(token) if span.may_claim() => Some(self.list(Some(token.clone()), lease).await),
                    _ => None,
                }
            };
            let (next, compared) = tokio::join!(next, self.compare(turn, &page, lease));
            if self.write_down(turn, compared?, &page, lease, span).await? == Hold::Lost {
                return Ok(End::Stopped);
            }
            ahead = next;
        }
        Ok(if turn.stage == Stage::Listed { End::Done } else { End::Stopped })
    }

    /// A page, at the pace that the account's quota of lists allows.
    async fn list(&self, token: Option<String>, lease: &Lease) -> Result<Page, Fault> {
        self.list_rate().slot(|| lease.is_live()).await;
        self.allowed(lease, self.schedules().list(token, lease)).await
    }

    /// What a page came to, and where the list goes on, in one transaction.
    async fn write_down(
        &self,
        turn: &mut Turn,
        compared: Compared,
        page: &Page,
        lease: &Lease,
        span: &Span,
    ) -> anyhow::Result<Hold> {
        let sent = span.now();
        let now = self.clock().now();
        let mut tx = db::begin(self.pool()).await?;
        if turn::hold(&mut tx, turn, self.owner()).await? == Hold::Lost {
            return Ok(Hold::Lost);
        }
        turn.findings = compared.findings;
        turn.next_token.clone_from(&page.next_token);
        turn.stage = if page.next_token.is_some() { Stage::Listing } else { Stage::Listed };
        repair::sight(&mut tx, turn, &compared.sighted).await?;
        orphans::note(&mut tx, &compared.orphans).await?;
        repair::confirm(&mut tx, &compared.confirmed).await?;
        turn.findings.repaired += repair::enqueue(&mut tx, &compared.differences, now).await?;
        turn.findings.repaired += repair::adopt(&mut tx, &compared.unpublished, findings::Class::Changed, now).await?;
        turn::advance(&mut tx, turn).await?;
        self.injector().at(Point::C2).await;
        tx.commit().await?;
        lease.renewed(sent);
        Ok(Hold::Ours)
    }

    /// After the last page: what is missing, what belongs to nobody.
    async fn conclude(&self, turn: &mut Turn, lease: &Lease, span: &Span) -> anyhow::Result<End> {
        loop {
            let sent = span.now();
            let now = self.clock().now();
            let mut tx = db::begin(self.pool()).await?;
            if !span.may_claim() || turn::hold(&mut tx, turn, self.owner()).await? == Hold::Lost {
                return Ok(End::Stopped);
            }
            let missing = repair::enqueue_missing(&mut tx, turn, REPAIRS, now).await?;
            turn.findings.missing += missing;
            turn.findings.repaired += missing;
            if missing == 0 {
                orphans::forget_gone(&mut tx, turn).await?;
                let disposal = orphans::dispose(&mut tx, turn, self.config(), REPAIRS, now).await?;
                turn::advance(&mut tx, turn).await?;
                if disposal == Disposal::Done {
                    turn::finish(&mut tx, turn).await?;
                    self.injector().at(Point::C2).await;
                    tx.commit().await?;
                    return Ok(End::Done);
                }
            } else {
                turn::advance(&mut tx, turn).await?;
            }
            self.injector().at(Point::C2).await;
            tx.commit().await?;
            lease.renewed(sent);
        }
    }

    fn note_refusal(&self, turn: &mut Turn, fault: &Fault) {
        tracing::warn!(sweep = turn.id, "the sweep stopped: {}", fault.message);
        turn.findings.stopped_by = Some(fault.message.clone());
        // A token does not live for ever; from the beginning, then. What was seen was seen.
        if fault.kind == Kind::Invalid {
            turn.next_token = None;
        }
    }

    fn span(&self, deadline: Instant) -> Span {
        Span::until(deadline, Renewal::Off, self.injector().stopwatch())
    }

    fn owner(&self) -> &str {
        &self.claimant().owner
    }
}

fn tell(turn: &Turn) {
    let findings = &turn.findings;
    tracing::info!(
        sweep = turn.id,
        report = %serde_json::json!(findings),
        "sweep: {} of {} schedules differ",
        findings.drift(),
        findings.listed
    );
}
