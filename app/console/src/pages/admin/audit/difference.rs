//! What an entry of the audit log changed, member by member.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// A member that differs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: String,
    /// `None`: it was absent.
    pub(super) before: Option<String>,
    /// `None`: it is absent.
    pub(super) after: Option<String>,
}

/// The members of both objects, by name. A value that is no object is one member without a name.
pub(super) fn members(before: Option<&Value>, after: Option<&Value>) -> Vec<Member> {
    if [before, after].into_iter().flatten().any(|value| !value.is_object()) {
        let name = "value".to_owned();
        return vec![Member { name, before: before.map(text), after: after.map(text) }];
    }
    let empty = Map::new();
    let of = |value: Option<&Value>| value.and_then(Value::as_object).unwrap_or(&empty).clone();
    let (before, after) = (of(before), of(after));
    let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let member = |name: &String| Member {
        name: name.clone(),
        before: before.get(name).map(text),
        after: after.get(name).map(text),
    };
    names.into_iter().map(member).collect()
}

/// A value, as people read it. The log has only the digest of a large one.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        Value::Object(members) => match (members.get("sha256"), members.get("bytes")) {
            (Some(Value::String(digest)), Some(bytes)) if members.len() == 2 => {
                let digest: String = digest.chars().take(12).collect();
                format!("{bytes} bytes, SHA-256 {digest}…")
            }
            _ => value.to_string(),
        },
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn member(name: &str, before: Option<&str>, after: Option<&str>) -> Member {
        Member { name: name.into(), before: before.map(Into::into), after: after.map(Into::into) }
    }

    #[test]
    fn entries_show_each_member_that_differs() {
        let before = json!({ "cron_schedule": "0 9 * * *", "timeout_secs": 60 });
        let after = json!({ "cron_schedule": "0 8 * * *", "labels": { "a": "b" } });
        assert_eq!(
            members(Some(&before), Some(&after)),
            [
                member("cron_schedule", Some("0 9 * * *"), Some("0 8 * * *")),
                member("labels", None, Some(r#"{"a":"b"}"#)),
                member("timeout_secs", Some("60"), None),
            ]
        );
        assert!(members(None, None).is_empty());
    }

    #[test]
    fn large_members_are_their_digest() {
        let after = json!({ "input": { "sha256": "0123456789abcdef", "bytes": 4096 }, "name": null });
        assert_eq!(
            members(None, Some(&after)),
            [member("input", None, Some("4096 bytes, SHA-256 0123456789ab…")), member("name", None, Some("none"))]
        );
    }
}
