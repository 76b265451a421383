//! The console: pages for people, made of the answers of the API.
//!
//! It belongs to no step. Each page and each act is a request to the API in the same process, under the caller of the
//! session: so the console can do nothing that the API cannot do, its rights, limits and audit entries are those of the
//! API, and its pages need as many statements as the lists that they show. This crate imports `api_types`, and `schedule`
//! for the words of a cron. It must not import `sqlx` or another crate of the app. The server mounts it, and signs in.
//!
//! | file | what |
//! |---|---|
//! | `api.rs` | requests to the API under the caller of a session |
//! | `frame.rs`, `failure.rs`, `act.rs` | what pages share, pages that cannot be shown, answers of acts |
//! | `form.rs`, `answer.rs` | fields of forms, HTML of pages and texts that are shown once |
//! | `words.rs`, `times.rs`, `drawing/` | states in words, times in zones, pictures |
//! | `query.rs`, `path.rs`, `period.rs`, `teams.rs` | addresses with queries, ids in paths, periods, teams |
//! | `pages/` | one file for each page, with its template in `templates/` |

pub mod act;
mod answer;
pub mod api;
pub mod assets;
pub mod drawing;
pub mod failure;
mod form;
pub mod frame;
pub mod pages;
mod path;
mod period;
mod query;
mod teams;
pub mod times;
pub mod words;

use axum::Router;

pub use api::{Console, Visit};

/// The pages of the console, for visitors with a [`Visit`] in the extensions of their requests.
pub fn pages<S>(api: Router) -> Router<S> {
    pages::routes().with_state(Console::new(api))
}
