//! Schedules of pg-boss: the rows of `pgboss.schedule` as one JSON array.

use anyhow::Context as _;
use serde_json::{Map, Value};

use super::definition::{Definition, Imported};
use super::dialect::Dialect;

/// Reads all rows.
pub(super) fn import_pg_boss(text: &str) -> anyhow::Result<Imported> {
    let rows: Vec<Value> =
        serde_json::from_str(text).context("the file is no JSON array of the rows of pgboss.schedule")?;
    let mut imported = Imported::default();
    rows.iter().for_each(|row| imported.add(definition(row)));
    Ok(imported)
}

fn definition(row: &Value) -> Definition {
    let text = |column: &str| row[column].as_str().unwrap_or_default();
    // A queue may have several schedules, each with its key.
    let name = match (text("name"), text("key")) {
        (queue, "") => queue.to_owned(),
        (queue, key) => format!("{queue}/{key}"),
    };
    let mut definition = Definition { name, ..Definition::default() };
    match text("cron") {
        "" => definition.refuse("because it has no cron"),
        cron => definition.take_cron(cron, Dialect::PgBoss),
    }
    match text("timezone") {
        "" => {}
        name => definition.take_timezone(name),
    }
    let arguments = [("queue", "name"), ("data", "data"), ("options", "options")];
    let given = arguments.into_iter().filter(|(_, column)| !row[*column].is_null());
    let inputs: Map<String, Value> = given.map(|(name, column)| (name.to_owned(), row[column].clone())).collect();
    definition.set("starting_inputs", Value::Object(inputs));
    definition
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_become_workflows() {
        let rows = json!([
            {"name": "report", "key": "us", "cron": "0 6 * * *", "timezone": "America/Chicago", "data": {"region": "us"},
             "options": {"retryLimit": 3}, "created_on": "2026-03-01T00:00:00"},
            {"name": "payroll", "cron": "0 5 9 * * 1-5", "timezone": null, "data": null, "options": null},
        ]);
        let imported = import_pg_boss(&rows.to_string()).unwrap();
        let [report, payroll] = &imported.definitions[..] else { panic!("{imported:?}") };
        assert_eq!((report.name.as_str(), report.cron.as_deref()), ("report/us", Some("0 6 * * *")));
        assert_eq!(report.timezone.as_deref(), Some("America/Chicago"));
        let inputs = json!({"queue": "report", "data": {"region": "us"}, "options": {"retryLimit": 3}});
        assert_eq!(report.fields["starting_inputs"], inputs);
        assert_eq!((payroll.name.as_str(), payroll.cron.as_deref()), ("payroll", Some("0 5 9 * * 1-5")));
        assert_eq!(payroll.fields["starting_inputs"], json!({"queue": "payroll"}));
    }

    #[test]
    fn what_has_other_times_is_refused() {
        for (cron, timezone) in [
            ("15 5 9 * * *", "UTC"),
            ("", "UTC"),
            ("@weekdays", "UTC"),
            ("0 9 1-31 * 1", "UTC"),
            ("0 9 * * *", "Europe/Pari"),
        ] {
            let rows = json!([{"name": "a", "cron": cron, "timezone": timezone}]);
            let imported = import_pg_boss(&rows.to_string()).unwrap();
            assert_eq!((imported.definitions.len(), imported.refused()), (1, 1), "{cron}, {timezone}");
        }
        assert!(import_pg_boss("[]").unwrap().definitions.is_empty());
        assert!(import_pg_boss("{}").is_err());
    }
}
