//! Step 1 of 7: parses a file of workflows, so that every complaint names its line.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use serde_saphyr::Spanned;
use workflows::definition::body::WorkflowBody;
use workflows::definition::field::{self, FieldError};

/// The complete file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    workflows: Vec<Spanned<BTreeMap<String, Spanned<Value>>>>,
}

/// One workflow of the file.
#[derive(Debug)]
pub(super) struct Definition {
    /// The owner.
    pub(super) team: Team,
    /// The workflow's fields.
    pub(super) body: WorkflowBody,
    lines: Lines,
}

/// The owner, as the file names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Team {
    Named(String),
    Numbered(i64),
}

/// The line at which a definition begins, and the line of each of its fields.
#[derive(Debug)]
struct Lines {
    first: u64,
    fields: BTreeMap<String, u64>,
}

/// An error, and its line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Complaint {
    pub(super) line: u64,
    pub(super) detail: String,
}

/// Parses the file's text.
///
/// # Errors
/// Returns all errors of the file itself: YAML, fields, owners. Crons and timezones are validated later, together with
/// the existing workflow.
pub(super) fn parse_document(text: &str) -> Result<Vec<Definition>, Vec<Complaint>> {
    let options = serde_saphyr::options! {
        // Only `true` and `false` are booleans, because a name or a message may be `no`.
        strict_booleans: true,
        // The text may contain header values, which must not be logged.
        with_snippet: false,
    };
    let document: Document =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| vec![Complaint::of_yaml(&error)])?;
    let (mut definitions, mut complaints) = (Vec::<Definition>::new(), Vec::new());
    for entry in document.workflows {
        match Definition::read(entry) {
            Ok(definition) => match definitions.iter().find(|other| other.is_the_same_as(&definition)) {
                None => definitions.push(definition),
                Some(other) => {
                    let detail = format!("name: the workflow of line {} has the same team and name", other.lines.first);
                    complaints.push(Complaint { line: definition.lines.of("name"), detail });
                }
            },
            Err(complaint) => complaints.push(complaint),
        }
    }
    if complaints.is_empty() { Ok(definitions) } else { Err(complaints) }
}

impl Definition {
    fn read(entry: Spanned<BTreeMap<String, Spanned<Value>>>) -> Result<Self, Complaint> {
        let first = entry.referenced.line();
        let fields = entry.value.iter().map(|(name, value)| (name.clone(), value.referenced.line())).collect();
        let lines = Lines { first, fields };
        let mut members: Map<String, Value> =
            entry.value.into_iter().map(|(name, value)| (name, value.value)).collect();
        let team = team(&mut members).map_err(|error| lines.complain(&error))?;
        let body = field::parse_document("", Value::Object(members)).map_err(|error| lines.complain(&error))?;
        Ok(Self { team, body, lines })
    }

    /// Returns a complaint about one of its fields.
    pub(super) fn complaint_about(&self, error: &FieldError) -> Complaint {
        self.lines.complain(error)
    }

    fn is_the_same_as(&self, other: &Self) -> bool {
        self.team == other.team && self.body.name == other.body.name
    }
}

/// Takes the owner out of a definition: a name, or an id of the API.
fn team(members: &mut Map<String, Value>) -> Result<Team, FieldError> {
    match (members.remove("team"), members.remove("team_id")) {
        (Some(Value::String(name)), None) => Ok(Team::Named(name)),
        (None, Some(id)) => field::parse_document("team_id", id).map(Team::Numbered),
        (Some(_), None) => Err(FieldError::invalid("team", "team must be the name of a team")),
        (Some(_), Some(_)) => Err(FieldError::invalid("team", "write team or team_id, not both")),
        (None, None) => Err(FieldError::new("missing_field", "team", "write team or team_id")),
    }
}

impl Lines {
    fn complain(&self, error: &FieldError) -> Complaint {
        let outermost = error.field.split('.').next().unwrap_or_default();
        let detail = match error.field.as_str() {
            "" => error.detail.clone(),
            field => format!("{field}: {}", error.detail),
        };
        Complaint { line: self.of(outermost), detail }
    }

    fn of(&self, field: &str) -> u64 {
        self.fields.get(field).copied().unwrap_or(self.first)
    }
}

impl Complaint {
    fn of_yaml(error: &serde_saphyr::Error) -> Self {
        let message = error.to_string();
        let detail = message.lines().next().unwrap_or_default();
        let detail = detail.split(" at line ").next().unwrap_or(detail);
        Self { line: error.location().map_or(1, |location| location.line()), detail: detail.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> Vec<String> {
        let complaints = parse_document(text).expect_err("it is wrong");
        complaints.iter().map(|complaint| format!("{}: {}", complaint.line, complaint.detail)).collect()
    }

    #[test]
    fn every_complaint_names_its_line() {
        let action = "    action: {type: log, message: hi}\n";
        let two = format!("workflows:\n  - team: a\n    name: n\n{action}  - team: a\n    name: n\n{action}");
        assert_eq!(complaints(&two), ["6: name: the workflow of line 2 has the same team and name"]);
        let several = format!("workflows:\n  - name: n\n{action}  - team: a\n    name: m\n{action}    colour: red\n");
        let reply = complaints(&several);
        assert_eq!(reply[0], "2: team: write team or team_id");
        assert!(reply[1].starts_with("7: colour: unknown field `colour`"), "{reply:?}");
        assert!(complaints("workflows:\n  - cron_schedule: */5 * * * *\n")[0].starts_with("2: "));
        assert!(complaints("workflows:\n  - team: a\n   name: n\n")[0].starts_with("3: "));
        assert!(complaints("")[0].starts_with("1: "));
    }

    #[test]
    fn yes_and_no_are_texts() {
        let text = "workflows:\n  - team: no\n    name: yes\n    action: {type: log, message: off}\n";
        let [definition] = &parse_document(text).unwrap()[..] else { panic!("there is one") };
        assert_eq!((&definition.team, &*definition.body.name), (&Team::Named("no".into()), "yes"));
        assert_eq!(definition.body.action["message"], "off");
    }

    /// The text may contain header values.
    #[test]
    fn yaml_complaints_show_no_text() {
        let reply = complaints("workflows:\n  - action: {headers: {authorization: hunter2}}\n    action: {}\n");
        assert!(reply.len() == 1 && !reply[0].contains("hunter2"), "{reply:?}");
    }
}
