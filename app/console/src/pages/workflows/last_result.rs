//! `/workflows`: the filter of lists by the last result. Its choice *not succeeded* stands for three results of the API.

/// The choice for all results that want a person's attention.
const NOT_SUCCEEDED: &str = "not_succeeded";

/// What a form offers: its values, and their words.
pub(super) const CHOICES: [(&str, &str); 6] = [
    (NOT_SUCCEEDED, "not succeeded"),
    ("failed", "failed"),
    ("timed_out", "timed out"),
    ("abandoned", "abandoned"),
    ("cancelled", "cancelled"),
    ("succeeded", "succeeded"),
];

/// The filters of a form, as parameters of the API.
pub(super) fn as_parameters<'a>(
    filters: impl IntoIterator<Item = (&'static str, &'a str)>,
) -> Vec<(&'static str, &'a str)> {
    let results = |value| match value {
        NOT_SUCCEEDED => vec!["failed", "timed_out", "abandoned"],
        one => vec![one],
    };
    let expand = |(name, value): (&'static str, &'a str)| match name {
        "last_result" => results(value).into_iter().map(|value| (name, value)).collect(),
        _ => vec![(name, value)],
    };
    filters.into_iter().flat_map(expand).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_succeeded_is_three_results() {
        let filters = [("q", "pay"), ("last_result", NOT_SUCCEEDED)];
        let results = [("last_result", "failed"), ("last_result", "timed_out"), ("last_result", "abandoned")];
        assert_eq!(as_parameters(filters), [&[("q", "pay")], &results[..]].concat());
        assert_eq!(as_parameters([("last_result", "succeeded")]), [("last_result", "succeeded")]);
    }
}
