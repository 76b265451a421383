//! `previous_name`: the name from which `cronbox apply` renames a workflow, so that it keeps its id and its history.

use serde_json::{Map, Value};

/// The names of a workflow of a file, and its team.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a, T> {
    /// Its team; names of two teams have nothing in common.
    pub team: T,
    /// Its name.
    pub name: &'a str,
    /// The name from which it is renamed.
    pub previous: Option<&'a str>,
}

/// The previous name of a workflow that another workflow of its team has, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatedName {
    /// The index of the workflow with the previous name.
    pub at: usize,
    /// The index of the other workflow.
    pub other: usize,
    /// The field of the other workflow: `name` or `previous_name`.
    pub field: &'static str,
}

impl RepeatedName {
    /// What is wrong with the previous name; `there` is where the other workflow is.
    #[must_use]
    pub fn in_words(&self, there: &str) -> String {
        format!("{there} has it as its {}: remove one of them", self.field)
    }
}

/// Finds the previous names that a second workflow of the same team has as its name or its previous name: a rename gives what
/// has this name in the app to one of them only.
#[must_use]
pub fn find_repeated_previous_names<T: PartialEq>(all: &[Names<'_, T>]) -> Vec<RepeatedName> {
    let renamed = (0..all.len()).filter(|at| all[*at].previous.is_some());
    renamed.filter_map(|at| (0..all.len()).find_map(|other| compare_names(all, at, other))).collect()
}

fn compare_names<T: PartialEq>(all: &[Names<'_, T>], at: usize, other: usize) -> Option<RepeatedName> {
    let (names, others) = (&all[at], &all[other]);
    let previous = names.previous?;
    let field = if at == other || names.team != others.team {
        return None;
    } else if others.name == previous {
        "name"
    } else if other < at && others.previous == Some(previous) {
        // The later one of both is reported.
        "previous_name"
    } else {
        return None;
    };
    Some(RepeatedName { at, other, field })
}

/// Takes the previous name out of a definition: it is no field of the API.
pub(crate) fn take_previous_name(fields: &mut Map<String, Value>, name: &str) -> Result<Option<String>, &'static str> {
    match fields.remove("previous_name") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(previous)) if previous == name => Err("it is the name of this workflow: remove it"),
        Some(Value::String(previous)) => Ok(Some(previous)),
        Some(_) => Err("previous_name must be a text"),
    }
}
