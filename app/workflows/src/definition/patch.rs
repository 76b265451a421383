//! Step 1 of 7: applies a PATCH to a workflow, in one of two formats.

use serde_json::{Map, Value};

use crate::definition::body::WorkflowBody;
use crate::definition::field::{self, FieldError};
use crate::definition::spec::Spec;

/// The format of a PATCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// `application/json`: a top-level null counts as absent, any other value replaces the existing one completely.
    Replace,
    /// `application/merge-patch+json`: RFC 7396.
    Merge,
}

/// Returns the body after a patch.
///
/// # Errors
/// Returns the field that the patch makes invalid.
pub fn patched(current: &Spec, patch: Map<String, Value>, kind: PatchKind) -> Result<WorkflowBody, FieldError> {
    if patch.contains_key("team_id") {
        return Err(FieldError::new("immutable_field", "team_id", "team_id cannot be changed"));
    }
    let document = serde_json::to_value(current.to_body())
        .map_err(|error| FieldError::invalid("", format!("the stored workflow cannot be patched: {error}")))?;
    field::read("", apply(document, patch, kind))
}

/// Returns a document after a patch.
pub(crate) fn apply(mut document: Value, patch: Map<String, Value>, kind: PatchKind) -> Value {
    match kind {
        PatchKind::Merge => merge(&mut document, Value::Object(patch)),
        PatchKind::Replace => {
            if let Value::Object(members) = &mut document {
                members.extend(patch.into_iter().filter(|(_, value)| !value.is_null()));
            }
        }
    }
    document
}

/// RFC 7396, section 2.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(members) = target {
        for (key, value) in patch {
            if value.is_null() {
                members.remove(&key);
            } else {
                merge(members.entry(key).or_insert(Value::Null), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::definition::policies::Policies;
    use crate::definition::spec::Timing;

    fn current() -> Spec {
        Spec {
            name: "nightly".into(),
            description: Some("books".into()),
            timing: Timing {
                cron: Some("0 9 * * *".into()),
                timezone: Some("Europe/Paris".into()),
                ..Timing::default()
            },
            is_api: true,
            action: json!({"type": "http", "method": "GET", "url": "https://a.example", "headers": {"a": "1", "b": "2"}}),
            starting_inputs: Map::new(),
            policies: Policies::default(),
        }
    }

    fn patch(document: Value, kind: PatchKind) -> Result<WorkflowBody, FieldError> {
        let Value::Object(members) = document else { panic!("a patch is an object") };
        patched(&current(), members, kind)
    }

    #[test]
    fn replace_takes_null_as_absent() {
        let body = patch(json!({"cron_schedule": null, "action": {"type": "log"}}), PatchKind::Replace).unwrap();
        assert_eq!(body.cron_schedule.as_deref(), Some("0 9 * * *"));
        assert_eq!(body.action, json!({"type": "log"}));
    }

    #[test]
    fn merge_removes_by_null_and_goes_deep() {
        let document = json!({"cron_schedule": null, "is_api": null, "action": {"headers": {"a": null}}});
        let body = patch(document, PatchKind::Merge).unwrap();
        assert_eq!((body.cron_schedule, body.is_api), (None, None));
        assert_eq!(body.action["headers"], json!({"b": "2"}));
    }

    #[test]
    fn merge_refuses_null_for_a_required_field() {
        let error = patch(json!({"name": null}), PatchKind::Merge).unwrap_err();
        assert_eq!((error.code, error.field.as_str()), ("missing_field", "name"));
    }

    #[test]
    fn a_patch_names_fields_that_it_may_not_write() {
        assert_eq!(patch(json!({"team_id": 2}), PatchKind::Merge).unwrap_err().code, "immutable_field");
        let error = patch(json!({"state": "paused"}), PatchKind::Replace).unwrap_err();
        assert_eq!((error.code, error.field.as_str()), ("unknown_field", "state"));
    }
}
