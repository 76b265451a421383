//! `/bulk` and `/bulk/{id}`: the operations and their progress.

use api_types::bulk::{BulkItemView, BulkState, BulkVerb, BulkView};
use api_types::page::Page;
use askama::Template;
use axum::Router;
use axum::extract::Query;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;
use uuid::Uuid;

use crate::act::{self, Act};
use crate::answer::show_page;
use crate::api::{Api, Console};
use crate::failure::Failure;
use crate::frame::{Frame, Menu};
use crate::path::PathId;
use crate::query::with_query;
use crate::words;

pub(super) fn routes() -> Router<Console> {
    Router::new().route("/bulk", get(list)).route("/bulk/{id}", get(show)).route("/bulk/{id}/cancel", post(cancel))
}

#[derive(Deserialize)]
struct Shown {
    cursor: Option<String>,
    done: Option<String>,
}

#[derive(Template)]
#[template(path = "bulk_list.html")]
struct ListPage {
    frame: Frame,
    operations: Vec<BulkView>,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "bulk_operation.html")]
struct OperationPage {
    frame: Frame,
    operation: BulkView,
    refused: Vec<BulkItemView>,
    next: Option<String>,
}

impl OperationPage {
    fn noun(&self) -> &'static str {
        match (self.operation.verb, self.operation.total) {
            (BulkVerb::Retry | BulkVerb::Cancel, 1) => "run",
            (BulkVerb::Retry | BulkVerb::Cancel, _) => "runs",
            (_, 1) => "workflow",
            (_, _) => "workflows",
        }
    }

    fn is_running(&self) -> bool {
        self.operation.state == BulkState::Running
    }
}

async fn list(api: Api, Query(query): Query<Shown>) -> Result<Response, Failure> {
    let frame = Frame::read(&api, Menu::Workflows, "Bulk operations", query.done.as_deref()).await?;
    let parameters = [("limit", Some("50")), ("cursor", query.cursor.as_deref())];
    let page: Page<BulkView> = api.get(&with_query("/bulk", parameters)).await?;
    let next = page.next_cursor.map(|cursor| with_query("/bulk", [("cursor", Some(&*cursor))]));
    show_page(&ListPage { frame, operations: page.items, next })
}

async fn show(api: Api, PathId(id): PathId<Uuid>, Query(query): Query<Shown>) -> Result<Response, Failure> {
    let operation: BulkView = api.get(&format!("/bulk/{id}")).await?;
    let title = format!("Bulk: {}", words::bulk_verb(&operation.verb));
    let frame = Frame::read(&api, Menu::Workflows, title, query.done.as_deref()).await?;
    let parameters = [("outcome", Some("refused")), ("limit", Some("100")), ("cursor", query.cursor.as_deref())];
    let page: Page<BulkItemView> = api.get(&with_query(&format!("/bulk/{id}/items"), parameters)).await?;
    let next = page.next_cursor.map(|cursor| with_query(&format!("/bulk/{id}"), [("cursor", Some(&*cursor))]));
    show_page(&OperationPage { frame, operation, refused: page.items, next })
}

async fn cancel(api: Api, PathId(id): PathId<Uuid>) -> Act {
    api.post(&format!("/bulk/{id}:cancel")).await?;
    Ok(act::show_next(&format!("/bulk/{id}"), "bulk-cancelled"))
}
