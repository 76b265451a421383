//! Visits the states of a model.

use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker as _, HasDiscoveries, Model};

/// What the checker found.
#[derive(Debug)]
pub struct Checked {
    /// How many distinct states it visited.
    pub states: usize,
    /// The length of the longest path to a state.
    pub depth: usize,
    /// The properties that do not hold, each with the actions of a shortest path that shows it.
    pub violations: Vec<(&'static str, Vec<String>)>,
    /// The properties of the kind "sometimes" of which it found no example.
    pub unmet: Vec<&'static str>,
}

impl Checked {
    /// The actions that violate a property; `None` if it holds.
    #[must_use]
    pub fn counterexample(&self, property: &str) -> Option<&[String]> {
        self.violations.iter().find(|(name, _)| *name == property).map(|(_, path)| path.as_slice())
    }
}

/// Visits all states of a model, on two threads; ends early only if a property does not hold.
#[must_use]
pub fn visit_all<M>(model: M) -> Checked
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    visit(model, 2, HasDiscoveries::AnyFailures)
}

/// Visits states in the order of their distance, until one of them violates the property.
#[must_use]
pub fn find_violation<M>(model: M, property: &'static str) -> Checked
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    visit(model, 1, HasDiscoveries::AnyOf([property].into()))
}

fn visit<M>(model: M, threads: usize, until: HasDiscoveries) -> Checked
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let properties = model.properties();
    let checker = model.checker().threads(threads).finish_when(until).spawn_bfs().join();
    let mut found = checker.discoveries();
    let mut checked = Checked {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        violations: Vec::new(),
        unmet: Vec::new(),
    };
    for property in properties {
        let path = found.remove(property.name);
        match (property.expectation.discovery_is_failure(), path) {
            (true, Some(path)) => {
                let path = path.into_actions().iter().map(|action| format!("{action:?}")).collect();
                checked.violations.push((property.name, path));
            }
            (false, None) => checked.unmet.push(property.name),
            (true, None) | (false, Some(_)) => {}
        }
    }
    checked
}
