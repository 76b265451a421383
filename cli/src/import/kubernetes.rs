//! Cron jobs of Kubernetes: YAML of one or several documents, or the JSON of `kubectl get cronjobs -o json`.

use anyhow::Context as _;
use serde_json::{Value, json};

use super::definition::{Definition, Imported};
use super::dialect::Dialect;

/// The longest window of missed times, 30 days.
const LONGEST_WINDOW: i64 = 2_592_000;

/// Reads all cron jobs of a file.
pub(super) fn import_kubernetes(text: &str) -> anyhow::Result<Imported> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).context("the file is no YAML")?;
    let mut imported = Imported::default();
    for document in documents {
        let items = document["items"].as_array().cloned().unwrap_or_else(|| vec![document.clone()]);
        for item in items.iter().filter(|item| item["kind"] == "CronJob") {
            imported.add(definition(item));
        }
    }
    Ok(imported)
}

fn definition(item: &Value) -> Definition {
    let (meta, spec) = (&item["metadata"], &item["spec"]);
    let name = match (meta["namespace"].as_str(), meta["name"].as_str().unwrap_or_default()) {
        (Some(namespace), name) if namespace != "default" => format!("{namespace}/{name}"),
        (_, name) => name.to_owned(),
    };
    let mut definition = Definition { name, ..Definition::default() };
    take_schedule(&mut definition, spec);
    match spec["concurrencyPolicy"].as_str().unwrap_or("Allow") {
        "Forbid" => definition.set("overlap_policy", json!("skip")),
        "Replace" => definition.set("overlap_policy", json!("replace")),
        _ => {
            definition.set("overlap_policy", json!("concurrent"));
            definition.note("concurrencyPolicy Allow: at most max_concurrent (10) runs at once");
        }
    }
    match spec["startingDeadlineSeconds"].as_i64() {
        // Kubernetes starts the newest missed time within the deadline.
        Some(seconds) => {
            definition.set("catch_up_policy", json!("skip"));
            let window = seconds.clamp(60, LONGEST_WINDOW);
            definition.set("catch_up_window_secs", json!(window));
            if window != seconds {
                definition.note(format!("startingDeadlineSeconds {seconds} is outside of 60 to {LONGEST_WINDOW}: {window} is taken"));
            }
        }
        None => definition.note("without startingDeadlineSeconds a missed time starts however late; here it runs within catch_up_window_secs (a day)"),
    }
    if spec["suspend"] == true {
        definition.set("paused", json!(true));
        definition.note("it was suspended: `apply` creates it paused, and `cronbox workflow resume` starts it");
    }
    let job = &spec["jobTemplate"]["spec"];
    if let Some(retries) = job["backoffLimit"].as_i64() {
        definition.set("max_attempts", json!((retries + 1).clamp(1, 20)));
    }
    if let Some(seconds) = job["activeDeadlineSeconds"].as_i64() {
        definition.set("timeout_secs", json!(seconds.clamp(1, 86_400)));
    }
    for container in job["template"]["spec"]["containers"].as_array().into_iter().flatten() {
        let words = |field: &str| {
            let words = container[field].as_array().into_iter().flatten().filter_map(Value::as_str);
            words.collect::<Vec<_>>().join(" ")
        };
        let image = container["image"].as_str().unwrap_or_default();
        definition
            .note(format!("it ran the image {image}: {}", format!("{} {}", words("command"), words("args")).trim()));
    }
    definition
}

/// The schedule may begin with the timezone, which Kubernetes refuses since 1.29.
fn take_schedule(definition: &mut Definition, spec: &Value) {
    let written = spec["schedule"].as_str().unwrap_or_default().trim();
    let (zone, cron) = match written.strip_prefix("CRON_TZ=").or_else(|| written.strip_prefix("TZ=")) {
        Some(rest) => rest.split_once(' ').map_or((None, rest), |(zone, cron)| (Some(zone), cron.trim())),
        None => (None, written),
    };
    match cron {
        "" => definition.refuse("because it has no schedule"),
        every if every.starts_with("@every") => {
            definition.refuse(format_args!("{every}: it counts from the start; write a cron, for example */5 * * * *"));
        }
        cron => definition.take_cron(cron, Dialect::Kubernetes),
    }
    match zone.or(spec["timeZone"].as_str()) {
        Some(zone) => definition.take_timezone(zone),
        None => definition.note("it has no timeZone: its times were those of the cluster's controller; UTC is taken"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: report, namespace: shop}\nspec:\n  schedule: \"*/15 8-18 * * 1-5\"\n  timeZone: Europe/Berlin\n  concurrencyPolicy: Forbid\n  startingDeadlineSeconds: 10\n  suspend: true\n  jobTemplate:\n    spec:\n      backoffLimit: 3\n      activeDeadlineSeconds: 600\n      template:\n        spec:\n          containers: [{image: \"shop:1\", command: [sh], args: [-c, report]}]\n---\napiVersion: v1\nkind: ConfigMap\n";

    #[test]
    fn policies_are_translated() {
        let imported = import_kubernetes(JOB).unwrap();
        let [job] = &imported.definitions[..] else { panic!("{imported:?}") };
        assert_eq!((job.name.as_str(), job.cron.as_deref()), ("shop/report", Some("*/15 8-18 * * 1-5")));
        assert_eq!(job.timezone.as_deref(), Some("Europe/Berlin"));
        assert_eq!((&job.fields["overlap_policy"], &job.fields["max_attempts"]), (&json!("skip"), &json!(4)));
        assert_eq!((&job.fields["catch_up_window_secs"], &job.fields["timeout_secs"]), (&json!(60), &json!(600)));
        assert!(job.notes.iter().any(|note| note.contains("suspended")) && job.fields["paused"] == true, "{job:?}");
        assert!(job.notes.iter().any(|note| note == "it ran the image shop:1: sh -c report"), "{job:?}");
    }

    /// There a step from * is a restriction, and one of two restricted day fields is enough.
    #[test]
    fn day_fields_combine_as_in_kubernetes() {
        for (schedule, expected) in [
            ("0 9 */2 * 1", "0 9 1-31/2 * 1"),
            ("0 9 */5 * 1-5", "0 9 1-31/5 * 1-5"),
            ("0 9 13 * */2", "0 9 13 * 0-6/2"),
            ("0 0 1,* * 1", "0 0 * * 1"),
            ("0 9 */2 * *", "0 9 */2 * *"),
            ("0 9 13 * 5", "0 9 13 * 5"),
        ] {
            let text =
                json!({"kind": "CronJob", "metadata": {"name": "a"}, "spec": {"schedule": schedule}}).to_string();
            let job = import_kubernetes(&text).unwrap().definitions[0].clone();
            assert_eq!(job.cron.as_deref(), Some(expected), "{schedule}");
            let is_noted = job.notes.iter().any(|note| note.starts_with(&format!("its schedule was {schedule}; ")));
            assert_eq!(is_noted, schedule != expected, "{job:?}");
        }
    }

    #[test]
    fn what_has_no_cron_is_said() {
        for schedule in ["@every 5m", "", "61 * * * *", "0 0 9 * * 1"] {
            let text =
                json!({"kind": "CronJob", "metadata": {"name": "a"}, "spec": {"schedule": schedule}}).to_string();
            let imported = import_kubernetes(&text).unwrap();
            assert_eq!((imported.definitions.len(), imported.refused()), (1, 1), "{schedule}");
        }
    }
}
