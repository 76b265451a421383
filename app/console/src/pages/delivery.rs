//! `/delivery`: what reaches EventBridge and comes back: edits, drift, background jobs, instances and dead letters.

mod drift;
mod letter_words;
mod letters;
mod states;

use api_types::drift::DriftView;
use api_types::instances::{InstanceState, InstanceView, InstancesView};
use api_types::jobs::{JobView, JobsView, LastResult};
use api_types::outbox::OutboxView;
use api_types::page::Page;
use askama::Template;
use axum::Router;
use axum::extract::{Path, Query};
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::json;

use crate::act::{self, Act};
use crate::answer::{if_permitted, show_page};
use crate::api::{Api, Console};
use crate::failure::Failure;
use crate::form::Sent;
use crate::frame::{Frame, Menu};
use crate::query::with_query;

pub(super) fn routes() -> Router<Console> {
    Router::new()
        .route("/delivery", get(show))
        .route("/delivery/check", post(check))
        .route("/delivery/outbox/{id}/retry", post(retry))
        .route("/delivery/outbox/{id}/discard", post(discard))
        .merge(letters::routes())
}

/// Rows of each list.
const ROWS: &str = "50";

#[derive(Default, Deserialize)]
#[serde(default)]
struct Shown {
    /// Where the list of failed edits begins.
    failed: String,
    /// Where the list of pending edits begins.
    pending: String,
    done: Option<String>,
}

#[derive(Template)]
#[template(path = "delivery/delivery.html")]
struct DeliveryPage {
    frame: Frame,
    is_dead_letters: bool,
    /// `None`: the visitor may not see it.
    parts: Option<Parts>,
}

/// What only operators and auditors see.
struct Parts {
    failed: Page<OutboxView>,
    pending: Page<OutboxView>,
    drift: DriftView,
    jobs: Vec<JobView>,
    instances: Vec<InstanceView>,
}

async fn show(api: Api, Query(shown): Query<Shown>) -> Result<Response, Failure> {
    let frame = Frame::read(&api, Menu::Delivery, "Delivery", shown.done.as_deref()).await?;
    let parts = match frame.may_audit() {
        true => if_permitted(read_parts(&api, &shown).await)?,
        false => None,
    };
    show_page(&DeliveryPage { frame, is_dead_letters: false, parts })
}

async fn read_parts(api: &Api, shown: &Shown) -> Result<Parts, Failure> {
    let outbox = |status, cursor| {
        with_query("/outbox", [("status", Some(status)), ("limit", Some(ROWS)), ("cursor", Some(cursor))])
    };
    let jobs: JobsView = api.get("/jobs").await?;
    let instances: InstancesView = api.get("/instances").await?;
    Ok(Parts {
        failed: api.get(&outbox("failed", &shown.failed)).await?,
        pending: api.get(&outbox("pending", &shown.pending)).await?,
        drift: api.get("/drift").await?,
        jobs: jobs.items,
        instances: instances.items,
    })
}

impl Parts {
    /// The address of the next rows of failed edits.
    fn next_failed(&self) -> Option<String> {
        let cursor = self.failed.next_cursor.as_deref()?;
        Some(with_query("/delivery", [("failed", Some(cursor))]))
    }

    /// The address of the next rows of pending edits.
    fn next_pending(&self) -> Option<String> {
        let cursor = self.pending.next_cursor.as_deref()?;
        Some(with_query("/delivery", [("pending", Some(cursor))]))
    }

    fn failed_jobs(&self) -> usize {
        self.jobs.iter().filter(|job| job.last_result == Some(LastResult::Failed)).count()
    }

    fn lost_instances(&self) -> usize {
        self.instances.iter().filter(|instance| instance.state == InstanceState::Lost).count()
    }
}

#[derive(Deserialize)]
struct Check {
    /// Whether the sweep may make many changes.
    #[serde(default)]
    force: bool,
}

async fn check(api: Api, Sent(form): Sent<Check>) -> Act {
    api.post_json("/drift:check", json!({ "force": form.force })).await?;
    Ok(act::show_next("/delivery", "checked"))
}

async fn retry(api: Api, Path(id): Path<i64>) -> Act {
    api.post(&format!("/outbox/{id}:retry")).await?;
    Ok(act::show_next("/delivery", "outbox-retried"))
}

async fn discard(api: Api, Path(id): Path<i64>) -> Act {
    api.post(&format!("/outbox/{id}:discard")).await?;
    Ok(act::show_next("/delivery", "outbox-discarded"))
}
