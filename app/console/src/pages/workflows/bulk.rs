//! `/workflows/bulk`, `/bulk`: a verb for many workflows, or for their runs: first how many, then its progress.

mod operation;
mod selection;

use api_types::bulk::{BulkVerb, BulkView};
use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::act::{self, Act};
use crate::answer::show_page;
use crate::api::{Api, Console};
use crate::failure::Failure;
use crate::form::{Sent, parse_time};
use crate::frame::{Frame, Menu};
use crate::{times, words};
use selection::{Fields, Selected, Selection};

pub(super) fn routes() -> Router<Console> {
    Router::new()
        .route("/workflows/bulk", get(show).post(lead_to_preview))
        .route("/workflows/bulk/start", post(start))
        .merge(operation::routes())
}

/// What an operation of one team would do.
struct Preview {
    team_id: i64,
    total: i64,
    sample: Vec<Item>,
    /// Why it is refused, if it is.
    refusal: Option<String>,
}

/// One of the first items.
struct Item {
    href: String,
    words: String,
}

/// The answer of a dry run.
#[derive(Deserialize)]
struct Changes {
    changes: Vec<Change>,
}

#[derive(Deserialize)]
struct Change {
    subject: String,
    after: Option<Value>,
}

#[derive(Template)]
#[template(path = "bulk_preview.html")]
struct PreviewPage {
    frame: Frame,
    fields: Fields,
    verb: BulkVerb,
    previews: Vec<Preview>,
    total: i64,
    /// Those of all fields that select, as the form sends them again.
    hidden: Vec<(&'static str, String)>,
    /// What the visitor sees: when this was counted, and how many are selected.
    seen: Vec<(&'static str, String)>,
}

impl Preview {
    fn has_more(&self) -> bool {
        i64::try_from(self.sample.len()).is_ok_and(|named| named < self.total)
    }
}

impl PreviewPage {
    fn is_of_runs(&self) -> bool {
        selection::is_of_runs(self.verb)
    }

    fn is_refused(&self) -> bool {
        self.previews.iter().any(|preview| preview.refusal.is_some())
    }

    fn noun(&self, count: &i64) -> &'static str {
        match (self.is_of_runs(), count) {
            (true, 1) => "run",
            (true, _) => "runs",
            (false, 1) => "workflow",
            (false, _) => "workflows",
        }
    }

    /// What the verb does, in a sentence.
    fn sentence(&self) -> &'static str {
        match self.verb {
            BulkVerb::Pause => {
                "No time of these workflows runs until they are resumed. Those that are paused already keep their pause."
            }
            BulkVerb::Resume => "The next due times of these workflows run.",
            BulkVerb::Archive => "These workflows never run again. This cannot be undone. Their history remains.",
            BulkVerb::Delete => "These archived workflows are deleted with their history. This cannot be undone.",
            BulkVerb::Fire => "Each of these workflows starts one run now. Their schedules go on as before.",
            BulkVerb::Retry => {
                "Each of these runs that failed is repeated by a new run. What has succeeded since is left out."
            }
            BulkVerb::Cancel => "The end of each of these runs is requested.",
        }
    }
}

/// The list sends its selection; the preview has it in its address, so that it can be loaded again.
async fn lead_to_preview(_: Api, Sent(fields): Sent<Fields>) -> Act {
    if fields.id.is_empty() && fields.all != "true" {
        return Err(Failure::of_request("nothing is selected: select workflows first").into());
    }
    Ok(act::lead_to(&fields.path_of_preview()))
}

async fn show(api: Api, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let fields: Fields = serde_html_form::from_str(query.as_deref().unwrap_or_default())
        .map_err(|error| Failure::of_request(&format!("the selection is not read: {error}")))?;
    let fields = Fields { at: times::to_the_millisecond(&api.now()), ..fields };
    let verb = fields.parse_verb()?;
    let title = format!("Bulk: {}", words::bulk_verb(&verb));
    let frame = Frame::read(&api, Menu::Workflows, title, None).await?;
    if !frame.may_edit() {
        return Err(Failure::of_request("you may only read: ask for a key or a role with the scope edit"));
    }
    let Selection { teams, names } = selection::select(&api, &frame.me, &fields, verb).await?;
    let mut previews = Vec::with_capacity(teams.len());
    for selected in teams {
        previews.push(preview(&api, verb, selected, &names).await?);
    }
    let total = previews.iter().map(|preview| preview.total).sum();
    let (hidden, seen) = (fields.selecting(), list_seen(verb, &fields, &previews));
    show_page(&PreviewPage { frame, verb, previews, total, hidden, seen, fields })
}

/// What the form sends of the preview. Runs end while the page is shown, so the number of those to cancel only falls.
fn list_seen(verb: BulkVerb, fields: &Fields, previews: &[Preview]) -> Vec<(&'static str, String)> {
    let counted = previews.iter().filter(|_| verb != BulkVerb::Cancel);
    let totals = counted.map(|preview| ("total", format!("{}@{}", preview.total, preview.team_id)));
    [("at", fields.at.clone())].into_iter().chain(totals).collect()
}

async fn preview(api: &Api, verb: BulkVerb, selected: Selected, names: &selection::Names) -> Result<Preview, Failure> {
    let team_id = selected.team_id;
    let body = json!({ "verb": verb, "team_id": team_id, "filter": selected.filter });
    match api.post_json("/bulk?dry_run=true", body).await {
        Ok(answer) => {
            let changes: Changes = answer.json()?;
            let after = changes.changes.into_iter().find(|change| change.subject.starts_with("bulk:"));
            let after = after.and_then(|change| change.after).unwrap_or_default();
            let sample = after["sample"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let sample = sample.map(|item| Item::of(item, names)).collect();
            Ok(Preview { team_id, total: after["total"].as_i64().unwrap_or(0), sample, refusal: None })
        }
        Err(Failure::Refused(status, problem)) if status.is_client_error() => {
            Ok(Preview { team_id, total: 0, sample: Vec::new(), refusal: Some(problem.detail) })
        }
        Err(failure) => Err(failure),
    }
}

impl Item {
    /// Of `workflow:12` or `run:<id>`.
    fn of(item: &str, names: &selection::Names) -> Self {
        match item.split_once(':') {
            Some(("workflow", id)) => {
                let name = id.parse().ok().and_then(|id: i64| names.get(&id)).cloned();
                Self { href: format!("/workflows/{id}"), words: name.unwrap_or_else(|| format!("workflow {id}")) }
            }
            Some(("run", id)) => Self { href: format!("/runs/{id}"), words: format!("run {id}") },
            _ => Self { href: "/workflows".to_owned(), words: item.to_owned() },
        }
    }
}

async fn start(api: Api, Sent(fields): Sent<Fields>) -> Act {
    let verb = fields.parse_verb()?;
    let me = api.get("/me").await?;
    let Selection { teams, .. } = selection::select(&api, &me, &fields, verb).await?;
    if !fields.total.is_empty() && fields.total.len() != teams.len() {
        return Err(Failure::of_changed_selection().into());
    }
    let totals: Vec<_> = teams.iter().map(|team| fields.expected_total(team.team_id)).collect::<Result<_, _>>()?;
    let pause = verb == BulkVerb::Pause;
    let reason = Some(fields.reason.trim()).filter(|reason| pause && !reason.is_empty());
    let until = parse_time("until", &fields.until)?.filter(|_| pause);
    let mut started: Vec<BulkView> = Vec::with_capacity(teams.len());
    for (Selected { team_id, filter }, total) in teams.into_iter().zip(totals) {
        let body = json!({
            "verb": verb, "team_id": team_id, "filter": filter, "reason": reason, "until": until, "expected_total": total,
        });
        match api.post_json("/bulk", body).await {
            Ok(answer) => started.push(answer.json()?),
            Err(failure) => return Err(after_others(failure, &started).into()),
        }
    }
    match &started[..] {
        [only] => Ok(act::show_next(&format!("/bulk/{}", only.id), "bulk")),
        _ => Ok(act::show_next("/bulk", "bulk")),
    }
}

/// Says which teams' operations were started before one was refused.
fn after_others(failure: Failure, started: &[BulkView]) -> Failure {
    match failure {
        Failure::Refused(status, mut problem) if !started.is_empty() => {
            let teams: Vec<_> = started.iter().map(|operation| operation.team_id.to_string()).collect();
            problem.detail =
                format!("{} (the operations of the teams {} were started)", problem.detail, teams.join(", "));
            Failure::Refused(status, problem)
        }
        failure => failure,
    }
}
