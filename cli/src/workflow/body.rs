//! The fields of a workflow as options.

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Map, Value, json};

use crate::times::Instant;

/// The fields of a workflow. Only those that are sent change.
#[derive(Args, Debug, Default)]
pub(crate) struct Fields {
    /// When it is due: five fields, "0 9 * * MON-FRI", or a macro, @daily.
    #[arg(help_heading = "Fields", long, value_name = "CRON")]
    cron: Option<String>,
    /// An IANA name, Europe/Paris; UTC unless it is set.
    #[arg(help_heading = "Fields", long, value_name = "NAME")]
    timezone: Option<String>,
    /// For people.
    #[arg(help_heading = "Fields", long, value_name = "TEXT")]
    description: Option<String>,
    /// A label, owner=payroll; repeat it for further ones.
    #[arg(help_heading = "Fields", long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Its action writes this line to the app's log.
    #[arg(help_heading = "Fields", long, value_name = "MESSAGE", conflicts_with_all = ["target", "method", "body", "header"])]
    log: Option<String>,
    /// Its action sends a request to this address.
    #[arg(help_heading = "Fields", long = "target", value_name = "URL")]
    target: Option<String>,
    /// The method of the request; POST unless it is set.
    #[arg(help_heading = "Fields", long, value_name = "METHOD", requires = "target")]
    method: Option<String>,
    /// The body of the request, JSON; the call itself unless it is set.
    #[arg(help_heading = "Fields", long, value_name = "JSON", requires = "target")]
    body: Option<String>,
    /// A header of the request, name=value; a value like ${secret:token} is a secret of the team.
    #[arg(help_heading = "Fields", long, value_name = "NAME=VALUE", requires = "target")]
    header: Vec<String>,
    /// An input of each run, month=May; JSON values are read as such.
    #[arg(help_heading = "Fields", long, value_name = "NAME=VALUE")]
    input: Vec<String>,
    /// No time before this one is due.
    #[arg(help_heading = "Fields", long, value_name = "TIME")]
    starts_at: Option<Instant>,
    /// No time at or after this one is due.
    #[arg(help_heading = "Fields", long, value_name = "TIME")]
    ends_at: Option<Instant>,
    /// While a run has not ended: `skip`, `queue`, `queue_one`, `replace` or `concurrent`.
    #[arg(help_heading = "Fields", long, value_name = "POLICY")]
    overlap: Option<String>,
    /// Missed times run late: `none`, `skip` (only the newest) or `run_all`.
    #[arg(help_heading = "Fields", long, value_name = "POLICY")]
    catch_up: Option<String>,
    /// Another field, by its name in the API: `spread_secs=60`, or null for its default. Repeat it for further ones.
    #[arg(help_heading = "Fields", long, value_name = "FIELD=VALUE")]
    set: Vec<String>,
    /// How many attempts may fail before a run fails.
    #[arg(help_heading = "Fields", long, value_name = "N")]
    attempts: Option<i32>,
    /// How many seconds one attempt may take.
    #[arg(help_heading = "Fields", long, value_name = "SECONDS")]
    timeout: Option<i32>,
}

impl Fields {
    /// The fields of a new workflow, as the API reads them.
    ///
    /// # Errors
    /// Fails if a pair has no `=`, or if the body is no JSON.
    pub(crate) fn to_body(&self) -> anyhow::Result<Map<String, Value>> {
        self.to_change(&Value::Null)
    }

    /// The fields of a change of a workflow that exists. Labels, inputs and headers are added to those that it has, and its
    /// request keeps what is not named: the values of headers cannot be read, so a user could not name them again.
    ///
    /// # Errors
    /// Fails if a pair has no `=`, or if the body is no JSON.
    pub(crate) fn to_change(&self, before: &Value) -> anyhow::Result<Map<String, Value>> {
        let time = |time: Option<Instant>| time.map(|time| json!(time.to_string()));
        let named = [
            ("cron_schedule", self.cron.as_ref().map(|cron| json!(cron))),
            ("timezone", self.timezone.as_ref().map(|timezone| json!(timezone))),
            ("description", self.description.as_ref().map(|text| json!(text))),
            ("action", self.action(&before["action"])?),
            ("starts_at", time(self.starts_at)),
            ("ends_at", time(self.ends_at)),
            ("overlap_policy", self.overlap.as_ref().map(|policy| json!(policy))),
            ("catch_up_policy", self.catch_up.as_ref().map(|policy| json!(policy))),
            ("max_attempts", self.attempts.map(|attempts| json!(attempts))),
            ("timeout_secs", self.timeout.map(|seconds| json!(seconds))),
            ("labels", add_members(&before["labels"], parse_texts(&self.label)?)),
            ("starting_inputs", add_members(&before["starting_inputs"], parse_pairs(&self.input)?)),
        ];
        let mut body: Map<String, Value> =
            named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        body.extend(parse_pairs(&self.set)?);
        Ok(body)
    }

    fn action(&self, before: &Value) -> anyhow::Result<Option<Value>> {
        if let Some(message) = &self.log {
            return Ok(Some(json!({"type": "log", "message": message})));
        }
        let Some(url) = &self.target else { return Ok(None) };
        let is_request = before["type"] == "http";
        let mut action = if is_request { before.clone() } else { json!({"type": "http", "method": "POST"}) };
        action["url"] = json!(url);
        if let Some(method) = &self.method {
            action["method"] = json!(method);
        }
        if let Some(body) = &self.body {
            action["body"] = serde_json::from_str(body).context("--body is no JSON: quote it for the shell")?;
        }
        if let Some(headers) = add_members(&before["headers"], parse_texts(&self.header)?) {
            action["headers"] = headers;
        }
        Ok(Some(action))
    }
}

/// An object with further members; `None`: there are none to add.
fn add_members(before: &Value, added: Map<String, Value>) -> Option<Value> {
    let mut all = before.as_object().cloned().unwrap_or_default();
    (!added.is_empty()).then(|| {
        all.extend(added);
        Value::Object(all)
    })
}

/// Parses pairs whose values may be JSON: `a=1` is a number, `a=b` a text.
///
/// # Errors
/// Fails if a pair has no `=`.
pub(crate) fn parse_pairs(pairs: &[String]) -> anyhow::Result<Map<String, Value>> {
    split(pairs)
        .map(|pair| pair.map(|(name, value)| (name, serde_json::from_str(value).unwrap_or_else(|_| json!(value)))))
        .collect()
}

fn parse_texts(pairs: &[String]) -> anyhow::Result<Map<String, Value>> {
    split(pairs).map(|pair| pair.map(|(name, value)| (name, json!(value)))).collect()
}

fn split(pairs: &[String]) -> impl Iterator<Item = anyhow::Result<(String, &str)>> {
    pairs.iter().map(|pair| match pair.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value)),
        _ => bail!("{pair} is no pair: write name=value"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_json_if_they_can_be() {
        let pairs = ["a=1", "b=May", "c={\"d\":null}", "e=x=y", "f="].map(str::to_owned);
        let expected = json!({"a": 1, "b": "May", "c": {"d": null}, "e": "x=y", "f": ""});
        assert_eq!(Value::Object(parse_pairs(&pairs).unwrap()), expected);
        assert!(parse_pairs(&["a".to_owned()]).is_err() && parse_pairs(&["=a".to_owned()]).is_err());
    }

    #[test]
    fn only_what_is_sent_is_in_the_body() {
        assert!(Fields::default().to_body().unwrap().is_empty());
        let fields = Fields {
            cron: Some("@daily".to_owned()),
            target: Some("https://a.example".to_owned()),
            header: vec!["authorization=${secret:token}".to_owned()],
            set: vec!["spread_secs=60".to_owned()],
            ..Fields::default()
        };
        let action = json!({"type": "http", "method": "POST", "url": "https://a.example",
            "headers": {"authorization": "${secret:token}"}});
        let expected = json!({"cron_schedule": "@daily", "action": action, "spread_secs": 60});
        assert_eq!(Value::Object(fields.to_body().unwrap()), expected);
    }
}
