//! Step 1 of 7: mounts the console: who is signed in, and which writes a browser may send.
//!
//! The crate `console` makes the pages. This module reads the session of a request, and hands the API that its pages call
//! the caller of the session. The API itself reads no cookie: so no page of another site can use it.

mod cookie;
mod guard;
mod provider;
mod session;
mod sign_in;
mod visit;

use axum::extract::DefaultBodyLimit;
use axum::{Router, middleware};
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;

use crate::App;
use crate::api::request::extract::CONSOLE_FORM_LIMIT;
use crate::api::request::limits::count_sign_in;

/// The pages, which call this API in the process, and the sign-in.
pub(crate) fn build_console(api: Router, app: &App) -> Router<App> {
    let pages: Router<App> = console::pages(api);
    let pages = pages
        .layer(DefaultBodyLimit::max(CONSOLE_FORM_LIMIT))
        .layer(middleware::from_fn_with_state(app.clone(), visit::identify_visitor));
    let sign_in = sign_in::routes()
        .layer(middleware::from_fn(guard::only_own_forms))
        .layer(middleware::from_fn_with_state(app.clone(), count_sign_in));
    let compressed = CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(guard::IsCompressed);
    pages.merge(sign_in).merge(console::assets::routes()).layer(compressed)
}
