//! Takes one remedy away at a time: the checker must find the property that it guards violated.
//!
//! So each test proves two things: the remedy is needed, and the model would show its loss. Where two remedies guard
//! the same property, each of them suffices, and both must be taken away.

use model::check::find_violation;
use model::execution::properties as of_runs;
use model::execution::state::{self as execution, Execution};
use model::publishing::properties as of_publishers;
use model::publishing::state::{self as publishing, Publishing};

fn assert_publishers_need(remedy: publishing::Remedy, property: &'static str) {
    let without = Some(remedy);
    let model = Publishing::<1> { edits: 1, faults: 2, has_broken_connections: false, without };
    let checked = find_violation(model, property);
    let path = checked.counterexample(property).unwrap_or_else(|| panic!("{remedy:?}: {checked:?}"));
    println!("without {remedy:?}, after {} states: {property}: {path:#?}", checked.states);
}

fn assert_executors_need(remedy: execution::Remedy, property: &'static str) {
    let without = Some(remedy);
    let model = Execution { deliveries: 2, faults: 2, recoveries: 1, has_starts: false, without };
    assert_found(model, property);
}

fn assert_found(model: Execution, property: &'static str) {
    let (remedy, checked) = (model.without, find_violation(model, property));
    let path = checked.counterexample(property).unwrap_or_else(|| panic!("{remedy:?}: {checked:?}"));
    println!("without {remedy:?}, after {} states: {property}: {path:#?}", checked.states);
}

/// Another remedy guards the property, too.
fn assert_executors_keep(faults: u8, remedy: execution::Remedy, property: &'static str) {
    let without = Some(remedy);
    let checked =
        find_violation(Execution { deliveries: 2, faults, recoveries: 1, has_starts: false, without }, property);
    assert_eq!(checked.counterexample(property), None);
    println!("without {remedy:?}, {} states: {property}", checked.states);
}

/// A publisher that was slower than its lease settles a claim that another publisher has taken over.
#[test]
fn settles_need_the_epoch_fence() {
    assert_publishers_need(publishing::Remedy::EpochFence, of_publishers::NEWEST);
}

/// The request of a killed publisher arrives after the next owner has published.
#[test]
fn takeovers_need_a_verify_pass() {
    assert_publishers_need(publishing::Remedy::VerifyAfterTakeover, of_publishers::SYNCED);
}

/// A request without an answer arrives after the next one.
#[test]
fn lost_answers_need_a_verify_pass() {
    assert_publishers_need(publishing::Remedy::VerifyAfterDoubt, of_publishers::SYNCED);
}

/// The verify pass reads before the last late request arrives.
#[test]
fn verify_passes_need_dead_signatures() {
    assert_publishers_need(publishing::Remedy::WaitForSignatures, of_publishers::SYNCED);
}

/// An edit commits between the claim and its settle.
#[test]
fn settles_need_the_recheck_of_edits() {
    assert_publishers_need(publishing::Remedy::RecheckOfEdits, of_publishers::NEWEST);
}

/// A publisher sends yesterday's content after the verify pass of the next owner.
#[test]
fn requests_need_a_live_lease() {
    assert_publishers_need(publishing::Remedy::SignWithinLease, of_publishers::SYNCED);
}

/// Two fires read at the same moment that no run is active.
#[test]
fn overlap_needs_the_workflow_lock() {
    assert_executors_need(execution::Remedy::WorkflowLock, of_runs::OVERLAP);
}

/// Two fires overlap, but the two deliveries of one fire make one decision.
#[test]
fn constraints_keep_one_decision() {
    assert_executors_keep(0, execution::Remedy::WorkflowLock, of_runs::ONE_DECISION);
    assert_executors_keep(0, execution::Remedy::WorkflowLock, of_runs::ONE_RUN);
}

/// The two deliveries of one fire.
#[test]
fn decisions_need_lock_or_constraint() {
    assert_executors_need(execution::Remedy::UniqueDecision, of_runs::ONE_DECISION);
    assert_executors_need(execution::Remedy::UniqueDecision, of_runs::ONE_RUN);
}

/// The attempt of a suspended instance ends the run that another instance executes.
#[test]
fn ends_need_the_attempt_fence() {
    assert_executors_need(execution::Remedy::AttemptFence, of_runs::NEWEST_ATTEMPT);
}

/// The attempt of a suspended instance ends a run that has ended.
#[test]
fn ends_need_a_running_run() {
    assert_executors_need(execution::Remedy::RunningState, of_runs::ENDS_ONCE);
}

/// The reply to a claim is lost, and the heartbeats of its instance keep the lease for ever.
#[test]
fn renewals_need_attempt_or_hand_over() {
    assert_executors_need(execution::Remedy::RenewalAndHandOver, of_runs::ALL_ENDS);
}

/// The lease of a run that its instance does not know ends, or the instance hands the run over.
#[test]
fn each_remedy_of_lost_replies_suffices() {
    assert_executors_keep(1, execution::Remedy::RenewalByAttempt, of_runs::ALL_ENDS);
    assert_executors_keep(1, execution::Remedy::HandOverOfUnknown, of_runs::ALL_ENDS);
}

/// Recovery takes a run over that its instance executes.
#[test]
fn recovery_needs_the_end_of_leases() {
    assert_executors_need(execution::Remedy::LeaseEnd, of_runs::NO_NEEDLESS_ATTEMPT);
}

/// Fires accumulate behind a run that waits for an executor.
#[test]
fn waiting_fires_need_one_place() {
    assert_executors_need(execution::Remedy::WaitingPlace, of_runs::ONE_WAITS);
}

/// An instance hands over what it does not know, while it is about to execute a run that its decision has started.
#[test]
fn hand_overs_wait_for_started_runs() {
    let without = Some(execution::Remedy::WaitForStarts);
    let model = Execution { deliveries: 1, faults: 1, recoveries: 1, has_starts: true, without };
    assert_found(model, of_runs::COUNTS_AS_STARTED);
}

/// The reply to a decision that has started its run is lost, and the heartbeats of its instance keep the lease for ever.
#[test]
fn started_runs_need_attempt_or_hand_over() {
    let without = Some(execution::Remedy::RenewalAndHandOver);
    let model = Execution { deliveries: 1, faults: 1, recoveries: 1, has_starts: true, without };
    assert_found(model, of_runs::ALL_ENDS);
}
