//! Steps 1 and 7 of 7: completes the description of the API, so that clients can be generated from it.
//!
//! `utoipa` derives it from the handlers, and leaves out what validators and generators require: the description of an answer, the
//! summary of a verb, the names of items, the fields of a PATCH.

use axum::http::StatusCode;
use serde_json::{Map, Value, json};

use crate::api::deprecation::{DEPRECATED, Deprecated};
use crate::api::request::problem_codes::PROBLEM_CODES;

/// The operations with the fields of another body, each of them optional.
const PATCHES: [(&str, &str, &str); 2] =
    [("patch_workflow", "WorkflowBody", "WorkflowPatch"), ("patch_schedule", "ScheduleBody", "SchedulePatch")];
/// What only a creation may name.
const ONLY_NEW: &str = "team_id";

/// Completes a description.
pub(crate) fn complete(mut api: Value) -> Value {
    api["servers"] = json!([{"url": "/", "description": "the server of this description"}]);
    if let Some(schemas) = api["components"]["schemas"].as_object_mut() {
        name_items(schemas);
        list_codes(schemas);
        name_forms(schemas);
        PATCHES.iter().for_each(|(_, body, patch)| add_patch(schemas, body, patch));
    }
    for path in api["paths"].as_object_mut().into_iter().flat_map(Map::values_mut) {
        for operation in objects(path) {
            add_summary(operation);
            describe_responses(operation);
            remove_null_parameters(operation);
            make_body_optional(operation);
            name_patch(operation);
        }
    }
    for deprecated in &DEPRECATED {
        mark(&mut api["paths"][deprecated.path][deprecated.method], deprecated);
    }
    api
}

fn mark(operation: &mut Value, deprecated: &Deprecated) {
    let until = format!("Deprecated since {}, and gone at the earliest on {}", deprecated.since, deprecated.sunset);
    operation["deprecated"] = json!(true);
    operation["description"] = json!(format!("{until}: use `{}`.", deprecated.instead));
}

/// The members of an object; none if it is no object.
fn objects(value: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    value.as_object_mut().into_iter().flat_map(Map::values_mut).filter_map(Value::as_object_mut)
}

/// The items of a page have the name of their schema, so that a generator makes one class of them.
fn name_items(schemas: &mut Map<String, Value>) {
    for (name, page) in schemas.iter_mut() {
        if let Some(item) = name.strip_prefix("Page_") {
            page["properties"]["items"]["items"] = reference(item);
        }
    }
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

/// The forms of an action are references and nothing else, as the discriminator wants them.
fn name_forms(schemas: &mut Map<String, Value>) {
    for schema in schemas.values_mut().filter(|schema| schema["discriminator"].is_object()) {
        for form in schema["oneOf"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            form.remove("description");
        }
    }
}

fn list_codes(schemas: &mut Map<String, Value>) {
    let codes = json!({"type": "string", "description": "The code of a problem: docs/errors.md.", "enum": PROBLEM_CODES.as_slice()});
    schemas.insert("ProblemCode".to_owned(), codes);
    if let Some(problem) = schemas.get_mut("Problem") {
        problem["properties"]["code"] = reference("ProblemCode");
    }
    if let Some(problem) = schemas.get_mut("FieldProblem") {
        problem["properties"]["code"] = reference("ProblemCode");
    }
}

/// A PATCH may have each field of the body, and needs none.
fn add_patch(schemas: &mut Map<String, Value>, body: &str, name: &str) {
    let Some(mut patch) = schemas.get(body).cloned() else { return };
    patch["description"] = json!("The fields to change; the others stay as they are.");
    if let Some(members) = patch.as_object_mut() {
        members.remove("required");
    }
    if let Some(properties) = patch["properties"].as_object_mut() {
        properties.remove(ONLY_NEW);
    }
    schemas.insert(name.to_owned(), patch);
}

/// The first sentence is the summary, and the others are the description.
fn add_summary(operation: &mut Map<String, Value>) {
    let texts = ["summary", "description"].map(|name| operation.remove(name).unwrap_or_default());
    let texts: Vec<&str> = texts.iter().filter_map(Value::as_str).collect();
    let text = texts.join(" ").replace('\n', " ");
    let (summary, rest) = text.split_once(". ").unwrap_or((text.trim_end_matches('.'), ""));
    operation.insert("summary".to_owned(), json!(format!("{summary}.")));
    if !rest.is_empty() {
        operation.insert("description".to_owned(), json!(rest));
    }
}

/// Each response needs a description: the reason phrase of its status, unless it has one.
fn describe_responses(operation: &mut Map<String, Value>) {
    let Some(responses) = operation.get_mut("responses").and_then(Value::as_object_mut) else { return };
    for (status, response) in responses {
        let known = status.parse().ok().and_then(|code| StatusCode::from_u16(code).ok());
        let reason = known.and_then(|status| status.canonical_reason());
        let reason = reason.unwrap_or("The request is refused; `code` says why.");
        if let Some(members) = response.as_object_mut() {
            members.entry("description").or_insert_with(|| json!(reason));
        }
    }
}

/// A parameter may be absent, but it cannot be null.
fn remove_null_parameters(operation: &mut Map<String, Value>) {
    for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
        let kind = &mut parameter["schema"]["type"];
        if let Some([only, Value::String(null)]) = kind.as_array().map(Vec::as_slice)
            && null == "null"
        {
            *kind = only.clone();
        }
    }
}

/// A body that may be absent is not one that may be null.
fn make_body_optional(operation: &mut Map<String, Value>) {
    let Some(body) = operation.get_mut("requestBody") else { return };
    let schema = &mut body["content"]["application/json"]["schema"];
    let Some([named, null]) = schema["oneOf"].as_array().map(Vec::as_slice) else { return };
    if null["type"] == "null" {
        *schema = named.clone();
        body["required"] = json!(false);
    }
}

/// Both media types of a PATCH have the same fields.
fn name_patch(operation: &mut Map<String, Value>) {
    let id = operation.get("operationId").and_then(Value::as_str);
    let Some((.., patch)) = PATCHES.iter().find(|(operation, ..)| Some(*operation) == id) else { return };
    for content in objects(&mut operation["requestBody"]["content"]) {
        content.insert("schema".to_owned(), reference(patch));
    }
}
