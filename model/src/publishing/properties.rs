//! What must hold of the publishers.

use stateright::Property;

use super::state::{Content, Due, Lease, PUBLISHERS, Publishing, Stage, State, Workflow};

/// What `sync_status` says at rest is true.
pub const SYNCED: &str = "a synced publication says what EventBridge has";
/// What EventBridge has at rest.
pub const NEWEST: &str = "no older revision remains at rest";
/// The lease.
pub const ONE_OWNER: &str = "a workflow has one owner";
/// S1 of the torture.
pub const APPLIED: &str = "no revision is applied that was not desired";
/// Liveness.
pub const PUBLISHED: &str = "EventBridge has the newest revision at last";
/// Shows that the model has the race for which the verify pass exists.
pub const UNDONE: &str = "a late request undoes a newer call";
/// Shows that it is repaired.
pub const VERIFIED: &str = "a verify pass reads another schedule than the published one";

pub(super) fn list<const W: usize>() -> Vec<Property<Publishing<W>>> {
    vec![
        Property::always(SYNCED, |_, state: &State<W>| {
            state.at_rest().all(|row| !row.is_synced() || row.spec_hash == Some(row.scheduled))
        }),
        Property::always(NEWEST, |_, state: &State<W>| state.at_rest().all(Workflow::has_newest)),
        Property::always(ONE_OWNER, |_, state: &State<W>| {
            (0..W).all(|workflow| {
                let owns =
                    |stage: &&Stage| stage.claim().is_some_and(|claim| claim.is_current && claim.workflow == workflow);
                state.publishers.iter().filter(owns).count() <= 1
            })
        }),
        Property::always(APPLIED, |_, state: &State<W>| state.workflows.iter().all(|row| row.applied <= row.desired)),
        Property::eventually(PUBLISHED, |_, state: &State<W>| state.is_finished()),
        Property::sometimes(UNDONE, |_, state: &State<W>| {
            let undone = |row: &Workflow| row.is_synced() && row.spec_hash != Some(row.scheduled);
            state.workflows.iter().any(undone)
        }),
        Property::sometimes(VERIFIED, |_, state: &State<W>| {
            let reads_other = |stage: &Stage| {
                let Stage::Ready { claim, wanted, .. } = stage else { return false };
                let row = &state.workflows[claim.workflow];
                claim.is_read && row.applied == wanted.revision && claim.spec_hash == Some(wanted.content)
            };
            state.publishers.iter().any(reads_other)
        }),
    ]
}

impl Workflow {
    /// `sync_status(publications)`, without drift and permanent failures.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.spec_hash.is_some() && self.applied >= self.desired
    }

    /// Whether EventBridge and the publication have the newest revision.
    fn has_newest(&self) -> bool {
        let newest: Content = self.content;
        self.applied == self.desired && self.spec_hash == Some(newest) && self.scheduled == newest
    }
}

impl<const W: usize> State<W> {
    /// The workflows of which nothing is due, leased or in flight.
    fn at_rest(&self) -> impl Iterator<Item = &Workflow> {
        let is_free = |workflow: usize| {
            let late = self.late.iter().any(|late| late.workflow == workflow);
            let open = self.publishers.iter().filter_map(Stage::open_request).any(|late| late.workflow == workflow);
            !late && !open
        };
        let rests = |row: &Workflow| row.due == Due::Never && row.lease == Lease::None;
        (0..W)
            .filter(move |workflow| is_free(*workflow))
            .map(|workflow| &self.workflows[workflow])
            .filter(move |row| rests(row))
    }

    /// Whether nothing can happen any more, and all is as it must be.
    fn is_finished(&self) -> bool {
        let is_idle = self.publishers == [Stage::Idle; PUBLISHERS];
        is_idle && self.late.is_empty() && self.edits == 0 && self.at_rest().filter(|row| row.has_newest()).count() == W
    }
}
