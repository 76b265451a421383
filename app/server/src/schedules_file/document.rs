//! Step 1 of 7: the workflows of a file, as the API would read them.

use manifest::{Complaint, Entry, Lines, Team, parse_manifest};
use serde_json::Value;
use workflows::definition::body::WorkflowBody;
use workflows::definition::field::{self, FieldError};

/// One workflow of the file.
#[derive(Debug)]
pub(super) struct Definition {
    /// The owner.
    pub(super) team: Team,
    /// The workflow's fields.
    pub(super) body: WorkflowBody,
    /// Whether it is paused before it gets its schedule.
    pub(super) paused: bool,
    lines: Lines,
}

/// Parses the file's text.
///
/// # Errors
/// Returns all errors of the file itself: YAML, fields, owners. Crons and timezones are validated later, together with
/// the existing workflow.
pub(super) fn parse_document(
    text: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Definition>, Vec<Complaint>> {
    let manifest = parse_manifest(text, environment)?;
    let (mut definitions, mut complaints) = (Vec::new(), Vec::new());
    for entry in manifest.entries {
        match Definition::of_entry(entry) {
            Ok(definition) => definitions.push(definition),
            Err(complaint) => complaints.push(complaint),
        }
    }
    if complaints.is_empty() { Ok(definitions) } else { Err(complaints) }
}

impl Definition {
    fn of_entry(entry: Entry) -> Result<Self, Complaint> {
        let Entry { team, previous_name, paused, fields, lines, .. } = entry;
        if previous_name.is_some() {
            // If it were ignored, the load would create a second workflow, and both would run.
            return Err(lines.complain("previous_name", "only `cronbox apply` renames a workflow: remove it"));
        }
        let team = team.ok_or_else(|| lines.complain("team", "write team or team_id"))?;
        let body = field::parse_document("", Value::Object(fields))
            .map_err(|error| lines.complain(&error.field, &error.detail))?;
        Ok(Self { team, body, paused, lines })
    }

    /// Returns a complaint about one of its fields.
    pub(super) fn complaint_about(&self, error: &FieldError) -> Complaint {
        self.lines.complain(&error.field, &error.detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_complaint_names_its_line() {
        let action = "    action: {type: log, message: hi}\n";
        let several = format!("workflows:\n  - name: n\n{action}  - team: a\n    name: m\n{action}    colour: red\n");
        let complaints = parse_document(&several, &|_| None).expect_err("it is wrong");
        let reply: Vec<String> = complaints.iter().map(ToString::to_string).collect();
        assert_eq!(reply[0], "2: team: write team or team_id");
        assert!(reply[1].starts_with("7: colour: unknown field `colour`"), "{reply:?}");
    }

    /// It would create a second workflow.
    #[test]
    fn a_schedules_file_renames_nothing() {
        let text = "workflows:\n  - team: a\n    name: m\n    previous_name: n\n    action: {type: log, message: hi}\n";
        let complaints = parse_document(text, &|_| None).expect_err("it is wrong");
        let reply: Vec<String> = complaints.iter().map(ToString::to_string).collect();
        assert_eq!(reply, ["4: previous_name: only `cronbox apply` renames a workflow: remove it"]);
    }
}
