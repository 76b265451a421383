//! The results of all cases: a table on stdout, and JSON in `target/bench/`.

use std::process::ExitCode;

use local::config::target_folder;
use serde_json::{Value, json};

/// One line of the table.
pub(crate) struct Row {
    pub(crate) case: &'static str,
    pub(crate) what: String,
    pub(crate) figures: Vec<(&'static str, f64)>,
    pub(crate) goal: Option<Goal>,
}

/// A ratio within the same run. If it is below its floor, the suite fails.
pub(crate) struct Goal {
    pub(crate) name: &'static str,
    pub(crate) ratio: f64,
    pub(crate) floor: f64,
    pub(crate) goal: f64,
}

impl Row {
    /// A row of figures.
    pub(crate) fn new(case: &'static str, what: impl Into<String>, figures: Vec<(&'static str, f64)>) -> Row {
        Row { case, what: what.into(), figures, goal: None }
    }

    /// A row of durations, in milliseconds.
    pub(crate) fn of_times(case: &'static str, what: impl Into<String>, mut taken_ms: Vec<f64>) -> Row {
        taken_ms.sort_by(f64::total_cmp);
        let share = |share| at(&taken_ms, share);
        #[expect(clippy::cast_precision_loss, reason = "a number of calls")]
        let calls = taken_ms.len() as f64;
        Row::new(
            case,
            what,
            vec![("n", calls), ("p50 ms", share(0.5)), ("p99 ms", share(0.99)), ("max ms", share(1.0))],
        )
    }

    /// The row, with a ratio as its goal.
    pub(crate) fn against(self, name: &'static str, ratio: f64, floor: f64, goal: f64) -> Row {
        Row { goal: Some(Goal { name, ratio, floor, goal }), ..self }
    }
}

/// The median of some numbers.
pub(crate) fn median(numbers: &[f64]) -> f64 {
    percentile(numbers, 0.5)
}

/// The number that this share of the numbers does not exceed; infinite if there are none.
pub(crate) fn percentile(numbers: &[f64], share: f64) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    at(&sorted, share)
}

fn at(sorted: &[f64], share: f64) -> f64 {
    if sorted.is_empty() {
        return f64::INFINITY;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index"
    )]
    let index = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
    sorted[index]
}

/// Prints a case as soon as it is measured, so that a failure of a later case does not lose it.
pub(crate) fn shown(rows: Vec<Row>) -> Vec<Row> {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load average {}", load.split(' ').take(3).collect::<Vec<_>>().join(" "));
    for Row { case, what, figures, goal } in &rows {
        let figures: Vec<String> = figures.iter().map(|(name, value)| format!("{name} {}", short(*value))).collect();
        println!("{case:<4} {what:<62} {}", figures.join("  "));
        if let Some(Goal { name, ratio, floor, goal }) = goal {
            let verdict = match ratio {
                _ if ratio < floor => "BELOW ITS FLOOR",
                _ if ratio < goal => "above its floor",
                _ => "goal reached",
            };
            println!("     {name}: {} (floor {}, goal {}): {verdict}", short(*ratio), short(*floor), short(*goal));
        }
    }
    rows
}

/// Writes all rows. Fails if a ratio is below its floor, and never because of an absolute figure.
pub(crate) fn evaluate_rows(rows: &[Row]) -> ExitCode {
    write(rows);
    let below = rows.iter().filter_map(|row| row.goal.as_ref()).filter(|goal| goal.ratio < goal.floor).count();
    println!("{} lines, {below} below their floor", rows.len());
    ExitCode::from(u8::from(below > 0))
}

fn short(value: f64) -> String {
    match value.abs() {
        0.0..10.0 => format!("{value:.2}"),
        10.0..1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn write(rows: &[Row]) {
    let folder = target_folder().join("bench");
    std::fs::create_dir_all(&folder).unwrap();
    let rows: Vec<Value> =
        rows.iter()
            .map(|row| {
                let figures: serde_json::Map<String, Value> =
                    row.figures.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
                let goal = row.goal.as_ref().map(
                    |goal| json!({"name": goal.name, "ratio": goal.ratio, "floor": goal.floor, "goal": goal.goal}),
                );
                json!({"case": row.case, "what": row.what, "figures": figures, "goal": goal})
            })
            .collect();
    std::fs::write(folder.join("suite.json"), serde_json::to_string_pretty(&rows).unwrap()).unwrap();
}
