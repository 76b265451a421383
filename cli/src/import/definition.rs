//! What an import makes of a schedule, and the file of all of them.

use std::fmt::Write as _;

use manifest::VERSION;
use schedule::{Cron, parse_timezone};
use serde_json::{Map, Value, json};

use crate::output::{Ordered, to_yaml};

/// All schedules of a file, in their order.
#[derive(Debug, Default)]
pub(super) struct Imported {
    pub(super) definitions: Vec<Definition>,
    /// What concerns all of them.
    pub(super) notes: Vec<String>,
}

/// A schedule of another scheduler.
#[derive(Clone, Debug, Default)]
pub(super) struct Definition {
    pub(super) name: String,
    /// Its cron in our dialect; `None`: it cannot be written.
    pub(super) cron: Option<String>,
    pub(super) timezone: Option<String>,
    /// What it runs, for people.
    pub(super) what: String,
    /// Further fields.
    pub(super) fields: Map<String, Value>,
    /// What could not be taken over, or should be looked at.
    pub(super) notes: Vec<String>,
}

impl Definition {
    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    pub(super) fn set(&mut self, field: &str, value: Value) {
        self.fields.insert(field.to_owned(), value);
    }

    /// Takes a cron if our dialect knows it; else a note says why not.
    pub(super) fn take_cron(&mut self, text: &str) {
        match Cron::parse(text) {
            Ok(_) => self.cron = Some(text.to_owned()),
            Err(error) => self.note(format!("NOT TAKEN OVER, the schedule {text}: {error}")),
        }
    }

    /// Takes a timezone if it is known.
    pub(super) fn take_timezone(&mut self, name: &str) {
        match parse_timezone(name) {
            Ok(_) if name == "UTC" => {}
            Ok(_) => self.timezone = Some(name.to_owned()),
            Err(_) => self.note(format!("the timezone {name} is not known: the times are those of UTC")),
        }
    }
}

impl Imported {
    /// Adds a schedule, under a name that no other one has.
    pub(super) fn add(&mut self, mut definition: Definition) {
        let name: String =
            definition.name.chars().map(|one| if one.is_control() { ' ' } else { one }).take(180).collect();
        let name = if name.trim().is_empty() { "unnamed".to_owned() } else { name.trim().to_owned() };
        let mut unique = name.clone();
        for nth in 2.. {
            if self.definitions.iter().all(|other| other.name != unique) {
                break;
            }
            unique = format!("{name} {nth}");
        }
        definition.name = unique;
        self.definitions.push(definition);
    }

    /// How many schedules are taken over.
    pub(super) fn taken(&self) -> usize {
        self.definitions.iter().filter(|definition| definition.cron.is_some()).count()
    }

    /// How many are not.
    pub(super) fn refused(&self) -> usize {
        self.definitions.len() - self.taken()
    }
}

/// The file for `apply`. A schedule that is not taken over is a comment.
///
/// # Errors
/// Fails if a value cannot be written as YAML.
pub(super) fn file_text(
    team: Option<&str>,
    owner: Option<&str>,
    target: Option<&str>,
    imported: &Imported,
) -> anyhow::Result<String> {
    let mut text: String = imported.notes.iter().map(|note| format!("# {note}\n")).collect();
    text.push_str(&format!("version: {VERSION}\n"));
    for (name, value) in [("owner", owner), ("team", team)] {
        if let Some(value) = value {
            text.push_str(&line(&to_yaml(&json!({ name: value }))?));
        }
    }
    if imported.taken() == 0 {
        text.push_str("workflows: []\n");
    } else {
        text.push_str("workflows:\n");
    }
    for definition in &imported.definitions {
        for note in &definition.notes {
            for note_line in note.lines() {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "  # {note_line}");
            }
        }
        if definition.cron.is_none() {
            let _ = writeln!(text, "  # not taken over: {}", definition.name.replace('\n', " "));
            continue;
        }
        let entry = serde_saphyr::to_string(&[entry(definition, target)])?;
        for entry_line in entry.lines() {
            let _ = writeln!(text, "  {entry_line}");
        }
    }
    Ok(text)
}

fn line(text: &str) -> String {
    text.trim_end().to_owned() + "\n"
}

fn entry(definition: &Definition, target: Option<&str>) -> Ordered {
    let mut entry = Vec::new();
    entry.push(("name".to_owned(), json!(definition.name)));
    if !definition.what.is_empty() {
        entry.push(("description".to_owned(), json!(definition.what.chars().take(2_000).collect::<String>())));
    }
    entry.push(("cron_schedule".to_owned(), json!(definition.cron)));
    if let Some(timezone) = &definition.timezone {
        entry.push(("timezone".to_owned(), json!(timezone)));
    }
    entry.extend(definition.fields.clone());
    let action = match target {
        Some(url) => json!({"type": "http", "method": "POST", "url": url}),
        None => json!({"type": "log", "message": format!("{} is due", definition.name)}),
    };
    entry.push(("action".to_owned(), action));
    Ordered(entry)
}
