//! `/runs/bulk`: what retrying or cancelling a selection would do, and the request that does it.

use api_types::bulk::BulkView;
use api_types::runs::RunDetailView;
use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::act::{Act, show_next};
use crate::answer::show_page;
use crate::api::{Api, Console};
use crate::failure::Failure;
use crate::form::whole_number;
use crate::frame::{Frame, Menu};
use crate::times;

pub(super) fn routes() -> Router<Console> {
    Router::new().route("/runs/bulk", get(show).post(start))
}

/// Which runs, and what to do with them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Selection {
    verb: String,
    id: Vec<String>,
    /// `true`: all that match the filters, whichever rows are selected.
    all: String,
    state: Vec<String>,
    /// A bulk operation does not select by it.
    trigger: String,
    workflow_id: String,
    team_id: String,
    from: String,
    to: String,
    /// How many the preview has counted. Not sent with `cancel`, because runs end.
    total: String,
}

/// What a dry run answers.
#[derive(Deserialize)]
struct DryRun {
    changes: Vec<Change>,
}

#[derive(Deserialize)]
struct Change {
    after: Option<After>,
}

/// What the operation would be.
#[derive(Default, Deserialize)]
#[serde(default)]
struct After {
    total: i64,
    /// `run:<id>`.
    sample: Vec<String>,
}

#[derive(Template)]
#[template(path = "runs_bulk.html")]
struct BulkPage {
    frame: Frame,
    selection: Selection,
    total: i64,
    /// The first runs.
    sample: Vec<String>,
    /// Why nothing would be done.
    refusal: Option<String>,
    fields: Vec<(&'static str, String)>,
    /// Whether only failures are selected, because no state was chosen.
    is_of_failures: bool,
}

async fn show(api: Api, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let selection = read(query.as_deref().unwrap_or_default())?;
    let selection = with_team(&api, selection).await?.until_now(&api);
    let title = if selection.verb == "cancel" { "Cancel runs" } else { "Retry runs" };
    let frame = Frame::read(&api, Menu::Runs, title, None).await?;
    let (after, refusal) = match dry_run(&api, &selection).await {
        Ok(after) => (after, None),
        Err(Failure::Refused(_, problem)) if problem.code == "nothing_selected" => {
            (After::default(), Some(nothing_selected(&selection).to_owned()))
        }
        Err(Failure::Refused(_, problem)) if problem.field.as_deref() == Some("team_id") => {
            (After::default(), Some("An operation belongs to one team. Filter the list by a team first.".to_owned()))
        }
        Err(failure) => return Err(failure),
    };
    let page = BulkPage {
        frame,
        total: after.total,
        sample: after.sample.iter().filter_map(|item| item.strip_prefix("run:")).map(str::to_owned).collect(),
        refusal,
        fields: selection.fields(after.total),
        is_of_failures: selection.is_of_failures(),
        selection,
    };
    show_page(&page)
}

async fn start(api: Api, form: String) -> Act {
    let selection = read(&form)?;
    let mut body = selection.body()?;
    body["expected_total"] = json!(whole_number::<i64>("total", &selection.total)?);
    let created: BulkView = api.post_json("/bulk", body).await?.json()?;
    Ok(show_next(&format!("/bulk/{}", created.id), "bulk"))
}

fn read(text: &str) -> Result<Selection, Failure> {
    let selection: Selection = serde_html_form::from_str(text)
        .map_err(|_| Failure::of_field("id", "the selection cannot be read: select the runs again"))?;
    if selection.is_all() && !selection.trigger.is_empty() {
        return Err(Failure::of_field("trigger", "all that match cannot be selected by their trigger: select rows"));
    }
    match selection.verb.as_str() {
        "retry" | "cancel" if selection.is_all() || !selection.id.is_empty() => Ok(selection),
        "retry" | "cancel" => Err(Failure::of_field("id", "no run is selected: select runs in the list")),
        _ => Err(Failure::of_field("verb", "verb must be retry or cancel")),
    }
}

/// Adds the team of the first selected run, for a visitor of several teams.
async fn with_team(api: &Api, mut selection: Selection) -> Result<Selection, Failure> {
    if let (true, false, Some(first)) = (selection.team_id.is_empty(), selection.is_all(), selection.id.first()) {
        let run: RunDetailView = api.get(&format!("/runs/{first}")).await?;
        selection.team_id = run.team_id.to_string();
    }
    Ok(selection)
}

async fn dry_run(api: &Api, selection: &Selection) -> Result<After, Failure> {
    let found: DryRun = api.post_json("/bulk?dry_run=true", selection.body()?).await?.json()?;
    Ok(found.changes.into_iter().find_map(|change| change.after).unwrap_or_default())
}

fn nothing_selected(selection: &Selection) -> &'static str {
    if selection.verb == "cancel" {
        "None of these runs can be cancelled: all of them have ended."
    } else {
        "None of these runs can be retried: they have not ended, none of them failed, or what failed has succeeded since."
    }
}

impl BulkPage {
    /// How many runs, in words.
    fn runs(&self) -> String {
        format!("{} {}", self.total, if self.total == 1 { "run" } else { "runs" })
    }
}

impl Selection {
    fn is_all(&self) -> bool {
        self.all == "true"
    }

    /// Whether the API selects only failures, because neither states nor runs are chosen.
    fn is_of_failures(&self) -> bool {
        self.is_all() && self.verb == "retry" && self.state.is_empty()
    }

    /// All that match are those up to now: what comes while the page is shown is not part of them.
    fn until_now(mut self, api: &Api) -> Self {
        if self.is_all() && self.to.is_empty() {
            self.to = times::end_of_selection(&api.now());
        }
        self
    }

    /// The request to the API.
    fn body(&self) -> Result<Value, Failure> {
        let mut body = json!({ "verb": self.verb, "filter": {} });
        if !self.team_id.is_empty() {
            body["team_id"] = number("team_id", &self.team_id)?;
        }
        let filter = &mut body["filter"];
        if !self.is_all() {
            filter["run_ids"] = json!(self.id);
            return Ok(body);
        }
        if !self.state.is_empty() {
            filter["run_states"] = json!(self.state);
        }
        if !self.workflow_id.is_empty() {
            filter["workflow_ids"] = json!([number("workflow_id", &self.workflow_id)?]);
        }
        for (name, value) in [("from", &self.from), ("to", &self.to)] {
            if !value.is_empty() {
                filter[name] = json!(value);
            }
        }
        Ok(body)
    }

    /// What the form that starts it sends, if so many runs are shown.
    fn fields(&self, total: i64) -> Vec<(&'static str, String)> {
        let many = self.id.iter().map(|id| ("id", id.clone()));
        let states = self.state.iter().map(|state| ("state", state.clone()));
        let others = [
            ("verb", &self.verb),
            ("all", &self.all),
            ("workflow_id", &self.workflow_id),
            ("team_id", &self.team_id),
            ("from", &self.from),
            ("to", &self.to),
        ];
        let others = others.into_iter().map(|(name, value)| (name, value.clone()));
        let total = (self.verb != "cancel").then(|| ("total", total.to_string()));
        many.chain(states).chain(others).chain(total).filter(|(_, value)| !value.is_empty()).collect()
    }
}

fn number(field: &str, text: &str) -> Result<Value, Failure> {
    let number: Option<i64> = text.trim().parse().ok();
    number.map(Value::from).ok_or_else(|| Failure::of_field(field, &format!("{field} must be a number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body_of(text: &str) -> Value {
        read(text).unwrap().body().unwrap()
    }

    #[test]
    fn selected_rows_count_only_without_all() {
        assert_eq!(
            body_of("verb=cancel&id=a&id=b&state=running&team_id=3"),
            json!({"verb": "cancel", "team_id": 3, "filter": {"run_ids": ["a", "b"]}})
        );
        assert_eq!(
            body_of("verb=cancel&id=a&all=true&state=running&state=queued&workflow_id=7"),
            json!({"verb": "cancel", "filter": {"run_states": ["running", "queued"], "workflow_ids": [7]}})
        );
        assert!(read("verb=cancel").is_err() && read("verb=delete&id=a").is_err());
        // More runs than those of the list would be selected.
        assert!(read("verb=cancel&all=true&trigger=retry").is_err() && read("verb=cancel&id=a&trigger=retry").is_ok());
    }

    /// The API repeats only failures if neither states nor runs are named.
    #[test]
    fn a_retry_of_all_leaves_states_to_the_api() {
        assert_eq!(body_of("verb=retry&all=true")["filter"], json!({}));
        assert!(read("verb=retry&all=true").unwrap().is_of_failures());
        assert_eq!(body_of("verb=retry&all=true&state=cancelled")["filter"]["run_states"], json!(["cancelled"]));
        assert!(!read("verb=retry&all=true&state=cancelled").unwrap().is_of_failures());
    }
}
