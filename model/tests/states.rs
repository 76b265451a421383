//! Visits every state of the models within a bound, and prints how many these are.

use model::check::visit_all;
use model::execution::state::Execution;
use model::publishing::state::Publishing;

/// Three edits of one workflow, and two publishers with two faults.
#[test]
fn publishers_keep_all_properties() {
    let checked = visit_all(Publishing::<1> { edits: 3, faults: 2, has_broken_connections: true, without: None });
    println!("publishing, 1 workflow: {} distinct states, depth {}", checked.states, checked.depth);
    assert_eq!(checked.violations, []);
    assert!(checked.unmet.is_empty(), "no example: {:?}", checked.unmet);
}

/// Two workflows, between which the publishers move.
#[test]
fn publishers_of_two_workflows_keep_all_properties() {
    let checked = visit_all(Publishing::<2> { edits: 1, faults: 1, has_broken_connections: false, without: None });
    println!("publishing, 2 workflows: {} distinct states, depth {}", checked.states, checked.depth);
    assert_eq!(checked.violations, []);
}

/// Three due times, each fired twice, and two instances with two faults.
#[test]
fn executors_keep_all_properties() {
    let checked = visit_all(Execution { deliveries: 2, faults: 2, recoveries: 1, has_starts: false, without: None });
    println!("execution: {} distinct states, depth {}", checked.states, checked.depth);
    assert_eq!(checked.violations, []);
    assert!(checked.unmet.is_empty(), "no example: {:?}", checked.unmet);
}

/// Three due times, each fired once, whose decisions may start their runs, and two instances with two faults.
#[test]
fn executors_of_started_runs_keep_all_properties() {
    let checked = visit_all(Execution { deliveries: 1, faults: 2, recoveries: 1, has_starts: true, without: None });
    println!("execution with starts: {} distinct states, depth {}", checked.states, checked.depth);
    assert_eq!(checked.violations, []);
    assert!(checked.unmet.is_empty(), "no example: {:?}", checked.unmet);
}
