//! `/workflows/{id}/sync`: what EventBridge has of it, its outbox rows, and its entries in the audit log.

use api_types::audit::AuditView;
use api_types::outbox::{OutboxView, Status};
use api_types::page::Page;
use api_types::raw::RawJson;
use askama::Template;
use axum::Router;
use axum::extract::Query;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use super::head::{Head, Tab};
use crate::answer::show_page;
use crate::api::{Api, Console};
use crate::failure::Failure;
use crate::frame::{Frame, Menu};
use crate::path::PathId;
use crate::query::with_query;
use crate::words::Badge;

pub(super) fn routes() -> Router<Console> {
    Router::new().route("/workflows/{id}/sync", get(show))
}

#[derive(Deserialize)]
struct Shown {
    cursor: Option<String>,
    done: Option<String>,
}

#[derive(Template)]
#[template(path = "workflow_sync.html")]
struct SyncPage {
    frame: Frame,
    head: Head,
    /// None if the visitor may not read what belongs to all teams.
    outbox: Option<Vec<OutboxView>>,
    audit: Vec<AuditView>,
    next: Option<String>,
}

async fn show(api: Api, PathId(id): PathId<i64>, Query(query): Query<Shown>) -> Result<Response, Failure> {
    let head = Head::read(&api, id, Tab::Sync).await?;
    let frame = Frame::read(&api, Menu::Workflows, head.workflow.name.clone(), query.done.as_deref()).await?;
    let outbox = if frame.may_audit() {
        let page: Page<OutboxView> = api.get(&format!("/outbox?workflow_id={id}&limit=20")).await?;
        Some(page.items)
    } else {
        None
    };
    let subject = format!("workflow:{id}");
    let team = head.workflow.team_id.to_string();
    let parameters = [
        ("subject", Some(&*subject)),
        ("team_id", Some(&*team)),
        ("limit", Some("30")),
        ("cursor", query.cursor.as_deref()),
    ];
    let audit: Page<AuditView> = api.get(&with_query("/audit", parameters)).await?;
    let next = audit
        .next_cursor
        .map(|cursor| format!("{}#audit", with_query(&format!("/workflows/{id}/sync"), [("cursor", Some(&*cursor))])));
    show_page(&SyncPage { frame, head, outbox, audit: audit.items, next })
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "templates pass references")]
fn outbox_badge(status: &Status) -> Badge {
    let (words, class, mark) = match status {
        Status::Pending => ("is sent soon", "busy", "○"),
        Status::Failed => ("failed", "bad", "✕"),
        Status::Processed => ("was sent", "good", "✓"),
        Status::Discarded => ("discarded", "quiet", "–"),
    };
    Badge { words, class, mark }
}

fn json_text(json: &Option<RawJson>) -> String {
    json.as_ref().and_then(|json| serde_json::to_string_pretty(&json.to_value()).ok()).unwrap_or_default()
}
