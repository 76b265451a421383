//! `${env:NAME}` in the texts of a file. `${secret:name}` stays: the service resolves it when a request is sent.

use serde_json::Value;

const BEGIN: &str = "${env:";

/// Replaces the variables in all texts of a value.
pub(crate) fn replace_variables(value: &mut Value, environment: &dyn Fn(&str) -> Option<String>) -> Result<(), String> {
    match value {
        Value::String(text) if text.contains(BEGIN) => {
            *text = replaced(text, environment)?;
            Ok(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| replace_variables(item, environment)),
        Value::Object(members) => members.values_mut().try_for_each(|member| replace_variables(member, environment)),
        _ => Ok(()),
    }
}

fn replaced(text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (name, behind) = after.split_once('}').ok_or("${env: has no end: write ${env:NAME}")?;
        result.push_str(before);
        result.push_str(&environment(name).ok_or_else(|| format!("the environment has no variable {name}"))?);
        rest = behind;
    }
    result.push_str(rest);
    Ok(result)
}
