//! Workflow files of GitHub Actions: the crons of `on.schedule`.

use anyhow::Context as _;
use serde_json::Value;

use super::definition::{Definition, Imported};
use super::dialect::Dialect;

/// Reads the schedules of a workflow file.
pub(super) fn import_actions(text: &str) -> anyhow::Result<Imported> {
    // In YAML 1.1 `on` is true.
    let options = serde_saphyr::options! { strict_booleans: true };
    let document: Value = serde_saphyr::from_str_with_options(text, options).context("the file is no YAML")?;
    let mut imported = Imported::default();
    let name = document["name"].as_str().unwrap_or("workflow");
    let on = &document["on"];
    for schedule in on["schedule"].as_array().into_iter().flatten() {
        let mut definition = Definition { name: name.to_owned(), ..Definition::default() };
        match schedule["cron"].as_str() {
            Some(cron) => definition.take_cron(cron.trim(), Dialect::GithubActions),
            None => definition.refuse("because the schedule has no cron"),
        }
        if let Some(zone) = schedule["timezone"].as_str() {
            definition.take_timezone(zone);
        }
        let jobs: Vec<&str> = document["jobs"].as_object().into_iter().flatten().map(|(job, _)| job.as_str()).collect();
        definition.note(format!(
            "it ran the jobs {}; to start them from here, send a workflow_dispatch to the API of GitHub with a secret of the team",
            jobs.join(", ")
        ));
        definition.note("GitHub starts a schedule late or not at all when it is busy; here each due time is decided");
        imported.add(definition);
    }
    Ok(imported)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cron_is_a_workflow() {
        let text = "name: Nightly\non:\n  push:\n  schedule:\n    - cron: '30 5 * * 1,3'\n    - cron: \"0 0 L * *\"\njobs:\n  build: {runs-on: ubuntu-latest}\n";
        let imported = import_actions(text).unwrap();
        let read: Vec<_> = imported.definitions.iter().map(|one| (one.name.as_str(), one.cron.as_deref())).collect();
        assert_eq!(read, [("Nightly", Some("30 5 * * 1,3")), ("Nightly 2", Some("0 0 L * *"))]);
        assert!(import_actions("on: push\n").unwrap().definitions.is_empty());
    }

    /// GitHub documents POSIX's rule, which says nothing about a step from *.
    #[test]
    fn uncertain_days_are_not_taken_over() {
        let text = "on:\n  schedule:\n    - cron: '0 9 */2 * 1'\n    - cron: '0 9 13 * 5'\n";
        let imported = import_actions(text).unwrap();
        assert_eq!((imported.taken(), imported.refused()), (1, 1), "{imported:?}");
        assert!(imported.definitions[0].notes[0].starts_with("NOT TAKEN OVER"), "{imported:?}");
    }
}
