//! Steps 1 and 7 of 7: the description of the API as OpenAPI 3.0.3, for generators that do not read 3.1, for example of Go and Rust.
//!
//! 3.0 has no type `null` and no keyword beside a `$ref`, and names scopes only for OAuth.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Keywords of 3.1 that 3.0 does not have.
const NEWER: [&str; 1] = ["propertyNames"];

/// Renders a description of OpenAPI 3.1 as 3.0.3.
pub(crate) fn render_as_3_0(mut api: Value) -> Value {
    api["openapi"] = json!("3.0.3");
    if let Some(license) = api["info"]["license"].as_object_mut() {
        license.remove("identifier");
    }
    name_answers(&mut api);
    let types = types_of_schemas(&api);
    render(&mut api, &types);
    api
}

/// The type of each named schema: what may be null must have one beside it.
fn types_of_schemas(api: &Value) -> BTreeMap<String, Value> {
    let schemas = api["components"]["schemas"].as_object().into_iter().flatten();
    schemas.map(|(name, schema)| (format!("#/components/schemas/{name}"), schema["type"].clone())).collect()
}

/// A generator takes one schema for all answers that are no refusals: the backfill of a dry run has another answer.
fn name_answers(api: &mut Value) {
    let mut named = Map::new();
    let paths = api["paths"].as_object_mut().into_iter().flat_map(Map::values_mut);
    for operation in paths.filter_map(Value::as_object_mut).flat_map(Map::values_mut) {
        let name = format!("{}_answer", operation["operationId"].as_str().unwrap_or_default());
        let answers = operation["responses"].as_object_mut().into_iter().flatten();
        let successful = answers.filter(|(status, _)| status.starts_with('2')).map(|(_, answer)| answer);
        let mut schemas: Vec<&mut Value> =
            successful.filter_map(|answer| answer.pointer_mut("/content/application~1json/schema")).collect();
        let mut forms: Vec<Value> = schemas.iter().map(|schema| (**schema).clone()).collect();
        forms.dedup();
        if forms.len() > 1 {
            schemas.iter_mut().for_each(|schema| **schema = json!({"$ref": format!("#/components/schemas/{name}")}));
            named.insert(name, json!({"oneOf": forms}));
        }
    }
    if let Some(schemas) = api["components"]["schemas"].as_object_mut() {
        schemas.append(&mut named);
    }
}

fn render(value: &mut Value, types: &BTreeMap<String, Value>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| render(item, types)),
        Value::Object(members) => {
            members.values_mut().for_each(|member| render(member, types));
            NEWER.iter().for_each(|keyword| drop(members.remove(*keyword)));
            remove_null_type(members);
            unwrap_nullable(members, types);
            wrap_reference(members);
            remove_scopes(members);
            keep_one_body(members);
        }
        _ => {}
    }
}

/// `["string", "null"]` is a string that is nullable.
fn remove_null_type(members: &mut Map<String, Value>) {
    let Some(types) = members.get("type").and_then(Value::as_array) else { return };
    let mut others = types.iter().filter(|kind| *kind != "null").cloned();
    if let (Some(only), None) = (others.next(), others.next()) {
        members.insert("type".to_owned(), only);
        members.insert("nullable".to_owned(), json!(true));
    }
}

/// One of something and null is something that is nullable.
fn unwrap_nullable(members: &mut Map<String, Value>, types: &BTreeMap<String, Value>) {
    let Some([named, null]) = members.get("oneOf").and_then(Value::as_array).map(Vec::as_slice) else { return };
    if null["type"] != "null" {
        return;
    }
    // A reference with a description is wrapped already.
    let reference = named["$ref"].as_str().or(named["allOf"][0]["$ref"].as_str());
    let kind = reference.and_then(|reference| types.get(reference)).cloned();
    let named = named.clone();
    members.remove("oneOf");
    members.insert("nullable".to_owned(), json!(true));
    members.extend(kind.map(|kind| ("type".to_owned(), kind)));
    match named {
        Value::Object(schema) if !schema.contains_key("$ref") => members.extend(schema),
        schema => drop(members.insert("allOf".to_owned(), json!([schema]))),
    }
}

/// A `$ref` has nothing beside it.
fn wrap_reference(members: &mut Map<String, Value>) {
    if members.len() > 1
        && members.get("$ref").is_some_and(Value::is_string)
        && let Some(reference) = members.remove("$ref")
    {
        members.insert("allOf".to_owned(), json!([{"$ref": reference}]));
    }
}

/// A generator takes one media type of a body.
fn keep_one_body(members: &mut Map<String, Value>) {
    let Some(content) = members.get_mut("requestBody").and_then(|body| body["content"].as_object_mut()) else { return };
    if content.contains_key("application/json") {
        content.retain(|kind, _| kind == "application/json");
    }
}

/// A key or a token has no scopes.
fn remove_scopes(members: &mut Map<String, Value>) {
    let Some(required) = members.get_mut("security").and_then(Value::as_array_mut) else { return };
    for scopes in required.iter_mut().filter_map(Value::as_object_mut).flat_map(Map::values_mut) {
        *scopes = json!([]);
    }
}
