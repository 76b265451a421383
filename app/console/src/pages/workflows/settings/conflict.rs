//! The answer to an edit of a workflow that another edit has changed meanwhile.

use api_types::audit::AuditView;
use api_types::page::Page;
use api_types::workflows::WorkflowView;
use askama::Template;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::IntoResponse as _;
use serde_json::Value;

use crate::act::Act;
use crate::api::Api;
use crate::failure::Failure;
use crate::pages::workflows::fields::{Fields, Seen};

/// Bytes of a value that a page names.
const LONGEST: usize = 200;

/// A field that the other edit has changed.
#[derive(Debug, PartialEq, Eq)]
struct Difference {
    field: String,
    before: String,
    now: String,
    /// What the visitor has typed, if it is neither.
    own: Option<String>,
}

#[derive(Template)]
#[template(path = "workflow_conflict.html")]
struct Conflict {
    id: i64,
    differences: Vec<Difference>,
    /// Who made the newest edit.
    editor: Option<String>,
    etag: String,
}

/// Says what the other edit changed, and gives the form the newest version, so that it can be saved after all.
pub(super) async fn answer(api: &Api, id: i64, fields: &Fields, seen: &Seen) -> Act {
    let workflow: WorkflowView = api.get(&format!("/workflows/{id}")).await?;
    let newest = Fields::of_workflow(&workflow);
    let newest_edit = format!("/audit?subject=workflow:{id}&team_id={}&limit=1", workflow.team_id);
    let entries: Page<AuditView> = api.get(&newest_edit).await?;
    let editor = entries.items.into_iter().next().map(|entry| entry.actor_name.unwrap_or(entry.actor));
    let shown =
        Conflict { id, differences: differences(seen, &newest.shown()?, &fields.shown()?), editor, etag: newest.etag };
    let headers = [
        (HeaderName::from_static("hx-retarget"), HeaderValue::from_static("#notice")),
        (HeaderName::from_static("hx-reswap"), HeaderValue::from_static("outerHTML")),
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
    ];
    let text = shown.render().map_err(|error| Failure::Broken(error.to_string()))?;
    Ok((StatusCode::PRECONDITION_FAILED, headers, text).into_response())
}

fn differences(seen: &Seen, now: &Seen, own: &Seen) -> Vec<Difference> {
    let mut found = Vec::new();
    compare("", &seen.document, &now.document, &own.document, &mut found);
    if seen.headers != now.headers {
        let (before, now) = (seen.headers.join(", "), now.headers.join(", "));
        found.push(Difference { field: "action.headers".to_owned(), before, now, own: None });
    }
    found
}

/// Compares the members of the document and of its action.
fn compare(prefix: &str, seen: &Value, now: &Value, own: &Value, found: &mut Vec<Difference>) {
    let names = [seen, now].into_iter().filter_map(Value::as_object).flat_map(|members| members.keys());
    let names: std::collections::BTreeSet<_> = names.collect();
    for name in names {
        let (seen, now, own) = (&seen[name], &now[name], &own[name]);
        if seen == now {
            continue;
        }
        if name == "action" {
            compare("action.", seen, now, own, found);
            continue;
        }
        let typed = Some(own).filter(|own| *own != seen && *own != now).map(text_of);
        found.push(Difference {
            field: format!("{prefix}{name}"),
            before: text_of(seen),
            now: text_of(now),
            own: typed,
        });
    }
}

fn text_of(value: &Value) -> String {
    let text = match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_of_the_other_edit_have_both_values() {
        let of = |document| Seen { document, headers: Vec::new() };
        let seen = of(json!({"name": "a", "cron_schedule": "0 9 * * *", "action": {"url": "https://a", "body": 1}}));
        let now = of(json!({"name": "a", "cron_schedule": "0 10 * * *", "action": {"url": "https://b"}}));
        let own = of(json!({"name": "b", "cron_schedule": "0 11 * * *", "action": {"url": "https://b", "body": 1}}));
        let difference = |field: &str, before: &str, now: &str, own: Option<&str>| Difference {
            field: field.to_owned(),
            before: before.to_owned(),
            now: now.to_owned(),
            own: own.map(str::to_owned),
        };
        let expected = [
            difference("action.body", "1", "none", None),
            difference("action.url", "https://a", "https://b", None),
            difference("cron_schedule", "0 9 * * *", "0 10 * * *", Some("0 11 * * *")),
        ];
        assert_eq!(differences(&seen, &now, &own), expected);
    }
}
