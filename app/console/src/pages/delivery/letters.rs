//! `/delivery/letters`: the messages of the three dead-letter queues.

use api_types::dead_letters::DeadLetterView;
use api_types::page::Page;
use askama::Template;
use axum::Router;
use axum::extract::{Path, Query};
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;

use super::letter_words as words;
use super::letter_words::{QUEUES, STATES};
use crate::act::{self, Act};
use crate::answer::show_page;
use crate::api::{Api, Console};
use crate::failure::Failure;
use crate::frame::{Frame, Menu};
use crate::path::PathId;
use crate::query::with_query;

pub(super) fn routes() -> Router<Console> {
    Router::new()
        .route("/delivery/letters", get(list))
        .route("/delivery/letters/{id}", get(show))
        .route("/delivery/letters/{id}/redrive", post(redrive))
        .route("/delivery/letters/{id}/discard", post(discard))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Filters {
    queue: String,
    state: String,
    /// The choice of the overview.
    team_id: String,
    cursor: String,
    done: Option<String>,
}

#[derive(Template)]
#[template(path = "delivery/letters.html")]
struct LettersPage {
    frame: Frame,
    is_dead_letters: bool,
    filters: Filters,
    messages: Vec<DeadLetterView>,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "delivery/letter.html")]
struct LetterPage {
    frame: Frame,
    is_dead_letters: bool,
    message: DeadLetterView,
}

async fn list(api: Api, Query(filters): Query<Filters>) -> Result<Response, Failure> {
    let frame = Frame::read(&api, Menu::Delivery, "Dead letters", filters.done.as_deref()).await?;
    let page: Page<DeadLetterView> = api.get(&filters.path("/dead-letters", &filters.cursor, Some("50"))).await?;
    let next = page.next_cursor.as_deref().map(|cursor| filters.path("/delivery/letters", cursor, None));
    show_page(&LettersPage { frame, is_dead_letters: true, filters, messages: page.items, next })
}

async fn show(api: Api, PathId(id): PathId<i64>, Query(filters): Query<Filters>) -> Result<Response, Failure> {
    let frame =
        Frame::read(&api, Menu::Delivery, format!("Dead letter: message {id}"), filters.done.as_deref()).await?;
    let message = api.get(&format!("/dead-letters/{id}")).await?;
    show_page(&LetterPage { frame, is_dead_letters: true, message })
}

async fn redrive(api: Api, Path(id): Path<i64>) -> Act {
    api.post(&format!("/dead-letters/{id}:redrive")).await?;
    Ok(act::show_next(&format!("/delivery/letters/{id}"), "redriven"))
}

async fn discard(api: Api, Path(id): Path<i64>) -> Act {
    api.post(&format!("/dead-letters/{id}:discard")).await?;
    Ok(act::show_next(&format!("/delivery/letters/{id}"), "discard-requested"))
}

impl Filters {
    fn path(&self, path: &str, cursor: &str, limit: Option<&str>) -> String {
        let parameters = [
            ("queue", Some(&*self.queue)),
            ("state", Some(&*self.state)),
            ("team_id", Some(&*self.team_id)),
            ("cursor", Some(cursor)),
            ("limit", limit),
        ];
        with_query(path, parameters)
    }

    fn is_set(&self) -> bool {
        [&self.queue, &self.state, &self.team_id].into_iter().any(|value| !value.is_empty())
    }
}
