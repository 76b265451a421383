//! `/proof`: the calendar of verified days, and the verification of a span now.

use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::response::{Html, IntoResponse as _, Response};
use axum::routing::get;
use chrono::Days;
use serde::Deserialize;

use super::days::{self, Tally};
use super::decisions::{self, Part};
use super::span::{self, Findings, NAMED};
use crate::api::{Api, Console};
use crate::drawing::days::{self as calendar, Cell, Day, Finding};
use crate::failure::Failure;
use crate::form::parse_time;
use crate::frame::{Frame, Menu};
use crate::period::{self, rfc3339};
use crate::query::with_query;
use crate::teams::{Teams, usual_team};

pub(super) fn routes() -> Router<Console> {
    Router::new().route("/proof", get(show))
}

/// The span to verify, as the address has it; for a visitor who may not verify, the team.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Requested {
    from: String,
    to: String,
    cursor: String,
    team_id: String,
}

/// The page of a visitor who may verify.
#[derive(Template)]
#[template(path = "proof.html")]
struct ProofPage {
    frame: Frame,
    /// The span in the form.
    from: String,
    to: String,
    days: Vec<Day>,
    cells: Vec<Cell>,
    tally: Tally,
    findings: Option<Findings>,
    /// Why the span was not verified.
    refusal: Option<String>,
    /// The page that verifies the rest of the span.
    rest: Option<String>,
    /// Whether this is the rest of a span.
    is_rest: bool,
}

/// The page of other visitors.
#[derive(Template)]
#[template(path = "proof_team.html")]
struct TeamPage {
    frame: Frame,
    requested: Requested,
    teams: Teams,
    parts: Vec<Part>,
}

async fn show(api: Api, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let requested: Requested = serde_html_form::from_str(query.as_deref().unwrap_or_default()).unwrap_or_default();
    let frame = Frame::read(&api, Menu::Proof, "Proof", None).await?;
    let page = if frame.may_audit() {
        of_all(&api, frame, requested).await?.render()
    } else {
        of_team(&api, frame, requested).await?.render()
    };
    Ok(Html(page.map_err(|error| Failure::Broken(error.to_string()))?).into_response())
}

async fn of_team(api: &Api, frame: Frame, mut requested: Requested) -> Result<TeamPage, Failure> {
    if requested.team_id.is_empty() {
        requested.team_id = usual_team(&frame).map(|id| id.to_string()).unwrap_or_default();
    }
    let parts = decisions::read(api, &requested.team_id).await?;
    Ok(TeamPage { teams: Teams::read_choice(api, &frame).await?, frame, requested, parts })
}

async fn of_all(api: &Api, frame: Frame, requested: Requested) -> Result<ProofPage, Failure> {
    let days = days::read(api).await?;
    let (findings, refusal) = match verify(api, &requested).await {
        Ok(findings) => (findings, None),
        Err(Failure::Refused(status, problem)) if status.is_client_error() => (None, Some(problem.detail)),
        Err(failure) => return Err(failure),
    };
    let rest =
        findings.as_ref().and_then(|found| found.next_cursor.as_deref()).map(|cursor| requested.path_of_rest(cursor));
    let (yesterday, today) = (frame.now - Days::new(1), frame.now);
    let usual = |text: &str, usual: String| if text.is_empty() { usual } else { period::for_input(text) };
    Ok(ProofPage {
        frame,
        from: usual(&requested.from, yesterday.format("%Y-%m-%dT00:00").to_string()),
        to: usual(&requested.to, today.format("%Y-%m-%dT00:00").to_string()),
        cells: calendar::cells(&days),
        tally: days::tally(&days),
        days,
        findings,
        refusal,
        rest,
        is_rest: !requested.cursor.is_empty(),
    })
}

/// Verifies the span that the address names; none without a span.
async fn verify(api: &Api, requested: &Requested) -> Result<Option<Findings>, Failure> {
    if requested.from.is_empty() && requested.to.is_empty() {
        return Ok(None);
    }
    let parse = |field, text: &str| {
        let time = parse_time(field, text)?;
        time.ok_or_else(|| Failure::of_field(field, &format!("{field} must be a time")))
    };
    let (from, to) = (parse("from", &requested.from)?, parse("to", &requested.to)?);
    span::verify(api, &rfc3339(&from), &rfc3339(&to), &requested.cursor).await.map(Some)
}

impl Requested {
    fn path_of_rest(&self, cursor: &str) -> String {
        let parameters = [("from", self.from.as_str()), ("to", &self.to), ("cursor", cursor)];
        let path = with_query("/proof", parameters.map(|(name, value)| (name, Some(value))));
        format!("{path}#now")
    }
}

impl ProofPage {
    /// The days that are not green, the newest first, without today.
    fn not_proven(&self) -> Vec<&Day> {
        self.days.iter().rev().skip(1).filter(|day| day.finding != Finding::Proven).collect()
    }

    /// Those of which a verification has begun, or that differ: the others were not verified at all.
    fn noted(&self) -> Vec<&Day> {
        self.not_proven().into_iter().filter(|day| day.words != days::NOT_VERIFIED).collect()
    }
}
