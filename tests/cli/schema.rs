//! The JSON Schema of cronbox/v1, for editors: made from the description of the API, and true for every example.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::{Person, data, variable};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The schema: a workflow is what the API takes, with a team in the place of its id, and the state in which it begins.
fn schema() -> Value {
    let text = std::fs::read_to_string(root().join("docs/openapi.json")).unwrap();
    let openapi: Value = serde_json::from_str(&text).unwrap();
    let all = openapi["components"]["schemas"].as_object().unwrap();
    let mut workflow = all["WorkflowBody"].clone();
    let team = json!({"type": "string", "description": "The name of the team that owns it."});
    workflow["properties"]["team"] = team.clone();
    let paused = "Whether it is paused before it gets its schedule. One that has a schedule keeps its state.";
    workflow["properties"]["paused"] = json!({"type": "boolean", "description": paused});
    let previous = "The name from which cronbox apply renames it, if no workflow has its name yet. \
                    A schedules file of the app must not have it.";
    workflow["properties"]["previous_name"] = json!({"type": "string", "description": previous});
    let mut definitions = Map::new();
    copy_references(&workflow, all, &mut definitions);
    definitions.insert("Workflow".to_owned(), workflow);
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "cronbox/v1: workflows in a file",
        "type": "object",
        "required": ["workflows"],
        "additionalProperties": false,
        "properties": {
            "version": {"const": "cronbox/v1", "description": "The form of the file."},
            "owner": {"type": "string", "description": "The label owner of each workflow; --prune archives only what carries it."},
            "team": team,
            "workflows": {"type": "array", "items": {"$ref": "#/$defs/Workflow"}},
        },
        "$defs": definitions,
    });
    serde_json::from_str(&schema.to_string().replace("#/components/schemas/", "#/$defs/")).unwrap()
}

fn copy_references(value: &Value, all: &Map<String, Value>, copied: &mut Map<String, Value>) {
    match value {
        Value::Object(members) => {
            if let Some(name) = members.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next())
                && !copied.contains_key(name)
            {
                copied.insert(name.to_owned(), all[name].clone());
                copy_references(&all[name], all, copied);
            }
            members.values().for_each(|member| copy_references(member, all, copied));
        }
        Value::Array(items) => items.iter().for_each(|item| copy_references(item, all, copied)),
        _ => {}
    }
}

#[test]
fn the_schema_follows_the_api() {
    let path = root().join("docs/schemas/cronbox-v1.schema.json");
    let expected = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if variable("CRONBOX_UPDATE_CLI").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, expected).unwrap();
        return;
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == expected, "run CRONBOX_UPDATE_CLI=1 cargo test --workspace --test cli -- the_schema");
}

/// Validates with the library of the API's validators.
async fn is_valid(person: &Person, yaml: &str) -> bool {
    const CHECK: &str = "import json, sys, jsonschema
schema, text = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))
errors = list(jsonschema.Draft202012Validator(schema).iter_errors(text))
print([error.message[:200] for error in errors]); sys.exit(bool(errors))";
    let document: Value = serde_saphyr::from_str(yaml).unwrap();
    let file = person.write("document.json", &document.to_string());
    let schema = root().join("docs/schemas/cronbox-v1.schema.json");
    let python = local::config::target_folder().join("venv/bin/python");
    let mut command = tokio::process::Command::new(python);
    command.arg("-c").arg(CHECK).arg(schema).arg(file);
    let output = command.output().await.unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    output.status.success()
}

#[tokio::test]
async fn examples_and_imports_are_valid() {
    let person = Person::without_key();
    let example = std::fs::read_to_string(root().join("examples/schedules.yaml")).unwrap();
    assert!(is_valid(&person, &example).await);
    let imported = person.run(&["import", "crontab", &data("crontab.txt"), "--owner", "web01", "--team", "demo"]).await;
    assert!(is_valid(&person, &imported.out).await);
    let renamed = "workflows:\n  - name: a\n    previous_name: b\n    action: {type: log, message: m}\n";
    assert!(is_valid(&person, renamed).await);
    for wrong in [
        "workflows:\n  - name: a\n",
        "workflows:\n  - name: a\n    colour: red\n    action: {type: log, message: m}\n",
        "version: cronbox/v2\nworkflows: []\n",
        "workflows:\n  - name: a\n    overlap_policy: never\n    action: {type: log, message: m}\n",
    ] {
        assert!(!is_valid(&person, wrong).await, "{wrong}");
    }
}
