//! Recorded pages of `/metrics`, and what promtool says of the rules over them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use tests::metric_names::used_names;

/// The samples of the metrics that the rules use, by series and minute; and which alerts must ring when.
#[derive(Default)]
pub(crate) struct Recorded {
    series: BTreeMap<String, BTreeMap<usize, String>>,
    expectations: Vec<(usize, &'static str, bool)>,
}

impl Recorded {
    /// Records a page that one instance of a job has served; `None` = it did not answer.
    pub(crate) fn add_page(&mut self, job: &str, page: Option<&str>, minutes: std::ops::Range<usize>) {
        let used: BTreeSet<String> = used_names();
        let labels = format!("job=\"{job}\",instance=\"a\"");
        let mut samples = vec![(format!("up{{{labels}}}"), if page.is_some() { "1" } else { "0" }.to_owned())];
        for line in page.unwrap_or_default().lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, own) = series.split_once('{').unwrap_or((series, "}"));
            if used.contains(name) {
                let own = own.trim_end_matches('}');
                let comma = if own.is_empty() { "" } else { "," };
                samples.push((format!("{name}{{{labels}{comma}{own}}}"), value.to_owned()));
            }
        }
        for (series, value) in samples {
            self.series.entry(series).or_default().extend(minutes.clone().map(|minute| (minute, value.clone())));
        }
    }

    /// Expects that an alert rings, or that it does not, at the end of the minute before `now`.
    pub(crate) fn expect(&mut self, now: usize, alert: &'static str, rings: bool) {
        self.expectations.push((now - 1, alert, rings));
    }

    /// Lets promtool evaluate the rules.
    ///
    /// # Panics
    /// Panics if an alert rings that must not, or the other way round.
    pub(crate) fn check(&self, folder: &Path) {
        if self.expectations.is_empty() {
            return;
        }
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus/cronbox.rules.yml");
        let mut test = format!(
            "rule_files: ['{}']\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n",
            rules.display()
        );
        let minutes = self.expectations.iter().map(|(minute, ..)| *minute).max().unwrap_or_default();
        for (series, values) in &self.series {
            let values: Vec<&str> =
                (0..=minutes).map(|minute| values.get(&minute).map_or("_", String::as_str)).collect();
            let series = series.replace('\'', "''");
            write!(test, "      - series: '{series}'\n        values: '{}'\n", values.join(" ")).unwrap();
        }
        test.push_str("    promql_expr_test:\n");
        for (minute, alert, rings) in &self.expectations {
            let samples = if *rings { "[{labels: '{}', value: 1}]" } else { "[]" };
            write!(
                test,
                "      - expr: max(ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}})\n        eval_time: {minute}m\n        \
                 exp_samples: {samples}\n"
            )
            .unwrap();
        }
        let file = folder.join("recorded.yml");
        std::fs::write(&file, &test).unwrap();
        let said = Command::new("promtool").args(["test", "rules"]).arg(&file).output();
        let said = said.unwrap_or_else(|error| panic!("promtool is not installed (`make setup`): {error}"));
        let text = format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
        assert!(said.status.success(), "{text}\n{test}");
    }
}
