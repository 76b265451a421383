//! Paths with queries.

use url::form_urlencoded::Serializer;

/// A path with the parameters that have a value.
pub(crate) fn with_query<'a>(path: &str, parameters: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> String {
    let mut query = Serializer::new(String::new());
    for (name, value) in parameters {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            query.append_pair(name, value);
        }
    }
    let query = query.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_and_empty_ones_left_out() {
        assert_eq!(with_query("/a", [("q", Some("x & y")), ("z", None), ("w", Some(""))]), "/a?q=x+%26+y");
        assert_eq!(with_query("/a", [("q", None)]), "/a");
    }
}
