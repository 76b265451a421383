//! The form of a workflow: its fields as text, the document of the API that they write, and the patch between two documents.

use std::collections::BTreeMap;

use api_types::raw::RawJson;
use api_types::workflows::WorkflowView;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::form::parse_time;
use crate::times;

/// The fields of the form. Their names are those of the API, so that a refusal marks them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Fields {
    pub(super) team_id: String,
    pub(super) name: String,
    pub(super) description: String,
    /// One a line: `owner:payroll`.
    pub(super) labels: String,
    pub(super) cron_schedule: String,
    pub(super) timezone: String,
    pub(super) starts_at: String,
    pub(super) ends_at: String,
    /// `true`, or not sent.
    pub(super) is_api: String,
    pub(super) overlap_policy: String,
    pub(super) max_concurrent: String,
    pub(super) catch_up_policy: String,
    pub(super) catch_up_window_secs: String,
    pub(super) spread_secs: String,
    pub(super) timeout_secs: String,
    pub(super) max_attempts: String,
    pub(super) on_lost: String,
    pub(super) pause_after_failures: String,
    #[serde(rename = "action.type")]
    pub(super) action_type: String,
    #[serde(rename = "action.message")]
    pub(super) message: String,
    #[serde(rename = "action.method")]
    pub(super) method: String,
    #[serde(rename = "action.url")]
    pub(super) url: String,
    /// JSON; empty: the call.
    #[serde(rename = "action.body")]
    pub(super) body: String,
    /// Existing headers first, then new ones.
    pub(super) header_name: Vec<String>,
    /// In the order of the names; empty: an existing value is kept.
    pub(super) header_value: Vec<String>,
    /// Names of existing headers to remove.
    pub(super) header_remove: Vec<String>,
    /// A JSON object.
    pub(super) starting_inputs: String,
    /// The version that the visitor has seen.
    pub(super) etag: String,
    /// What the form had when it was opened: a [`Seen`] as JSON.
    pub(super) seen: String,
}

/// What a form shows of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(super) struct Seen {
    /// Without headers.
    pub(super) document: Value,
    /// The names of the headers, whose values no page has.
    pub(super) headers: Vec<String>,
}

impl Fields {
    /// The form of a new workflow, with the defaults of the API.
    pub(super) fn of_new() -> Self {
        Self {
            overlap_policy: "skip".to_owned(),
            max_concurrent: "10".to_owned(),
            catch_up_policy: "skip".to_owned(),
            catch_up_window_secs: "86400".to_owned(),
            spread_secs: "0".to_owned(),
            timeout_secs: "300".to_owned(),
            max_attempts: "1".to_owned(),
            on_lost: "retry".to_owned(),
            action_type: "http".to_owned(),
            method: "POST".to_owned(),
            ..Self::default()
        }
    }

    /// The form of an existing workflow.
    pub(super) fn of_workflow(workflow: &WorkflowView) -> Self {
        let time = |time: Option<DateTime<Utc>>| time.map(|time| time.format("%Y-%m-%dT%H:%M:%S").to_string());
        let member = |name: &str| workflow.action[name].as_str().unwrap_or_default().to_owned();
        let headers = workflow.action["headers"].as_object();
        let labels: Vec<_> = workflow.labels.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        Self {
            name: workflow.name.clone(),
            description: workflow.description.clone().unwrap_or_default(),
            labels: labels.join("\n"),
            cron_schedule: workflow.cron_schedule.clone().unwrap_or_default(),
            timezone: workflow.timezone.clone().unwrap_or_default(),
            starts_at: time(workflow.starts_at).unwrap_or_default(),
            ends_at: time(workflow.ends_at).unwrap_or_default(),
            is_api: if workflow.is_api { "true".to_owned() } else { String::new() },
            overlap_policy: code(&workflow.overlap_policy),
            max_concurrent: workflow.max_concurrent.to_string(),
            catch_up_policy: code(&workflow.catch_up_policy),
            catch_up_window_secs: workflow.catch_up_window_secs.to_string(),
            spread_secs: workflow.spread_secs.to_string(),
            timeout_secs: workflow.timeout_secs.to_string(),
            max_attempts: workflow.max_attempts.to_string(),
            on_lost: code(&workflow.on_lost),
            pause_after_failures: workflow.pause_after_failures.map(|count| count.to_string()).unwrap_or_default(),
            action_type: member("type"),
            message: member("message"),
            method: member("method"),
            url: member("url"),
            body: pretty(&workflow.action["body"]),
            header_name: headers.into_iter().flatten().map(|(name, _)| name.clone()).collect(),
            starting_inputs: pretty(&workflow.starting_inputs.as_ref().map_or(Value::Null, RawJson::to_value)),
            etag: format!("\"{}\"", workflow.version),
            ..Self::default()
        }
    }

    /// What the form shows now.
    pub(super) fn shown(&self) -> Result<Seen, Failure> {
        Ok(Seen { document: self.document()?, headers: self.header_name.clone() })
    }

    /// The document that the fields write, without headers; null for what is empty.
    fn document(&self) -> Result<Value, Failure> {
        let text = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        Ok(json!({
            "name": self.name.trim(),
            "description": text(&self.description.replace("\r\n", "\n")),
            "labels": self.label_map()?,
            "cron_schedule": text(&self.cron_schedule),
            "timezone": text(&self.timezone),
            "starts_at": parse_time("starts_at", &self.starts_at)?.map(|time| times::for_machines(&time)),
            "ends_at": parse_time("ends_at", &self.ends_at)?.map(|time| times::for_machines(&time)),
            "is_api": self.is_api == "true",
            "overlap_policy": text(&self.overlap_policy),
            "max_concurrent": number("max_concurrent", &self.max_concurrent)?,
            "catch_up_policy": text(&self.catch_up_policy),
            "catch_up_window_secs": number("catch_up_window_secs", &self.catch_up_window_secs)?,
            "spread_secs": number("spread_secs", &self.spread_secs)?,
            "timeout_secs": number("timeout_secs", &self.timeout_secs)?,
            "max_attempts": number("max_attempts", &self.max_attempts)?,
            "on_lost": text(&self.on_lost),
            "pause_after_failures": number("pause_after_failures", &self.pause_after_failures)?,
            "starting_inputs": parse_json("starting_inputs", &self.starting_inputs)?.unwrap_or_else(|| json!({})),
            "action": self.action()?,
        }))
    }

    fn action(&self) -> Result<Value, Failure> {
        if self.action_type == "log" {
            return Ok(json!({ "type": "log", "message": self.message.replace("\r\n", "\n") }));
        }
        let mut action = json!({ "type": "http", "method": self.method, "url": self.url.trim() });
        if let Some(body) = parse_json("action.body", &self.body)? {
            action["body"] = body;
        }
        Ok(action)
    }

    fn label_map(&self) -> Result<BTreeMap<&str, &str>, Failure> {
        let refused =
            |line: &str| Failure::of_field("labels", &format!("a label is a name, a colon and a value: {line}"));
        let lines = self.labels.lines().map(str::trim).filter(|line| !line.is_empty());
        lines
            .map(|line| {
                line.split_once(':').map(|(name, value)| (name.trim(), value.trim())).ok_or_else(|| refused(line))
            })
            .collect()
    }

    /// The headers that the form writes: null for one to remove. An empty value keeps an existing header.
    fn header_changes(&self, existing: &[String]) -> Map<String, Value> {
        let mut changes = Map::new();
        for (name, value) in self.header_name.iter().zip(&self.header_value) {
            let name = name.trim();
            let is_kept = value.is_empty() && existing.iter().any(|existing| existing == name);
            if !name.is_empty() && !is_kept {
                changes.insert(name.to_owned(), json!(value));
            }
        }
        changes.extend(self.header_remove.iter().map(|name| (name.clone(), Value::Null)));
        changes
    }

    /// The body of a request that creates a workflow.
    pub(super) fn body_of_new(&self) -> Result<Value, Failure> {
        let mut document = self.document()?;
        document["team_id"] = json!(number("team_id", &self.team_id)?);
        let headers = self.header_changes(&[]);
        if self.action_type != "log" && !headers.is_empty() {
            document["action"]["headers"] = Value::Object(headers);
        }
        Ok(document)
    }

    /// What the form had when it was opened.
    pub(super) fn seen(&self) -> Result<Seen, Failure> {
        serde_json::from_str(&self.seen)
            .map_err(|_| Failure::of_request("the form is not complete: load the page again"))
    }

    /// The merge patch of what the visitor has changed: the other fields stay as another edit left them. `None`: nothing.
    pub(super) fn patch(&self, seen: &Seen) -> Result<Option<Value>, Failure> {
        let document = self.document()?;
        for (field, before, after) in [
            ("starting_inputs", &seen.document["starting_inputs"], &document["starting_inputs"]),
            ("action.body", &seen.document["action"]["body"], &document["action"]["body"]),
        ] {
            refuse_new_null(field, before, after)?;
        }
        let mut patch = merge_patch(&seen.document, &document);
        let headers = self.header_changes(&seen.headers);
        let headers = match &*self.action_type {
            "log" if seen.headers.is_empty() => None,
            "log" => Some(Value::Null),
            _ => Some(Value::Object(headers)).filter(|headers| *headers != json!({})),
        };
        if let Some(headers) = headers {
            patch.get_or_insert_with(|| json!({}))["action"]["headers"] = headers;
        }
        Ok(patch)
    }
}

/// The name of a value in the API.
fn code(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn pretty(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Object(members) if members.is_empty() => "{}".to_owned(),
        value => serde_json::to_string_pretty(value).unwrap_or_default(),
    }
}

fn number(field: &str, text: &str) -> Result<Option<i64>, Failure> {
    match text.trim() {
        "" => Ok(None),
        text => {
            text.parse().map(Some).map_err(|_| Failure::of_field(field, &format!("{field} must be a whole number")))
        }
    }
}

fn parse_json(field: &str, text: &str) -> Result<Option<Value>, Failure> {
    match text.trim() {
        "" => Ok(None),
        text => {
            let refused = |error| Failure::of_field(field, &format!("{field} must be JSON: {error}"));
            serde_json::from_str(text).map(Some).map_err(refused)
        }
    }
}

/// RFC 7396: the patch that makes `to` of `from`; `None` if they are equal.
pub(super) fn merge_patch(from: &Value, to: &Value) -> Option<Value> {
    if from == to {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (from, to) else { return Some(to.clone()) };
    let removed = old.keys().filter(|name| !new.contains_key(*name)).map(|name| (name.clone(), Value::Null));
    let written = new.iter().filter_map(|(name, value)| match old.get(name) {
        Some(old) => merge_patch(old, value).map(|patch| (name.clone(), patch)),
        None => Some((name.clone(), value.clone())),
    });
    Some(Value::Object(removed.chain(written).collect()))
}

/// Refuses a member that becomes null: in a merge patch a null removes it.
fn refuse_new_null(field: &str, before: &Value, after: &Value) -> Result<(), Failure> {
    let Value::Object(members) = after else { return Ok(()) };
    if before == after {
        return Ok(());
    }
    // The app replaces a marked secret completely, so it would lose the secret that such a null stands for.
    let is_mark = before.as_object().is_some_and(|before| before.keys().eq(["secret"]));
    let before = if is_mark { &Value::Null } else { before };
    for (name, value) in members {
        let old = before.get(name).unwrap_or(&Value::Null);
        if value.is_null() && before.get(name) != Some(value) {
            let detail =
                format!("this form cannot write null for {field}.{name}: leave it out, or write it by the API");
            return Err(Failure::of_field(field, &detail));
        }
        refuse_new_null(field, old, value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http() -> Fields {
        Fields {
            name: "payroll".into(),
            url: "https://a.example".into(),
            header_name: vec!["a".into(), "b".into()],
            ..Fields::of_new()
        }
    }

    fn patched(before: &Fields, after: &Fields) -> Option<Value> {
        after.patch(&before.shown().unwrap()).unwrap()
    }

    #[test]
    fn a_patch_has_only_what_changed() {
        let before = http();
        assert_eq!(patched(&before, &before), None);
        let after = Fields { cron_schedule: "0 9 * * *".into(), labels: "owner: pay\r\n\r\n".into(), ..before.clone() };
        assert_eq!(patched(&before, &after), Some(json!({"cron_schedule": "0 9 * * *", "labels": {"owner": "pay"}})));
        assert_eq!(patched(&after, &before), Some(json!({"cron_schedule": null, "labels": {"owner": null}})));
    }

    #[test]
    fn values_of_headers_are_kept_unless_replaced() {
        let before = http();
        let sent = |values: [&str; 3], removed: &[&str]| Fields {
            header_name: ["a", "b", "c"].map(str::to_owned).into(),
            header_value: values.map(str::to_owned).into(),
            header_remove: removed.iter().map(|name| (*name).to_owned()).collect(),
            ..before.clone()
        };
        assert_eq!(
            patched(&before, &sent(["", "2", "3"], &[])),
            Some(json!({"action": {"headers": {"b": "2", "c": "3"}}}))
        );
        assert_eq!(
            patched(&before, &sent(["", "", "3"], &["a"])),
            Some(json!({"action": {"headers": {"c": "3", "a": null}}}))
        );
    }

    #[test]
    fn another_type_removes_the_members_of_the_first() {
        let before = http();
        let after = Fields { action_type: "log".into(), message: "hello".into(), ..before.clone() };
        let expected =
            json!({"action": {"type": "log", "message": "hello", "method": null, "url": null, "headers": null}});
        assert_eq!(patched(&before, &after), Some(expected));
    }

    #[test]
    fn a_null_that_a_patch_cannot_write_is_refused() {
        let before = Fields { starting_inputs: r#"{"pin": {"secret": null}, "a": {"b": 1}}"#.into(), ..http() };
        let seen = before.shown().unwrap();
        let sent = |inputs: &str| Fields { starting_inputs: inputs.into(), ..before.clone() }.patch(&seen);
        let kept = sent(r#"{"pin": {"secret": null}, "a": {"b": 2}}"#).unwrap();
        assert_eq!(kept, Some(json!({"starting_inputs": {"a": {"b": 2}}})));
        assert!(sent(r#"{"pin": {"secret": null}, "a": {"b": null}}"#).is_err());
    }

    #[test]
    fn a_new_workflow_has_its_headers() {
        let mut fields = http();
        fields.header_value = vec!["1".into(), String::new()];
        fields.team_id = "3".into();
        let body = fields.body_of_new().unwrap();
        assert_eq!((&body["team_id"], &body["action"]["headers"]), (&json!(3), &json!({"a": "1", "b": ""})));
    }
}
