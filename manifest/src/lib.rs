//! Files that define workflows: YAML of the form `cronbox/v1`.
//!
//! The command line (`cronbox apply`) and the service (`--schedules`) read them by the same code. It checks the file itself; what a
//! workflow may have is the API's to say. Every complaint names its line, and no complaint shows the text of a value, which may be
//! a secret.

mod complaint;
mod previous_name;
mod substitute;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use serde_saphyr::Spanned;

pub use complaint::{Complaint, Lines};
pub use previous_name::{Names, RepeatedName, find_repeated_previous_names};
pub use substitute::escape_variables;

/// The form of the file.
pub const VERSION: &str = "cronbox/v1";
/// The label by which `--prune` knows what belongs to a file.
pub const OWNER_LABEL: &str = "owner";

/// The complete file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: Option<Spanned<String>>,
    owner: Option<String>,
    team: Option<String>,
    workflows: Vec<Spanned<BTreeMap<String, Spanned<Value>>>>,
}

/// A file.
#[derive(Debug)]
pub struct Manifest {
    /// Who owns its workflows: the value of their label `owner`.
    pub owner: Option<String>,
    /// The team of each workflow that names none.
    pub team: Option<Team>,
    /// Its workflows.
    pub entries: Vec<Entry>,
}

/// A workflow of a file.
#[derive(Debug)]
pub struct Entry {
    /// The team that owns it; `None`: the file names none.
    pub team: Option<Team>,
    /// Its name.
    pub name: String,
    /// The name from which it is renamed, if no workflow has its name yet.
    pub previous_name: Option<String>,
    /// Whether it is paused before it gets its schedule, so that no time of it is due. One that has a schedule keeps its state.
    pub paused: bool,
    /// Its fields, as the API reads them, without the team, `previous_name` and `paused`.
    pub fields: Map<String, Value>,
    /// Where they are.
    pub lines: Lines,
}

/// A team, as a file names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Team {
    /// By its name.
    Named(String),
    /// By its id in the API.
    Numbered(i64),
}

/// Parses a file. `environment` finds the value of `${env:NAME}`; `$${env:` is that text itself.
///
/// # Errors
/// Returns all complaints about the file.
pub fn parse_manifest(text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<Manifest, Vec<Complaint>> {
    let options = serde_saphyr::options! {
        // Only `true` and `false` are booleans, because a name or a message may be `no`.
        strict_booleans: true,
        // The text may contain header values, which must not be logged.
        with_snippet: false,
    };
    let document: Document =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| vec![Complaint::of_yaml(&error)])?;
    let mut complaints = Vec::new();
    if let Some(version) = document.version.filter(|version| version.value != VERSION) {
        let detail = format!("version: this program knows {VERSION} only");
        complaints.push(Complaint { line: version.referenced.line(), detail });
    }
    let mut entries: Vec<Entry> = Vec::new();
    for written in document.workflows {
        match Entry::read(written, document.team.as_deref(), document.owner.as_deref(), environment) {
            Ok(entry) => match entries.iter().find(|other| other.is_the_same_as(&entry)) {
                None => entries.push(entry),
                Some(other) => {
                    let detail =
                        format!("name: the workflow of line {} has the same team and name", other.lines.first());
                    complaints.push(Complaint { line: entry.lines.of("name"), detail });
                }
            },
            Err(found) => complaints.extend(found),
        }
    }
    complaints.extend(complain_about_repeated_names(&entries));
    if complaints.is_empty() {
        Ok(Manifest { owner: document.owner, team: document.team.map(Team::Named), entries })
    } else {
        Err(complaints)
    }
}

/// Complains about the previous names that two workflows of the file have.
fn complain_about_repeated_names(entries: &[Entry]) -> Vec<Complaint> {
    let names: Vec<_> = entries.iter().map(|entry| entry.names(&entry.team)).collect();
    let repeated = find_repeated_previous_names(&names);
    let complaints = repeated.iter().map(|found| {
        let line = entries[found.other].lines.of(found.field);
        entries[found.at].lines.complain("previous_name", &found.in_words(&format!("line {line}")))
    });
    complaints.collect()
}

impl Entry {
    /// Its names, in this team.
    #[must_use]
    pub fn names<T>(&self, team: T) -> Names<'_, T> {
        Names { team, name: &self.name, previous: self.previous_name.as_deref() }
    }

    fn read(
        written: Spanned<BTreeMap<String, Spanned<Value>>>,
        team_of_all: Option<&str>,
        owner: Option<&str>,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<Complaint>> {
        let lines = Lines::new(
            written.referenced.line(),
            written.value.iter().map(|(name, value)| (name.clone(), value.referenced.line())).collect(),
        );
        let mut fields: Map<String, Value> =
            written.value.into_iter().map(|(name, value)| (name, value.value)).collect();
        let mut complaints = Vec::new();
        for (field, value) in &mut fields {
            if let Err(detail) = substitute::replace_variables(value, environment) {
                complaints.push(lines.complain(field, &detail));
            }
        }
        let team = take_team(&mut fields).unwrap_or_else(|(field, detail)| {
            complaints.push(lines.complain(field, detail));
            None
        });
        let paused = take_paused(&mut fields).unwrap_or_else(|detail| {
            complaints.push(lines.complain("paused", detail));
            false
        });
        let name = match fields.get("name") {
            Some(Value::String(name)) => name.clone(),
            Some(_) => {
                complaints.push(lines.complain("name", "name must be a text"));
                String::new()
            }
            None => {
                complaints.push(lines.complain("name", "a workflow needs a name"));
                String::new()
            }
        };
        let previous_name = previous_name::take_previous_name(&mut fields, &name).unwrap_or_else(|detail| {
            complaints.push(lines.complain("previous_name", detail));
            None
        });
        if let Some(owner) = owner {
            let labels = fields.entry("labels").or_insert_with(|| json!({}));
            match labels.as_object_mut() {
                Some(labels) => drop(labels.insert(OWNER_LABEL.to_owned(), json!(owner))),
                None => complaints.push(lines.complain("labels", "labels must be an object")),
            }
        }
        let team = team.or_else(|| team_of_all.map(|name| Team::Named(name.to_owned())));
        if complaints.is_empty() {
            Ok(Self { team, name, previous_name, paused, fields, lines })
        } else {
            Err(complaints)
        }
    }

    fn is_the_same_as(&self, other: &Self) -> bool {
        self.team == other.team && self.name == other.name
    }
}

/// Takes the owner out of a definition: a name, or an id of the API.
fn take_team(fields: &mut Map<String, Value>) -> Result<Option<Team>, (&'static str, &'static str)> {
    match (fields.remove("team"), fields.remove("team_id")) {
        (Some(Value::String(name)), None) => Ok(Some(Team::Named(name))),
        (None, Some(id)) => id.as_i64().map(Team::Numbered).map(Some).ok_or(("team_id", "team_id must be a number")),
        (Some(_), None) => Err(("team", "team must be the name of a team")),
        (Some(_), Some(_)) => Err(("team", "write team or team_id, not both")),
        (None, None) => Ok(None),
    }
}

/// Takes out of a definition whether it begins paused, which is no field of the API.
fn take_paused(fields: &mut Map<String, Value>) -> Result<bool, &'static str> {
    match fields.remove("paused") {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(paused)) => Ok(paused),
        Some(_) => Err("paused must be true or false"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Manifest, Vec<Complaint>> {
        parse_manifest(text, &|name| (name == "TOKEN").then(|| "hunter2".to_owned()))
    }

    fn complaints(text: &str) -> Vec<String> {
        let complaints = parse(text).expect_err("it is wrong");
        complaints.iter().map(|complaint| format!("{}: {}", complaint.line, complaint.detail)).collect()
    }

    #[test]
    fn every_complaint_names_its_line() {
        let action = "    action: {type: log, message: hi}\n";
        let two = format!("workflows:\n  - team: a\n    name: n\n{action}  - team: a\n    name: n\n{action}");
        assert_eq!(complaints(&two), ["6: name: the workflow of line 2 has the same team and name"]);
        let several =
            format!("version: cronbox/v2\nworkflows:\n  - team: a\n{action}  - name: m\n    team: 7\n{action}");
        assert_eq!(
            complaints(&several),
            [
                "1: version: this program knows cronbox/v1 only",
                "3: name: a workflow needs a name",
                "6: team: team must be the name of a team",
            ]
        );
        assert!(complaints("workflows:\n  - team: a\n   name: n\n")[0].starts_with("3: "));
        assert!(complaints("")[0].starts_with("1: "));
    }

    #[test]
    fn a_cron_that_begins_with_an_asterisk_needs_quotes() {
        let reply = complaints("workflows:\n  - cron_schedule: */5 * * * *\n");
        assert!(reply[0].starts_with("2: ") && reply[0].contains("quote"), "{reply:?}");
    }

    #[test]
    fn yes_and_no_are_texts() {
        let text = "workflows:\n  - team: no\n    name: yes\n    action: {type: log, message: off}\n";
        let [entry] = &parse(text).unwrap().entries[..] else { panic!("there is one") };
        assert_eq!((&entry.team, &*entry.name), (&Some(Team::Named("no".into())), "yes"));
        assert_eq!(entry.fields["action"]["message"], "off");
    }

    #[test]
    fn a_file_names_team_and_owner_for_all() {
        let text = "version: cronbox/v1\nowner: payroll\nteam: demo\nworkflows:\n  - name: a\n    labels: {tier: gold}\n  - name: b\n    team_id: 7\n";
        let manifest = parse(text).unwrap();
        assert_eq!(manifest.owner.as_deref(), Some("payroll"));
        assert_eq!(manifest.entries[0].fields["labels"], json!({"tier": "gold", "owner": "payroll"}));
        let teams: Vec<_> = manifest.entries.iter().map(|entry| entry.team.clone().unwrap()).collect();
        assert_eq!(teams, [Team::Named("demo".to_owned()), Team::Numbered(7)]);
    }

    #[test]
    fn paused_is_no_field_of_the_api() {
        let text = |paused: &str| format!("workflows:\n  - name: a\n    paused: {paused}\n");
        for (written, expected) in [("true", true), ("false", false), ("null", false)] {
            let [entry] = &parse(&text(written)).unwrap().entries[..] else { panic!("there is one") };
            assert_eq!((entry.paused, entry.fields.get("paused")), (expected, None), "{written}");
        }
        assert_eq!(complaints(&text("yes")), ["3: paused: paused must be true or false"]);
    }

    #[test]
    fn a_previous_name_is_no_field_of_the_api() {
        let text = |previous: &str| format!("workflows:\n  - name: a\n    previous_name: {previous}\n");
        for (written, expected) in [("b", Some("b")), ("null", None)] {
            let [entry] = &parse(&text(written)).unwrap().entries[..] else { panic!("there is one") };
            let found = (entry.previous_name.as_deref(), entry.fields.get("previous_name"));
            assert_eq!(found, (expected, None), "{written}");
        }
        assert_eq!(complaints(&text("7")), ["3: previous_name: previous_name must be a text"]);
        assert_eq!(complaints(&text("a")), ["3: previous_name: it is the name of this workflow: remove it"]);
    }

    /// One workflow of the app cannot become two.
    #[test]
    fn a_previous_name_belongs_to_one_workflow() {
        let text = |second: &str| {
            format!("team: x\nworkflows:\n  - name: a\n    previous_name: b\n  - name: c\n    {second}\n  - name: d\n")
        };
        let repeated = "6: previous_name: line 4 has it as its previous_name: remove one of them";
        assert_eq!(complaints(&text("previous_name: b")), [repeated]);
        let existing = "6: previous_name: line 3 has it as its name: remove one of them";
        assert_eq!(complaints(&text("previous_name: a")), [existing]);
        let later = "6: previous_name: line 7 has it as its name: remove one of them";
        assert_eq!(complaints(&text("previous_name: d")), [later]);
        let elsewhere = text("team: y\n    previous_name: a");
        assert_eq!(parse(&elsewhere).unwrap().entries.len(), 3, "another team has other names");
    }

    #[test]
    fn values_come_from_the_environment() {
        let header = |value: &str| format!("workflows:\n  - name: a\n    action: {{headers: {{x: \"{value}\"}}}}\n");
        let manifest = parse(&header("Bearer ${env:TOKEN}")).unwrap();
        assert_eq!(manifest.entries[0].fields["action"]["headers"]["x"], "Bearer hunter2");
        let kept = parse(&header("${secret:token}")).unwrap();
        assert_eq!(kept.entries[0].fields["action"]["headers"]["x"], "${secret:token}");
        assert_eq!(complaints(&header("${env:OTHER}")), ["3: action: the environment has no variable OTHER"]);
    }

    /// What is exported or imported is text of other people. In a file it must name no variable of the reader, and be the same text.
    #[test]
    fn every_escaped_text_is_read_as_it_was() {
        let parts = ["$", "${env:", "TOKEN}", "${secret:a}", "x\n"];
        let mut texts = vec![String::new()];
        for _ in 0..5 {
            let longer = texts.iter().flat_map(|text| parts.map(|part| format!("{text}{part}"))).collect::<Vec<_>>();
            texts.extend(longer);
        }
        texts.sort_unstable();
        texts.dedup();
        let fields = json!({"name": "a", "labels": {"a": "${env:TOKEN}"}, "starting_inputs": {"texts": texts}});
        let mut escaped = fields.clone();
        escape_variables(&mut escaped);
        let manifest = parse(&json!({ "workflows": [escaped] }).to_string()).unwrap();
        assert_eq!(Value::Object(manifest.entries[0].fields.clone()), fields);
    }

    #[test]
    fn escapes_and_variables_mix() {
        let read = |message: &str| {
            let text = json!({"workflows": [{"name": "a", "action": {"message": message}}]}).to_string();
            parse(&text).unwrap().entries[0].fields["action"]["message"].clone()
        };
        assert_eq!(
            read("${env:TOKEN}$${env:TOKEN} $$${env:OTHER ${env:TOKEN}"),
            "hunter2${env:TOKEN} $${env:OTHER hunter2"
        );
        assert_eq!(read("$$ $${secret:a}"), "$$ $${secret:a}", "there is nothing to escape");
    }

    /// The text may contain header values.
    #[test]
    fn yaml_complaints_show_no_text() {
        let reply = complaints("workflows:\n  - action: {headers: {authorization: hunter2}}\n    action: {}\n");
        assert!(reply.len() == 1 && !reply[0].contains("hunter2"), "{reply:?}");
    }
}
