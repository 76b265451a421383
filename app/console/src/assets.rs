//! The embedded files of the console: scripts, styles and the icon.
//!
//! Their names have a part of their digest, so that a browser keeps them forever, and gets new ones with a new version.

use std::sync::LazyLock;

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use sha2::{Digest as _, Sha256};

struct Asset {
    name: &'static str,
    content_type: &'static str,
    content: &'static [u8],
    served_as: String,
}

static ASSETS: LazyLock<[Asset; 4]> = LazyLock::new(|| {
    const CSS: &str = "text/css; charset=utf-8";
    const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
    [
        asset("console.css", CSS, include_bytes!("../assets/console.css")),
        asset("console.js", JAVASCRIPT, include_bytes!("../assets/console.js")),
        asset("htmx.js", JAVASCRIPT, include_bytes!("../assets/htmx-4.0.1.min.js")),
        asset("icon.svg", "image/svg+xml", include_bytes!("../assets/icon.svg")),
    ]
});

fn asset(name: &'static str, content_type: &'static str, content: &'static [u8]) -> Asset {
    let digest = const_hex::encode(Sha256::digest(content));
    let (stem, extension) = name.split_once('.').unwrap_or((name, ""));
    let served_as = format!("{stem}-{}.{extension}", digest.get(..12).unwrap_or_default());
    Asset { name, content_type, content, served_as }
}

/// The path of a file, by its name without the digest.
#[must_use]
pub fn path_of(name: &str) -> String {
    let found = ASSETS.iter().find(|asset| asset.name == name);
    format!("/assets/{}", found.map_or(name, |asset| &asset.served_as))
}

/// The routes of the files, which need no session.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/assets/{name}", get(serve))
}

async fn serve(Path(name): Path<String>) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.served_as == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type)),
        (header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable")),
    ];
    (headers, asset.content).into_response()
}
