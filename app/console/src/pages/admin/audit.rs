//! `/admin/audit`: the audit log, with its filters.

mod difference;

use api_types::audit::AuditView;
use api_types::page::Page;
use askama::Template;
use axum::Router;
use axum::extract::Query;
use axum::response::Response;
use axum::routing::get;

use serde::Deserialize;

use self::difference::Member;
use super::shown::ROWS;
use super::tabs::{self, Tab};
use crate::answer::show_page;
use crate::api::{Api, Console};
use crate::failure::Failure;
use crate::form::parse_time;
use crate::frame::{Frame, Menu};
use crate::query::with_query;
use crate::teams::{Teams, usual_team};
use crate::times;

pub(super) fn routes() -> Router<Console> {
    Router::new().route("/admin/audit", get(list))
}

/// The filters, as the address has them; times are in UTC.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Filters {
    actor: String,
    subject: String,
    verb: String,
    team_id: String,
    from: String,
    to: String,
    cursor: String,
}

/// An entry, with its members that differ.
struct Row {
    entry: AuditView,
    /// The page of its object.
    href: Option<String>,
    members: Vec<Member>,
}

#[derive(Template)]
#[template(path = "admin/audit.html")]
struct AuditPage {
    frame: Frame,
    tab: Tab,
    filters: Filters,
    teams: Teams,
    rows: Vec<Row>,
    next: Option<String>,
}

async fn list(api: Api, Query(mut filters): Query<Filters>) -> Result<Response, Failure> {
    let frame = Frame::read(&api, Menu::Admin, "Audit log", None).await?;
    if filters.team_id.is_empty() {
        filters.team_id = usual_team(&frame).map(|id| id.to_string()).unwrap_or_default();
    }
    let page: Page<AuditView> = api.get(&filters.path_of_api()).await?;
    let next = page.next_cursor.as_deref().map(|cursor| filters.path_of_page(cursor));
    let teams = Teams::read(&api).await?;
    let rows = page.items.into_iter().map(Row::from).collect();
    show_page(&AuditPage { frame, tab: Tab::Audit, filters, teams, rows, next })
}

impl Filters {
    fn path_of_api(&self) -> String {
        let (from, to) = (api_time(&self.from), api_time(&self.to));
        let parameters = self.texts().into_iter().map(|(name, value)| (name, Some(value)));
        let shown =
            [("from", from.as_deref()), ("to", to.as_deref()), ("cursor", Some(&*self.cursor)), ("limit", Some(ROWS))];
        with_query("/audit", parameters.chain(shown))
    }

    fn path_of_page(&self, cursor: &str) -> String {
        let shown = [("from", &*self.from), ("to", &self.to), ("cursor", cursor)];
        let parameters = self.texts().into_iter().chain(shown);
        with_query("/admin/audit", parameters.map(|(name, value)| (name, Some(value))))
    }

    fn texts(&self) -> [(&'static str, &str); 4] {
        [
            ("actor", self.actor.trim()),
            ("subject", self.subject.trim()),
            ("verb", self.verb.trim()),
            ("team_id", self.team_id.trim()),
        ]
    }

    fn is_set(&self) -> bool {
        let times = [("from", self.from.as_str()), ("to", &self.to)];
        self.texts().into_iter().chain(times).any(|(_, value)| !value.is_empty())
    }

    fn is_of_team(&self, id: &i64) -> bool {
        self.team_id == id.to_string()
    }
}

/// The time of a field, as the API reads it.
fn api_time(text: &str) -> Option<String> {
    parse_time("", text).ok().flatten().map(|time| times::for_machines(&time))
}

impl From<AuditView> for Row {
    fn from(entry: AuditView) -> Self {
        let value = |json: &Option<api_types::raw::RawJson>| json.as_ref().map(api_types::raw::RawJson::to_value);
        let members = difference::members(value(&entry.before).as_ref(), value(&entry.after).as_ref());
        Self { href: page_of(&entry.subject), members, entry }
    }
}

/// The page of an object of the log.
fn page_of(subject: &str) -> Option<String> {
    let (kind, id) = subject.split_once(':')?;
    let is_plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let page = match kind {
        "workflow" => "/workflows",
        "run" => "/runs",
        "team" => "/admin/teams",
        _ => return None,
    };
    (is_plain && !id.is_empty()).then(|| format!("{page}/{id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_passed_on_in_utc() {
        let filters = Filters {
            actor: "key:cbt_1".into(),
            from: "2026-03-29T02:30".into(),
            to: "nonsense".into(),
            ..Filters::default()
        };
        assert_eq!(filters.path_of_api(), "/audit?actor=key%3Acbt_1&from=2026-03-29T02%3A30%3A00Z&limit=50");
        assert!(filters.path_of_page("abc").ends_with("&cursor=abc"));
    }

    #[test]
    fn objects_of_the_log_have_pages() {
        assert_eq!(page_of("workflow:12").as_deref(), Some("/workflows/12"));
        assert_eq!(page_of("team:3").as_deref(), Some("/admin/teams/3"));
        assert_eq!(page_of("key:cbt_1"), None);
        assert_eq!(page_of("run:../x"), None);
    }
}
