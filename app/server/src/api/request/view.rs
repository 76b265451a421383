//! Steps 1 and 7 of 7: how the API shows what the other crates decide, by the types that it shares with its clients.

/// Shows a value: the types of the answers belong to a crate that knows neither the database nor this service.
pub(crate) trait ViewFrom<T>: Sized {
    /// The view of a value.
    fn view_from(value: T) -> Self;
}

/// The view of a value.
pub(crate) fn to_view<T, V: ViewFrom<T>>(value: T) -> V {
    V::view_from(value)
}

impl<T, V: ViewFrom<T>> ViewFrom<Option<T>> for Option<V> {
    fn view_from(value: Option<T>) -> Self {
        value.map(V::view_from)
    }
}

impl<T, V: ViewFrom<T>> ViewFrom<Vec<T>> for Vec<V> {
    fn view_from(values: Vec<T>) -> Self {
        values.into_iter().map(V::view_from).collect()
    }
}

/// Shows an enum as one with the same variants: a variant that the view lacks is a compiler's error.
macro_rules! same_variants {
    ($($from:path => $to:path { $($variant:ident),+ $(,)? })+) => {
        $(impl ViewFrom<$from> for $to {
            fn view_from(value: $from) -> Self {
                use $from as From;
                match value {
                    $(From::$variant => Self::$variant,)+
                }
            }
        })+
    };
}

same_variants! {
    workflows::definition::policies::Overlap => api_types::workflows::Overlap { Skip, Queue, QueueOne, Replace, Concurrent }
    workflows::definition::policies::CatchUp => api_types::workflows::CatchUp { None, Skip, RunAll }
    workflows::definition::policies::OnLost => api_types::workflows::OnLost { Retry, Abandon }
    workflows::PausedBy => api_types::workflows::PausedBy { Client, Cronbox }
    workflows::State => api_types::workflows::State { Active, Paused, Archived }
    workflows::SyncStatus => api_types::workflows::SyncStatus { Pending, Synced, Failed, Drifted, None }
    workflows::trigger::Trigger => api_types::runs::Trigger { Schedule, Manual, CatchUp, Backfill, Retry }
    ledger::runs::RunState => api_types::runs::RunState { Accepted, Queued, Running, Succeeded, Failed, TimedOut, Cancelled, Abandoned }
    ledger::occurrences::Decision => api_types::occurrences::Decision { Fired, CaughtUp, Backfilled, SkippedOverlap, SkippedPaused, Missed, Abandoned }
    ledger::backfills::Order => api_types::backfills::Order { OldestFirst, NewestFirst }
    ledger::backfills::Timing => api_types::backfills::BackfillTiming { Then, Now }
    ledger::backfills::Only => api_types::backfills::Only { Missing, Failed, All }
    ledger::backfills::State => api_types::backfills::BackfillState { Running, Paused, Cancelled, Finished }
    ledger::bulk::Verb => api_types::bulk::BulkVerb { Pause, Resume, Archive, Delete, Fire, Retry, Cancel }
    ledger::bulk::State => api_types::bulk::BulkState { Running, Finished, Cancelled }
    ledger::bulk::Outcome => api_types::bulk::BulkOutcome { Done, Unchanged, Refused }
    workflows::events::EventKind => api_types::events::EventKind { Edit, Sync, Decision, RunEnd }
    crate::jobs::LastResult => api_types::jobs::LastResult { Success, Failed, Skipped }
    workflows::outbox::operate::Status => api_types::outbox::Status { Pending, Failed, Processed, Discarded }
    workflows::dead_letters::LetterQueue => api_types::dead_letters::LetterQueue { Schedules, Runner, Publisher }
    workflows::dead_letters::LetterKind => api_types::dead_letters::LetterKind { Fire, Tick, Unreadable }
    workflows::dead_letters::LetterState => api_types::dead_letters::LetterState {
        Present, RedriveRequested, Redriving, Redriven, RedriveFailed, DiscardRequested, Discarded, Gone,
    }
    access::keys::Kind => api_types::keys::Kind { Admin, Team, Scheduler }
    access::keys::Role => api_types::keys::Role { Viewer, Editor }
    access::rights::Scope => api_types::keys::Scope { Read, Edit, Auditor, Operate, Admin, Invoke }
    ledger::verify::Kind => api_types::verify::DifferenceKind { Missing, NotDue, NoRun, TwoRuns, RunWithoutDecision, Contradicted, RanFrozen }
    workflows::audit::verify::AuditDifferenceKind => api_types::audit::AuditDifferenceKind { Changed, Removed, Inserted }
}

impl ViewFrom<workflows::Sync> for api_types::workflows::SyncView {
    fn view_from(sync: workflows::Sync) -> Self {
        Self {
            status: to_view(sync.status),
            desired_revision: sync.desired_revision,
            applied_revision: sync.applied_revision,
            error_class: sync.error_class,
            last_error: sync.last_error,
            applied_at: sync.applied_at,
        }
    }
}

impl ViewFrom<access::limits::TeamLimits> for api_types::limits::LimitsView {
    fn view_from(limits: access::limits::TeamLimits) -> Self {
        Self {
            running_runs: limits.running_runs,
            workflows: limits.workflows,
            fires_per_minute: limits.fires_per_minute,
            input_bytes: limits.input_bytes,
            archived_workflows: limits.archived_workflows,
            archived_bytes: limits.archived_bytes,
            requests_in_flight: limits.requests_in_flight,
            edits_in_flight: limits.edits_in_flight,
            lists_in_flight: limits.lists_in_flight,
        }
    }
}
