//! What an import makes of a schedule, and the file of all of them.

use std::fmt::{Display, Write as _};

use manifest::{VERSION, escape_variables};
use schedule::{Cron, parse_timezone};
use serde_json::{Map, Value, json};

use super::dialect::Dialect;
use crate::output::{Ordered, to_yaml};
use crate::print::one_line;

/// All schedules of a file, in their order.
#[derive(Debug, Default)]
pub(super) struct Imported {
    pub(super) definitions: Vec<Definition>,
    /// What concerns all of them.
    pub(super) notes: Vec<String>,
}

/// What the person who imports adds to the file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FileOptions<'a> {
    pub(super) team: Option<&'a str>,
    pub(super) owner: Option<&'a str>,
    /// Where the actions send their requests; without it they only write to the log.
    pub(super) target: Option<&'a str>,
    /// Whether every workflow is paused, and not only what was suspended.
    pub(super) is_paused: bool,
}

/// A schedule of another scheduler.
#[derive(Clone, Debug, Default)]
pub(super) struct Definition {
    pub(super) name: String,
    /// Its cron in our dialect; `None`: it cannot be written.
    pub(super) cron: Option<String>,
    /// Whether it would run at other times than before, so that the file has it as a comment only.
    pub(super) is_refused: bool,
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

    /// Does not take it over, for this reason.
    pub(super) fn refuse(&mut self, why: impl Display) {
        self.is_refused = true;
        self.note(format!("NOT TAKEN OVER, {why}"));
    }

    /// Whether the file has it.
    pub(super) fn is_taken(&self) -> bool {
        self.cron.is_some() && !self.is_refused
    }

    pub(super) fn set(&mut self, field: &str, value: Value) {
        self.fields.insert(field.to_owned(), value);
    }

    /// Takes a cron of another scheduler if our dialect has its times; else a note says why the schedule is not taken over.
    pub(super) fn take_cron(&mut self, text: &str, dialect: Dialect) {
        let translated = dialect.translate_cron(text).and_then(|cron| match Cron::parse(&cron) {
            Ok(_) => Ok(cron),
            Err(error) => Err(error.to_string()),
        });
        match translated {
            Ok(cron) => {
                if cron != text {
                    self.note(format!("its schedule was {text}; the cron here names the same times"));
                }
                self.cron = Some(cron);
            }
            Err(why) => self.refuse(format_args!("the schedule {text}: {why}")),
        }
    }

    /// Takes a timezone if it is known; else the schedule is not taken over, because it would run at the times of UTC.
    pub(super) fn take_timezone(&mut self, name: &str) {
        match parse_timezone(name) {
            Ok(_) if name == "UTC" => {}
            Ok(_) => self.timezone = Some(name.to_owned()),
            Err(error) => self.refuse(format_args!("the timezone {name}: {error}")),
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
        self.definitions.iter().filter(|definition| definition.is_taken()).count()
    }

    /// How many are not.
    pub(super) fn refused(&self) -> usize {
        self.definitions.len() - self.taken()
    }
}

/// Other schedulers have no limit, or another one, and no job ends because its request does.
const LIMIT: &str = "timeout_secs is 300 unless a workflow has it: then its run ends, and its job may go on; see docs/receivers.md, Work that takes long";

/// The file for `apply`. A schedule that is not taken over is a comment.
///
/// # Errors
/// Fails if a value cannot be written as YAML.
pub(super) fn file_text(options: FileOptions<'_>, imported: &Imported) -> anyhow::Result<String> {
    let mut text: String = imported.notes.iter().map(|note| comment("", note)).collect();
    let is_unlimited = |one: &Definition| one.is_taken() && !one.fields.contains_key("timeout_secs");
    if options.target.is_some() && imported.definitions.iter().any(is_unlimited) {
        text.push_str(&comment("", LIMIT));
    }
    text.push_str(&format!("version: {VERSION}\n"));
    for (name, value) in [("owner", options.owner), ("team", options.team)] {
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
        definition.notes.iter().for_each(|note| text.push_str(&comment("  ", note)));
        if !definition.is_taken() {
            text.push_str(&comment("  ", &format!("not taken over: {}", definition.name)));
            continue;
        }
        let entry = serde_saphyr::to_string(&[entry(definition, options)])?;
        for entry_line in entry.lines() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {entry_line}");
        }
    }
    Ok(text)
}

/// A comment in the file. Whatever breaks a line in YAML breaks none here, so that no text of the other scheduler leaves it.
fn comment(indent: &str, text: &str) -> String {
    text.lines().map(|line| format!("{indent}# {}\n", one_line(line))).collect()
}

fn line(text: &str) -> String {
    text.trim_end().to_owned() + "\n"
}

fn entry(definition: &Definition, options: FileOptions<'_>) -> Ordered {
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
    if options.is_paused && !definition.fields.contains_key("paused") {
        entry.push(("paused".to_owned(), json!(true)));
    }
    if options.target.is_none() {
        let message = format!("{} is due", definition.name);
        entry.push(("action".to_owned(), json!({"type": "log", "message": message})));
    }
    // The texts of the other scheduler name no variable of ours. The target is of the person who imports, and may name some.
    entry.iter_mut().for_each(|(_, value)| escape_variables(value));
    if let Some(url) = options.target {
        entry.push(("action".to_owned(), json!({"type": "http", "method": "POST", "url": url})));
    }
    Ordered(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name, a command or an argument of the other scheduler is a value in the file, or a comment, and never its structure or a
    /// variable of the reader.
    #[test]
    fn texts_of_others_stay_texts() {
        let evil =
            "x\r  - name: injected\n  - name: second\u{2028}${env:CRONBOX_KEY} $${env:A} ${secret:b} \t#\u{200f}'\"";
        let mut definition =
            Definition { name: "${env:HOME}".to_owned(), what: evil.to_owned(), ..Definition::default() };
        definition.take_cron("0 9 * * *", Dialect::Crontab);
        definition.set("starting_inputs", json!({ "command": evil }));
        definition.note(evil);
        let mut refused = definition.clone();
        refused.take_timezone(evil);
        let mut imported = Imported { notes: vec![evil.to_owned()], ..Imported::default() };
        imported.add(definition);
        imported.add(refused);
        let text =
            file_text(FileOptions { team: Some("team"), owner: Some("own"), ..FileOptions::default() }, &imported)
                .unwrap();
        let manifest = manifest::parse_manifest(&text, &|_| None).unwrap();
        let [entry] = &manifest.entries[..] else { panic!("{text}") };
        let fields = &entry.fields;
        assert_eq!((entry.name.as_str(), &fields["description"]), ("${env:HOME}", &json!(evil)));
        assert_eq!(fields["starting_inputs"], json!({ "command": evil }));
        assert_eq!(fields["action"]["message"], "${env:HOME} is due");
        let options = FileOptions { target: Some("https://${env:STAGE}.example"), ..FileOptions::default() };
        let target = file_text(options, &imported).unwrap();
        let manifest = manifest::parse_manifest(&target, &|name| (name == "STAGE").then(|| "test".to_owned())).unwrap();
        assert_eq!(
            manifest.entries[0].fields["action"]["url"], "https://test.example",
            "the target is the reader's own"
        );
    }
}
