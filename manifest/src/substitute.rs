//! `${env:NAME}` in the texts of a file. `${secret:name}` stays: the service resolves it when a request is sent.
//!
//! `$${env:` is the text `${env:`, and `$$${env:` is `$${env:`: of several signs before `{env:` one is removed. So each text can
//! be written, and what is exported or imported names no variable of its reader.

use serde_json::Value;

const BEGIN: &str = "${env:";
const ESCAPED: &str = "$${env:";

/// Replaces the variables in all texts of a value, and removes the escapes.
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

/// Escapes all texts of a value, so that a file with this value has them as they are.
pub fn escape_variables(value: &mut Value) {
    match value {
        Value::String(text) if text.contains(BEGIN) => *text = text.replace(BEGIN, ESCAPED),
        Value::Array(items) => items.iter_mut().for_each(escape_variables),
        Value::Object(members) => members.values_mut().for_each(escape_variables),
        _ => {}
    }
}

fn replaced(text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        if let Some(unescaped) = before.strip_suffix('$') {
            result.push_str(unescaped);
            result.push_str(BEGIN);
            rest = after;
            continue;
        }
        let (name, behind) =
            after.split_once('}').ok_or("${env: has no end: write ${env:NAME}, or $${env: for the text")?;
        result.push_str(before);
        result.push_str(&environment(name).ok_or_else(|| format!("the environment has no variable {name}"))?);
        rest = behind;
    }
    result.push_str(rest);
    Ok(result)
}
