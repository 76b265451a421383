//! How each command looks: a table and JSON of the same story, as snapshots. A command without a snapshot fails the test.

mod operators;
mod users;

use std::collections::BTreeSet;

use serde_json::Value;
use tests::Story;

use crate::{Person, Said};

/// The commands that print no answer in both forms, and why.
const WITHOUT_VIEWS: [(&str, &str); 17] = [
    ("audit export", "JSON lines for another program; tests/api/audit.rs reads them"),
    ("channel delete", "it prints nothing, as a deletion that has nothing to say"),
    ("completions", "a script of a shell; shell.rs checks it"),
    ("export", "a file for `apply`; schedules_as_code.rs applies it"),
    ("import crontab", "a file for `apply`; imports.rs applies it"),
    ("import eventbridge", "the same"),
    ("import github-actions", "the same"),
    ("import kubernetes", "the same"),
    ("import pg-boss", "the same"),
    ("listen", "it prints the requests of other programs until it is stopped; backend_engineer.rs sends some"),
    ("login", "one sentence about the profile that it writes; backend_engineer.rs reads it"),
    ("logout", "the same"),
    ("logs", "lines of a log as they are; operator.rs finds them"),
    ("man", "it writes files; shell.rs reads them"),
    ("rule delete", "it prints nothing"),
    ("signature verify", "one sentence and an exit code; backend_engineer.rs has each"),
    ("team export", "JSON lines for another program; tests/api reads them"),
];

/// What the commands of the story have printed.
struct Views {
    s: Story,
    editor: Person,
    admin: Person,
    tables: String,
    json: String,
    seen: BTreeSet<String>,
}

impl Views {
    /// Runs a command in both forms.
    async fn show(&mut self, words: &[&str]) {
        self.show_both(words, words).await;
    }

    /// Runs two commands that differ in the object that they change: one prints a table, and the other JSON.
    async fn show_both(&mut self, table: &[&str], json: &[&str]) {
        self.show_as(false, table, json).await;
    }

    /// The same as an operator.
    async fn show_admin(&mut self, words: &[&str]) {
        self.show_as(true, words, words).await;
    }

    async fn show_both_admin(&mut self, table: &[&str], json: &[&str]) {
        self.show_as(true, table, json).await;
    }

    async fn show_as(&mut self, is_admin: bool, table: &[&str], json: &[&str]) {
        let person = if is_admin { &self.admin } else { &self.editor };
        // `cron explain` keeps its own option.
        let form: &[&str] = if table[0] == "cron" { &["--json"] } else { &["-o", "json"] };
        let (table_said, json_said) = (person.run(table).await, person.run(&[json, form].concat()).await);
        self.record(table, &table_said, json, &json_said);
    }

    /// Keeps what a command has printed in both forms.
    fn record(&mut self, table: &[&str], table_said: &Said, json: &[&str], json_said: &Said) {
        self.seen.insert(table.join(" "));
        assert!(!table_said.out.is_empty(), "{table:?} has no answer: {table_said:?}");
        let title = self.title(table, table_said);
        self.tables.push_str(&format!("$ cronbox {title}\n{}\n", self.stable(&table_said.out)));
        let answer: Value =
            serde_json::from_str(&json_said.out).unwrap_or_else(|error| panic!("{json:?}: {error}: {json_said:?}"));
        let title = self.title(json, json_said);
        self.json.push_str(&format!("$ cronbox {title}\n{}\n", self.stable(&members(&answer))));
    }

    /// The words of a command, and its exit code if that is not 0.
    fn title(&self, words: &[&str], said: &Said) -> String {
        let code = if said.code == 0 { String::new() } else { format!(" (exit code {})", said.code) };
        let words: Vec<String> = words.iter().map(|word| self.stable(word).trim_end().to_owned()).collect();
        format!("{}{code}", words.join(" "))
    }

    /// What differs from run to run is replaced by a word of the same length, so that columns stay where they are.
    fn stable(&self, text: &str) -> String {
        let homes = [&self.editor, &self.admin].map(|person| person.home.to_str().unwrap());
        let text = homes.iter().fold(text.to_owned(), |text, home| text.replace(home, "HOME"));
        let text = text.replace(self.s.scheduler_url(), "SQS");
        stable(&text)
    }

    /// The first name that a list prints.
    async fn first(&self, words: &[&str]) -> String {
        self.admin.ok(&[words, &["-o", "name"]].concat()).await.lines().next().unwrap().to_owned()
    }
}

/// The names of the members of an object, or of the first of a list; other values as they are.
fn members(answer: &Value) -> String {
    match answer {
        Value::Object(object) => {
            format!("{{{}}}", object.keys().map(|key| format!("\"{key}\"")).collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) if items.first().is_some_and(Value::is_object) => format!("[{}, ..]", members(&items[0])),
        other => other.to_string(),
    }
}

fn stable(text: &str) -> String {
    let rules = [
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+\d\d:\d\d)", "TIME"),
        (r"\b00-[0-9a-f]{32}-[0-9a-f]{16}-\d\d\b", "TRACE"),
        (r"cb[a-z]_[0-9a-zA-Z]+", "KEY"),
        (r"whsec_[0-9a-zA-Z+/=]+", "SECRET"),
        (r"\b20\d\d[a-z]\b", "ZONES"),
        (r"^\d+\.\d+$", "CURSOR"),
    ];
    let text = rules.iter().fold(text.to_owned(), |text, (pattern, with)| {
        let padded = |found: &regex::Captures<'_>| format!("{with:<width$}", width = found[0].len());
        regex::Regex::new(pattern).unwrap().replace_all(&text, padded).into_owned()
    });
    let replace = |text: &str, pattern: &str, with: &str| {
        regex::Regex::new(pattern).unwrap().replace_all(text, with).into_owned()
    };
    let text = replace(&text, r" +\n", "\n");
    // A duration has one to four digits, so the columns after it move.
    match regex::Regex::new(r"\b\d+ ms\b").unwrap().is_match(&text) {
        true => replace(&replace(&text, r"\b\d+ ms\b", "N ms"), r"  +", "  "),
        false => text,
    }
}

/// Every command of the program, as its generated reference lists them.
async fn all_commands(person: &Person) -> BTreeSet<String> {
    let reference = person.ok(&["reference"]).await;
    let heading = regex::Regex::new(r"(?m)^#{3,4} `cronbox ([^`]+)`$").unwrap();
    let is_name = |word: &&str| !word.starts_with(|first: char| first.is_uppercase() || first == '[');
    let named: BTreeSet<String> = heading
        .captures_iter(&reference)
        .map(|found| found[1].split(' ').take_while(is_name).collect::<Vec<_>>().join(" "))
        .collect();
    // A noun with verbs is no command.
    let has_verbs = |noun: &String| named.iter().any(|other| other.starts_with(&format!("{noun} ")));
    named.iter().filter(|name| !has_verbs(name)).cloned().collect()
}

/// All commands, by users and then by operators.
#[tokio::test]
async fn every_command_looks_so() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let editor = Person::editor(&s);
    let admin = Person::admin(&s).set("CRONBOX_SCHEDULER_KEY", &s.keys.scheduler);
    let (tables, json, seen) = (String::new(), String::new(), BTreeSet::new());
    let mut views = Views { s, editor, admin, tables, json, seen };
    users::show_commands(&mut views).await;
    operators::show_commands(&mut views).await;

    let is_seen = |command: &&String| {
        let begins = |words: &String| words == *command || words.starts_with(&format!("{command} "));
        views.seen.iter().any(begins)
    };
    let all = all_commands(&views.admin).await;
    assert!(all.len() > 80, "the commands were not found: {all:?}");
    let unseen: Vec<&str> = all.iter().filter(|command| !is_seen(command)).map(String::as_str).collect();
    let exceptions: Vec<&str> = WITHOUT_VIEWS.iter().map(|(command, _)| *command).collect();
    assert_eq!(unseen, exceptions, "a command has neither a snapshot nor a reason to have none");

    insta::assert_snapshot!("tables_look_so", views.tables);
    insta::assert_snapshot!("json_has_these_members", views.json);
    views.s.end_early().await;
}
