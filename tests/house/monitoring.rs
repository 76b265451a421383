//! The rules of Prometheus and the dashboard of Grafana in deploy/: what promtool does not check.

use std::collections::BTreeSet;

use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

use crate::sources::root;

#[derive(Deserialize)]
struct RulesFile {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    alert: Option<String>,
    #[serde(rename = "for")]
    lasts: Option<String>,
    labels: Option<Labels>,
    annotations: Option<Annotations>,
}

#[derive(Deserialize)]
struct Labels {
    severity: String,
}

#[derive(Deserialize)]
struct Annotations {
    summary: String,
    description: String,
    runbook_url: String,
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

fn alerts() -> Vec<Rule> {
    let rules: RulesFile = serde_saphyr::from_str(&read("deploy/prometheus/cronbox.rules.yml")).unwrap();
    rules.groups.into_iter().flat_map(|group| group.rules).filter(|rule| rule.alert.is_some()).collect()
}

#[test]
fn alerts_lead_to_their_paragraphs() {
    let runbook = read("docs/runbook.md");
    let alerts = alerts();
    assert!(alerts.len() > 30, "the alerts were not found");
    for rule in alerts {
        let name = rule.alert.unwrap();
        assert!(rule.lasts.is_some(), "{name} has no `for`");
        assert!(["page", "ticket"].contains(&&*rule.labels.unwrap().severity), "{name}");
        let Annotations { summary, description, runbook_url } = rule.annotations.unwrap();
        assert!(summary.len() <= 80 && summary.contains("cronbox") && !summary.ends_with('.'), "{name}: {summary}");
        assert!(description.ends_with('.'), "{name}: {description}");
        let anchor = runbook_url.strip_prefix("docs/runbook.md#").unwrap();
        assert!(runbook.contains(&format!("<a id=\"{anchor}\"></a>")), "{name}: the runbook has no #{anchor}");
    }
}

/// In each case of the unit tests one alert fires and all others are silent, and before none fires.
#[test]
fn every_alert_has_a_unit_test() {
    let tests: String =
        ["app", "ledger", "publisher"].map(|name| read(&format!("deploy/prometheus/tests/{name}.yml"))).concat();
    let fired: BTreeSet<&str> = tests
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- labels: '{alertname=\"")?.strip_suffix("\"}'"))
        .collect();
    let named: Vec<String> = alerts().into_iter().filter_map(|rule| rule.alert).collect();
    assert_eq!(fired, named.iter().map(String::as_str).collect());
    let cases = tests.lines().filter(|line| line.starts_with("  - name: ")).count();
    assert_eq!(tests.matches("exp_samples: []").count(), cases, "a case is silent first");
}

/// RDS grows the storage, so a threshold that is computed from the first size is soon a small part of it.
#[test]
fn the_storage_alarm_follows_the_size() {
    let alarms = read("terraform/modules/service/alarms.tf");
    let (_, storage) = alarms.split_once("database-storage = {").unwrap();
    let value = storage.lines().find(|line| line.trim_start().starts_with("value ")).unwrap();
    assert!(value.contains("aws_db_instance.this[0].allocated_storage"), "{value}");
}

/// An alarm and a scaling whose metric does not exist do nothing, and no one sees it.
#[test]
fn terraform_reads_metrics_that_the_app_writes() {
    let (metrics, emf) = (read("docs/metrics.md"), read("app/server/src/metrics/emf.rs"));
    let left_out = emf.lines().find(|line| line.starts_with("const LEFT_OUT")).unwrap();
    let named = Regex::new(r#"namespace +=\s+"cronbox/app"\n +metric(?:_name)? +=\s+"(\w+)""#).unwrap();
    let files = ["alarms.tf", "scaling.tf"].map(|file| read(&format!("terraform/modules/service/{file}"))).concat();
    let found: BTreeSet<&str> = named.captures_iter(&files).map(|found| found.get(1).unwrap().as_str()).collect();
    assert_eq!(found, BTreeSet::from(["executor_slots_used", "job_failing", "job_overdue_seconds", "refusals"]));
    for name in found {
        let is_documented = ["", "_total"].iter().any(|end| metrics.contains(&format!("| `cronbox_{name}{end}` |")));
        assert!(is_documented && !left_out.contains(&format!("\"{name}\"")), "the app writes no {name}");
    }
}

/// Grafana gives the dashboard and its data source their ids when it is imported.
#[test]
fn the_dashboard_has_no_id_of_a_server() {
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana/cronbox.json")).unwrap();
    assert_eq!((&dashboard["uid"], &dashboard["id"]), (&Value::Null, &Value::Null));
    let panels = dashboard["panels"].as_array().unwrap();
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let targets = panel["targets"].as_array().unwrap();
        for source in targets.iter().map(|target| &target["datasource"]).chain([&panel["datasource"]]) {
            assert_eq!(source["uid"], "${datasource}", "{}", panel["title"]);
        }
    }
    let places: BTreeSet<String> =
        panels.iter().map(|panel| format!("{} {}", panel["gridPos"]["x"], panel["gridPos"]["y"])).collect();
    assert_eq!(places.len(), panels.len(), "no panel covers another one");
}
