//! Each alarm and each rule is walked by a story, or named here with the reason why not.

use std::collections::BTreeSet;
use std::path::Path;

use regex::Regex;

use crate::alarms::all_alarms;
use crate::paragraphs::{commands_of, runbook};

/// AWS alone makes what these alarms read, and the local stack has no such thing.
const OF_AWS: [&str; 16] = [
    "publisher-duration",
    "publisher-events-dropped",
    "publisher-dead-letters-undelivered",
    "target-errors",
    "invocations-dropped",
    "invocations-throttled",
    "dead-letters-undelivered",
    "runner-errors",
    "runner-not-accepted",
    "runner-throttles",
    "runner-event-age",
    "runner-events-dropped",
    "runner-dead-letters-undelivered",
    "runner-duration",
    // Their paragraph is that of `runner-dead-letters`, whose story walks it.
    "schedules-dead-letters",
    "schedules-dead-letters-age",
];

/// Rules whose condition needs more than a story can break: load, time of months, or a second version of the zone data.
const ONLY_UNIT_TESTS: [&str; 13] = [
    "CronboxInstanceDown",
    "CronboxPoolExhausted",
    "CronboxHttpErrors",
    "CronboxConnectionsRefused",
    "CronboxRequestsRefused",
    "CronboxHeartbeatFails",
    "CronboxZoneDataOld",
    "CronboxZoneDataDiffers",
    "CronboxWatchdogStopped",
    "CronboxWorkflowsUndecidable",
    "CronboxJobOverdue",
    "CronboxPublisherStuck",
    // A story sees the alarm of CloudWatch on the same gauge.
    "CronboxDeadLettersOld",
];

/// The alarms and the alerts that stories see ring, and the paragraphs that they walk.
struct Walked {
    alarms: BTreeSet<String>,
    alerts: BTreeSet<String>,
    anchors: BTreeSet<String>,
}

fn walked() -> Walked {
    let rings = Regex::new(r#"\.rings\("([^"]*)", "([^"]*)"\)"#).unwrap();
    let walks = Regex::new(r#"\.walk\("([^"]*)""#).unwrap();
    let mut walked = Walked { alarms: BTreeSet::new(), alerts: BTreeSet::new(), anchors: BTreeSet::new() };
    for file in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("runbook")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for found in rings.captures_iter(&text) {
            walked.alarms.insert(found[1].to_owned());
            walked.alerts.insert(found[2].to_owned());
        }
        walked.anchors.extend(walks.captures_iter(&text).map(|found| found[1].to_owned()));
    }
    for names in [&mut walked.alarms, &mut walked.alerts] {
        names.remove("");
    }
    walked
}

#[test]
fn every_alarm_and_rule_is_walked_or_named() {
    let walked = walked();
    let alarms: BTreeSet<String> = all_alarms().into_keys().collect();
    let named: BTreeSet<String> = OF_AWS.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(walked.alarms.union(&named).cloned().collect::<BTreeSet<_>>(), alarms);
    let rules =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus/cronbox.rules.yml"));
    let rules = rules.unwrap();
    let alerts: BTreeSet<String> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).map(str::to_owned).collect();
    let named: BTreeSet<String> = ONLY_UNIT_TESTS.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(walked.alerts.union(&named).cloned().collect::<BTreeSet<_>>(), alerts);
    assert!(walked.anchors.len() >= 20, "{:?}", walked.anchors);
}

/// The names of the alarms of all modules: those that Terraform computes, and those that a module writes out.
fn named_alarms() -> BTreeSet<String> {
    let alarm = Regex::new(r"(?m)^ +([a-z-]+) += \{\n(?: +#.*\n)* +says +=").unwrap();
    let mut names: BTreeSet<String> = all_alarms().into_keys().collect();
    for module in ["notifier", "service"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../terraform/modules").join(module).join("alarms.tf");
        let text = std::fs::read_to_string(path).unwrap();
        names.extend(alarm.captures_iter(&text).map(|found| found[1].to_owned()));
    }
    names
}

fn has_anchor(section: &str, name: &str) -> bool {
    section.contains(&format!("<a id=\"{name}\"></a>"))
}

/// CloudWatch raises an alarm for the trouble of each rule, or the runbook says that there is none.
#[test]
fn every_rule_has_an_alarm_of_cloudwatch() {
    let (runbook, alarms) = (runbook(), named_alarms());
    assert!(alarms.contains("job-failing") && alarms.contains("database-storage"), "{alarms:?}");
    let heading = Regex::new(r"(?m)^#").unwrap();
    let sections: Vec<&str> = heading.split(&runbook).collect();
    let without_alarm = sections.iter().find(|section| has_anchor(section, "prometheus")).unwrap();
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus/cronbox.rules.yml");
    let rules = std::fs::read_to_string(rules).unwrap();
    let rule = Regex::new(r"(?s)- alert: (\w+)\n.*?runbook_url: docs/runbook\.md#(\S+)").unwrap();
    let mut missing = Vec::new();
    for found in rule.captures_iter(&rules) {
        let section = sections.iter().find(|section| has_anchor(section, &found[2])).unwrap();
        let has_alarm = alarms.contains(&found[2]) || alarms.iter().any(|alarm| has_anchor(section, alarm));
        if !has_alarm && !without_alarm.contains(&found[1]) {
            missing.push(found[1].to_owned());
        }
    }
    assert!(missing.is_empty(), "{missing:?} have no alarm, and are not among the alerts of Prometheus only");
}

/// The costs of a month are those of the alarms that Terraform makes and of the metrics that the app writes.
#[test]
fn costs_count_alarms_and_metrics() {
    let read =
        |path: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap();
    let page = read("docs/aws.md");
    let number = |pattern: &str| -> usize { Regex::new(pattern).unwrap().captures(&page).unwrap()[1].parse().unwrap() };
    assert_eq!(number(r"(\d+) alarms at 0\.10, \d+ metrics"), all_alarms().len());
    let service = Regex::new(" says +=").unwrap().find_iter(&read("terraform/modules/service/alarms.tf")).count();
    let scaling = read("terraform/modules/service/scaling.tf");
    let own = scaling.matches("resource \"aws_cloudwatch_metric_alarm\"").count();
    assert_eq!(number(r"metrics of the app, (\d+) alarms"), service + own);
    // Application Auto Scaling makes two alarms for each policy that tracks a target.
    assert_eq!(number(r"and (\d+) that its scaling makes"), 2 * scaling.matches("\"TargetTrackingScaling\"").count());
    let row = Regex::new(r"(?m)^\| `cronbox_(\w+)` \| (?:gauge|counter) \|").unwrap();
    let metrics = read("docs/metrics.md");
    let of_app = row.captures_iter(&metrics).filter(|found| !found[1].starts_with("publisher_")).count();
    let emf = read("app/server/src/metrics/emf.rs");
    let left_out = Regex::new(r"const LEFT_OUT: \[&str; (\d+)\]").unwrap();
    let left_out: usize = left_out.captures(&emf).unwrap()[1].parse().unwrap();
    assert_eq!(number(r"(\d+) metrics of the app"), of_app - left_out);
}

/// A paragraph with commands is one that a story walks.
#[test]
fn every_paragraph_with_commands_is_walked() {
    let (runbook, walked) = (runbook(), walked());
    let anchor = Regex::new(r#"<a id="([^"]+)"></a>"#).unwrap();
    for found in anchor.captures_iter(&runbook) {
        let commands = commands_of(&runbook, &found[1]);
        let is_walked = walked.anchors.iter().any(|anchor| commands_of(&runbook, anchor) == commands);
        assert!(commands.is_empty() || is_walked, "#{}: {commands:?}", &found[1]);
    }
}

/// The commands of an operator on AWS name outputs that Terraform has, a queue for each discard, and a DSN by which also the programs
/// verify the database's certificate.
#[test]
fn operators_commands_name_what_exists() {
    let runbook = runbook();
    let outputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../terraform/envs/dev/outputs.tf");
    let outputs = std::fs::read_to_string(outputs).unwrap();
    let output = Regex::new(r"terraform output (?:-(?:raw|json) )?(\w+)").unwrap();
    let named: BTreeSet<&str> = output.captures_iter(&runbook).map(|found| found.get(1).unwrap().as_str()).collect();
    assert!(named.len() >= 5, "{named:?}");
    for name in named {
        assert!(outputs.contains(&format!("output \"{name}\" {{")), "Terraform has no output {name}");
    }
    let queue = Regex::new(r"dead_letter_queue_urls \| jq -r \.(\w+)").unwrap();
    for found in queue.captures_iter(&runbook) {
        let is_there =
            ["schedules", "runner", "publisher"].contains(&&found[1]) || outputs.contains(&format!("{} =", &found[1]));
        assert!(is_there, "there is no queue {}", &found[1]);
    }
    let discards: Vec<&str> = runbook.lines().filter(|line| line.contains("cronbox dlq discard")).collect();
    assert!(discards.len() >= 2 && discards.iter().all(|line| line.contains(" --queue ")), "{discards:?}");

    let dsn = Regex::new("DATABASE_URL=\"(postgresql://[^\"]+)\"").unwrap();
    let dsn = dsn.captures(&runbook).unwrap()[1].replace("$HOST", "db.example.com");
    let parsed: sqlx::postgres::PgConnectOptions = dsn.parse().unwrap();
    assert_eq!((parsed.get_host(), parsed.get_port()), ("db.example.com", 15432), "{dsn}");
    assert!(dsn.contains("sslmode=verify-full"), "{dsn}");
}

/// A number in the page would leave an environment of another size with too few tasks, and nothing scales a fixed size.
#[test]
fn restores_start_the_tasks_of_before() {
    let runbook = runbook();
    let count = Regex::new(r"--desired-count (\S+)").unwrap();
    let counts: BTreeSet<&str> = count.captures_iter(&runbook).map(|found| found.get(1).unwrap().as_str()).collect();
    assert_eq!(counts, BTreeSet::from(["0", "\"$TASKS\""]));
    assert!(runbook.contains("$ TASKS=$(aws ecs describe-services "), "the page says where the number comes from");
}
