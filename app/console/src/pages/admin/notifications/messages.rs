//! `/admin/notifications/messages`: which messages were delivered.

use api_types::notifications::MessageView;
use api_types::page::Page;
use askama::Template;
use axum::Router;
use axum::extract::{Path, Query};
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;
use uuid::Uuid;

use super::parts::{Channels, Part};
use super::words;
use crate::act::{self, Act};
use crate::answer::show_page;
use crate::api::{Api, Console};
use crate::failure::Failure;
use crate::frame::{Frame, Menu};
use crate::pages::admin::shown::ROWS;
use crate::pages::admin::tabs::{self, Tab};
use crate::query::with_query;

const PAGE: &str = "/admin/notifications/messages";

pub(super) fn routes() -> Router<Console> {
    Router::new().route(PAGE, get(list)).route("/admin/notifications/messages/{id}/retry", post(retry))
}

/// The filters, as the address has them.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Filters {
    state: String,
    channel_id: String,
    cursor: String,
    done: Option<String>,
}

#[derive(Template)]
#[template(path = "admin/messages.html")]
struct MessagesPage {
    frame: Frame,
    tab: Tab,
    part: Part,
    filters: Filters,
    messages: Vec<MessageView>,
    channels: Channels,
    next: Option<String>,
}

async fn list(api: Api, Query(filters): Query<Filters>) -> Result<Response, Failure> {
    let frame = Frame::read(&api, Menu::Admin, "Messages", filters.done.as_deref()).await?;
    let path = filters.path("/notification-messages", &filters.cursor, Some(ROWS));
    let page: Page<MessageView> = api.get(&path).await?;
    let next = page.next_cursor.as_deref().map(|cursor| filters.path(PAGE, cursor, None));
    let (messages, channels) = (page.items, Channels::read(&api).await?);
    show_page(&MessagesPage { frame, tab: Tab::Notifications, part: Part::Messages, filters, messages, channels, next })
}

async fn retry(api: Api, Path(id): Path<Uuid>) -> Act {
    api.post(&format!("/notification-messages/{id}:retry")).await?;
    Ok(act::show_next(PAGE, "message-retried"))
}

impl Filters {
    fn path(&self, path: &str, cursor: &str, limit: Option<&str>) -> String {
        let parameters = [
            ("state", Some(&*self.state)),
            ("channel_id", Some(&*self.channel_id)),
            ("cursor", Some(cursor)),
            ("limit", limit),
        ];
        with_query(path, parameters)
    }

    fn is_set(&self) -> bool {
        !self.state.is_empty() || !self.channel_id.is_empty()
    }

    fn is_of_channel(&self, id: &i64) -> bool {
        self.channel_id == id.to_string()
    }
}
