//! `/admin/notifications`: what happened.

use api_types::notifications::{NotificationEvent, NotificationView};
use api_types::page::Page;
use askama::Template;
use axum::Router;
use axum::extract::{Path, Query};
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;

use super::parts::Part;
use super::words;
use crate::act::{self, Act};
use crate::answer::show_page;
use crate::api::{Api, Console};
use crate::failure::Failure;
use crate::frame::{Frame, Menu};
use crate::pages::admin::shown::ROWS;
use crate::pages::admin::tabs::{self, Tab};
use crate::query::with_query;

pub(super) fn routes() -> Router<Console> {
    Router::new()
        .route("/admin/notifications", get(list))
        .route("/admin/notifications/{id}/acknowledge", post(acknowledge))
}

/// The filters, as the address has them. The list begins with what waits for a person.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Filters {
    /// Empty: not acknowledged; `all`; `true`.
    acknowledged: String,
    event: String,
    cursor: String,
    done: Option<String>,
}

#[derive(Template)]
#[template(path = "admin/notices.html")]
struct NoticesPage {
    frame: Frame,
    tab: Tab,
    part: Part,
    filters: Filters,
    notices: Vec<NotificationView>,
    next: Option<String>,
}

async fn list(api: Api, Query(filters): Query<Filters>) -> Result<Response, Failure> {
    let frame = Frame::read(&api, Menu::Admin, "Notifications", filters.done.as_deref()).await?;
    let page: Page<NotificationView> = api.get(&filters.path_of_api()).await?;
    let next = page.next_cursor.as_deref().map(|cursor| filters.path_of_page(cursor));
    let notices = page.items;
    show_page(&NoticesPage { frame, tab: Tab::Notifications, part: Part::Notices, filters, notices, next })
}

async fn acknowledge(api: Api, Path(id): Path<i64>) -> Act {
    api.post(&format!("/notifications/{id}:acknowledge")).await?;
    Ok(act::show_next("/admin/notifications", "acknowledged"))
}

impl Filters {
    fn path_of_api(&self) -> String {
        let acknowledged = match self.acknowledged.as_str() {
            "all" => None,
            "true" => Some("true"),
            _ => Some("false"),
        };
        let parameters = [
            ("acknowledged", acknowledged),
            ("event", Some(&*self.event)),
            ("cursor", Some(&*self.cursor)),
            ("limit", Some(ROWS)),
        ];
        with_query("/notifications", parameters)
    }

    fn path_of_page(&self, cursor: &str) -> String {
        let parameters = [("acknowledged", &*self.acknowledged), ("event", &self.event), ("cursor", cursor)];
        with_query("/admin/notifications", parameters.map(|(name, value)| (name, Some(value))))
    }

    fn is_set(&self) -> bool {
        !self.acknowledged.is_empty() || !self.event.is_empty()
    }
}
