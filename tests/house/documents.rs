//! What documents say about files, tables, tests, commands and benchmarks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use app::cadence::When;
use clap::Parser;
use regex::Regex;
use serde_json::Value;

use crate::crates::workspace;
use crate::sources::{migrations, root};

/// A file that moves takes the links to it along.
#[test]
fn links_of_documents_lead_to_files() {
    let mut links = 0;
    for path in documents() {
        let text = std::fs::read_to_string(&path).unwrap();
        for target in linked_files(&text) {
            links += 1;
            assert!(path.with_file_name(target).exists(), "{}: {target} does not exist", path.display());
        }
    }
    assert!(links > 50, "the documents were not found");
}

/// A heading that changes takes the links to it along.
#[test]
fn links_of_documents_lead_to_anchors() {
    let link = Regex::new(r"\]\(([^)#\s]*\.md)?#([^)]+)\)").unwrap();
    let mut links = 0;
    for path in documents() {
        let text = prose_of(&std::fs::read_to_string(&path).unwrap());
        for found in link.captures_iter(&text) {
            let target = found.get(1).map_or_else(|| path.clone(), |file| path.with_file_name(file.as_str()));
            if found[0].contains("://") {
                continue;
            }
            links += 1;
            let anchors = anchors_of(&std::fs::read_to_string(&target).unwrap());
            assert!(anchors.contains(&found[2]), "{}: {} has no #{}", path.display(), target.display(), &found[2]);
        }
    }
    assert!(links > 150, "the links were not found");
}

/// A table that a migration makes has a row in the table of tables. The partitions before and after all days belong to
/// the row of their parent.
#[test]
fn the_architecture_lists_every_table() {
    let tables = section_of("docs/architecture.md", "## <a id=\"tables\"></a>Tables");
    let created = Regex::new(r"CREATE TABLE ([a-z_]+) \(").unwrap();
    let mut found = 0;
    for (file, sql) in migrations() {
        let names = created.captures_iter(&sql).map(|table| table[1].to_owned());
        for name in names.filter(|name| !name.ends_with("_before") && !name.ends_with("_later")) {
            found += 1;
            assert!(tables.contains(&format!("`{name}`")), "{file}: docs/architecture.md does not list {name}");
        }
    }
    assert!(found > 35, "the migrations were not found");
}

/// The options of `cronbox-app serve`.
#[derive(Parser)]
struct Serve {
    #[command(flatten)]
    config: app::Config,
}

const JOBS: &str = "## <a id=\"jobs\"></a><a id=\"job-failing\"></a><a id=\"job-overdue\"></a>Background jobs";

/// Each background job has a row in the runbook, which says how often it runs.
#[test]
fn the_runbook_lists_every_job() {
    let config = Serve::parse_from(["serve", "--database-url", "postgres://localhost/none"]).config;
    let interval = |when: &When| match when {
        When::Every(pause) => format!("{} s", pause.as_secs()),
        When::Cron(_) => "a time of day".to_owned(),
    };
    let jobs = app::jobs::all_jobs(&config);
    let expected: BTreeSet<(String, String)> =
        jobs.iter().map(|job| (job.name.to_owned(), interval(&job.when))).collect();
    let name = Regex::new(r"`(\w+)`").unwrap();
    let section = section_of("docs/runbook.md", JOBS);
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    let stated: BTreeSet<(String, String)> = cells
        .flat_map(|cells| {
            let often = if cells[2].contains(':') { "a time of day" } else { cells[2] };
            name.captures_iter(cells[0]).map(|found| (found[1].to_owned(), often.to_owned())).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(stated, expected);
}

/// The invariants name what keeps them and what proves them. A function that is renamed takes its name along.
#[test]
fn invariants_name_existing_functions() {
    let named = Regex::new(r"\]\(\.\./([^)]+\.rs)\): ((?:`\w+`(?:, )?)+)").unwrap();
    let name = Regex::new(r"`(\w+)`").unwrap();
    let mut functions = 0;
    for found in named.captures_iter(&section_of("docs/architecture.md", "## Invariants")) {
        let source = std::fs::read_to_string(root().join(&found[1])).unwrap();
        for function in name.captures_iter(&found[2]) {
            functions += 1;
            assert!(source.contains(&format!("fn {}(", &function[1])), "{} has no {}", &found[1], &function[1]);
        }
    }
    assert!(functions > 30, "the invariants were not found");
}

#[test]
fn documents_name_existing_commands() {
    let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap();
    let target = Regex::new(r"(?m)^([a-z-]+):").unwrap();
    let targets: BTreeSet<String> = target.captures_iter(&makefile).map(|found| found[1].to_owned()).collect();
    let command = Regex::new(r"`make ([a-z-]+)").unwrap();
    for path in documents() {
        for found in command.captures_iter(&std::fs::read_to_string(&path).unwrap()) {
            assert!(targets.contains(&found[1]), "{}: the Makefile has no {}", path.display(), &found[1]);
        }
    }
}

/// The page is for people in a hurry: each of its commands, with its options, is in the list of all commands.
#[test]
fn troubleshooting_names_existing_commands() {
    let page = std::fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let listed = std::fs::read_to_string(root().join("docs/cli.md")).unwrap();
    let command = Regex::new(r"(?m)(?:^|`)cronbox ((?:[a-z]+ ?)+)([^`#\n]*)").unwrap();
    let option = Regex::new(r"--[a-z-]+").unwrap();
    let mut commands = 0;
    for found in command.captures_iter(&page) {
        commands += 1;
        let mut words = found[1].split_whitespace();
        let noun = words.next().unwrap();
        // The name of a workflow follows the verb, and may look like one.
        let heading = if listed.contains(&format!("#### `cronbox {noun} ")) {
            format!("#### `cronbox {noun} {}", words.next().unwrap_or_default())
        } else {
            format!("### `cronbox {noun}")
        };
        let (_, rest) = listed.split_once(&heading).unwrap_or_else(|| panic!("docs/cli.md has no {heading}"));
        let options = rest.split("\n###").next().unwrap();
        for option in option.find_iter(&found[2]) {
            assert!(options.contains(option.as_str()), "docs/cli.md: {heading} has no {}", option.as_str());
        }
    }
    assert!(commands > 10, "the commands were not found");
}

/// A figure says at which commit it was measured, and what was not measured says so.
#[test]
fn every_benchmark_has_its_figures() {
    let figures = section_of("docs/performance.md", "## <a id=\"figures\"></a>Goals and figures");
    let mut shown = BTreeSet::new();
    for line in figures.lines().filter(|line| line.starts_with("| B")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [case, _, command, goal, measured, since] = cells[..] else { panic!("{line}: not six cells") };
        assert!(command == "computed" || command.contains(&format!("ONLY={case}")), "{line}: another case's command");
        assert!(!goal.is_empty(), "{line}: write \"reported only\"");
        assert_eq!(since.is_empty(), measured.starts_with("not measured yet"), "{line}: since which commit?");
        shown.insert(case.to_owned());
    }
    let suite = std::fs::read_to_string(root().join("tests/benches/suite/main.rs")).unwrap();
    let case = Regex::new(r#"wanted\("(B\d+)"\)"#).unwrap();
    let cases: BTreeSet<String> = case.captures_iter(&suite).map(|found| found[1].to_owned()).collect();
    assert_eq!(shown, cases);
}

/// A field of a workflow has a row in the table of fields, with the range and the default that the description names.
#[test]
fn the_api_page_lists_every_field() {
    let section = section_of("docs/api.md", "### <a id=\"fields\"></a>Fields of a workflow");
    let described = &description()["components"]["schemas"]["WorkflowBody"]["properties"];
    let range = Regex::new(r"\d+ to \d+").unwrap();
    let default = Regex::new(r"absent = ([^.]+)\.").unwrap();
    let mut listed = BTreeSet::new();
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        // 86,400 here is 86400 there.
        let row = row.replace(',', "");
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let [names, values, defaults] = cells[..] else { panic!("{row}: not three cells") };
        for name in code_spans(names) {
            let text = described[name].to_string();
            for found in range.find_iter(&text) {
                assert!(values.contains(found.as_str()), "docs/api.md, {name}: {}", found.as_str());
            }
            for found in default.captures_iter(&text) {
                assert!(defaults.contains(&found[1]), "docs/api.md, {name}: the default is {}", &found[1]);
            }
            listed.insert(name.to_owned());
        }
    }
    let fields: BTreeSet<String> = described.as_object().unwrap().keys().cloned().collect();
    assert_eq!(listed, fields, "the table in docs/api.md");
}

/// A client that implements the list may repeat what it names, and nothing else.
#[test]
fn the_api_page_lists_repeatable_requests() {
    let page = std::fs::read_to_string(root().join("docs/api.md")).unwrap();
    let (_, rest) = page.split_once("<a id=\"repeat\"></a>").unwrap();
    let (sentence, _) = rest.split_once("If the answer is lost").unwrap();
    let mut listed: BTreeSet<String> = BTreeSet::new();
    let mut last = String::new();
    for span in code_spans(sentence) {
        let path = span.trim_start_matches("POST ");
        if let Some(verb) = path.strip_prefix(':') {
            let (object, _) = last.rsplit_once(':').unwrap();
            last = format!("{object}:{verb}");
        } else if path.starts_with('/') {
            last = path.to_owned();
        } else {
            continue;
        }
        listed.insert(last.clone());
    }
    let described = description();
    let paths = described["paths"].as_object().unwrap().iter();
    let paths = paths.filter(|(_, item)| item.to_string().contains("\"name\":\"Idempotency-Key\""));
    let expected: BTreeSet<String> = paths.map(|(path, _)| path.trim_start_matches("/api/v1").to_owned()).collect();
    assert_eq!(listed, expected, "the list in docs/api.md");
}

/// A new contributor finds each test program in both lists. The programs of the model are in the first one only.
#[test]
fn documents_list_every_test_program() {
    let manifest = std::fs::read_to_string(root().join("tests/Cargo.toml")).unwrap();
    let named = Regex::new(r#"\[\[test\]\]\nname = "(\w+)""#).unwrap();
    let programs: BTreeSet<String> = named.captures_iter(&manifest).map(|found| found[1].to_owned()).collect();
    assert!(programs.len() > 15, "the test programs were not found");

    let map = section_of("docs/architecture.md", "## Code map");
    let (_, rest) = map.split_once("`tests/{").unwrap();
    let (listed, _) = rest.split_once('}').unwrap();
    assert_eq!(listed.split(", ").map(str::to_owned).collect::<BTreeSet<_>>(), programs, "docs/architecture.md");

    let of_model = std::fs::read_dir(root().join("model/tests")).unwrap().map(|entry| entry.unwrap().path());
    let of_model = of_model.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned());
    let expected: BTreeSet<String> = programs.into_iter().chain(of_model).collect();
    let contributing = std::fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let (_, table) = contributing.split_once("| program | what it tests |\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let listed = rows.flat_map(|row| code_spans(row.split('|').nth(1).unwrap()).map(str::to_owned));
    assert_eq!(listed.collect::<BTreeSet<_>>(), expected, "CONTRIBUTING.md");
}

/// A crate that is added has a row in the code map.
#[test]
fn the_code_map_lists_every_crate() {
    let map = section_of("docs/architecture.md", "## Code map");
    let top = root().canonicalize().unwrap();
    for (name, package) in workspace() {
        let folder = package.manifest_path.parent().unwrap().as_std_path().canonicalize().unwrap();
        let folder = folder.strip_prefix(&top).unwrap().display();
        let is_listed = map.contains(&format!("](../{folder}/")) || map.contains(&format!("](../{folder})"));
        assert!(is_listed, "docs/architecture.md: the code map has no row for {name} in {folder}");
    }
}

/// The description of the API, as it is committed.
fn description() -> Value {
    serde_json::from_str(&std::fs::read_to_string(root().join("docs/openapi.json")).unwrap()).unwrap()
}

/// What a text has between single backticks: each second part.
fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn documents() -> Vec<PathBuf> {
    let folders = ["", "docs", "docs/adr", "examples", "local/scheduler", "terraform"];
    folders.into_iter().flat_map(|folder| documents_in(&root().join(folder))).collect()
}

fn documents_in(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// The services of AWS that publish for resources of Terraform.
const PUBLISHERS: [(&str, &str); 3] = [
    ("aws_cloudwatch_metric_alarm", "cloudwatch.amazonaws.com"),
    ("aws_cloudwatch_event_target", "events.amazonaws.com"),
    ("aws_db_event_subscription", "events.rds.amazonaws.com"),
];
/// How the modules name the topics of the alarms.
const TOPICS: [&str; 2] = ["var.alarm_topic_arns", "local.topics["];

/// A policy that lacks one of these services silences it, and no emulator would show that.
#[test]
fn topics_admit_every_service_that_publishes() {
    let expected: BTreeSet<String> = kinds_that_publish().iter().map(|kind| publisher_of(kind).to_owned()).collect();
    let deploy = std::fs::read_to_string(root().join("docs/deploy.md")).unwrap();
    let (_, rest) = deploy.split_once("<a id=\"topics\"></a>").unwrap();
    let section = rest.split("\n## ").next().unwrap_or_default();
    let blocks: Vec<Value> = section
        .split("```json\n")
        .skip(1)
        .map(|block| serde_json::from_str(block.split("```").next().unwrap_or_default()).unwrap())
        .collect();
    let [topic, key] = &blocks[..] else { panic!("a policy of a topic, and a statement of a key: {blocks:?}") };
    let statements = topic["Statement"].as_array().unwrap();
    assert_eq!(statements.iter().flat_map(services_of).collect::<BTreeSet<_>>(), expected);
    assert_eq!(services_of(key), expected, "the key of an encrypted topic");
    // EventBridge sends SNS and KMS nothing that a condition could compare.
    for statement in statements.iter().chain([key]) {
        let of_events = services_of(statement).contains("events.amazonaws.com");
        assert!(!of_events || statement["Condition"].is_null(), "{statement}");
    }
}

/// The kinds of the resources that name a topic of the alarms.
fn kinds_that_publish() -> BTreeSet<String> {
    let modules = ["cron", "network", "notifier", "service"].map(|name| root().join("terraform/modules").join(name));
    let files = modules.iter().flat_map(|module| std::fs::read_dir(module).unwrap()).map(|file| file.unwrap().path());
    let sources = files.filter(|path| path.extension().is_some_and(|extension| extension == "tf"));
    let resource = Regex::new(r#"(?ms)^resource "(\w+)" "\w+" \{\n(.*?)^\}"#).unwrap();
    let mut kinds = BTreeSet::new();
    for path in sources {
        let text = std::fs::read_to_string(path).unwrap();
        let blocks = resource.captures_iter(&text);
        let naming = blocks.filter(|block| TOPICS.iter().any(|topics| block[2].contains(topics)));
        kinds.extend(naming.map(|block| block[1].to_owned()));
    }
    assert!(kinds.len() >= PUBLISHERS.len(), "the resources were not found: {kinds:?}");
    kinds
}

fn publisher_of(kind: &str) -> &'static str {
    let known = PUBLISHERS.iter().find(|(other, _)| *other == kind);
    known.unwrap_or_else(|| panic!("{kind} names a topic of the alarms: which service publishes for it?")).1
}

/// The services that a statement of a policy permits.
fn services_of(statement: &Value) -> BTreeSet<String> {
    match &statement["Principal"]["Service"] {
        Value::Array(services) => services.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        service => service.as_str().map(str::to_owned).into_iter().collect(),
    }
}

/// A server that was upgraded has lost nothing. With a moment of the loss, the acceptance would abandon all runs that wait.
#[test]
fn upgrades_lose_nothing() {
    let deploy = std::fs::read_to_string(root().join("docs/deploy.md")).unwrap();
    let (_, section) = deploy.split_once("<a id=\"postgres\"></a>").unwrap();
    let section = section.split("\n### ").next().unwrap_or_default();
    assert!(
        section.contains("`cronbox-app ledger accept --nothing-lost`") && !section.contains("--until"),
        "{section}"
    );
}

/// A document without its blocks of code, which are each second part.
fn prose_of(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

/// The files that a document's prose links to, by their paths from the document.
fn linked_files(text: &str) -> Vec<&str> {
    // Each second part is a block of code.
    let prose = text.split("```").step_by(2);
    let links = prose.flat_map(|part| part.split("](").skip(1)).filter_map(|rest| rest.split_once(')'));
    let targets = links.map(|(link, _)| link.split('#').next().unwrap_or_default());
    targets.filter(|target| !target.is_empty() && !target.contains("://")).collect()
}

/// What a link into a document may name: its ids, and its headings as GitHub writes them.
fn anchors_of(text: &str) -> BTreeSet<String> {
    let text = prose_of(text);
    let id = Regex::new(r#"<a id="([^"]+)"></a>"#).unwrap();
    let heading = Regex::new(r"(?m)^#+ (.*)$").unwrap();
    let markup = Regex::new(r"<[^>]*>|\]\([^)]*\)").unwrap();
    let mut anchors: BTreeSet<String> = id.captures_iter(&text).map(|found| found[1].to_owned()).collect();
    for found in heading.captures_iter(&text) {
        let title = markup.replace_all(&found[1], "").trim().to_lowercase().replace(' ', "-");
        anchors.insert(title.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect());
    }
    anchors
}

/// A section of a document, from its heading to the next one of its level.
fn section_of(path: &str, heading: &str) -> String {
    let text = std::fs::read_to_string(root().join(path)).unwrap();
    let (_, rest) = text.split_once(&format!("{heading}\n")).unwrap();
    rest.split("\n## ").next().unwrap_or_default().to_owned()
}
