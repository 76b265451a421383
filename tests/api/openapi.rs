//! The OpenAPI description is generated from the code, committed, and served.

use app::api::routes::Api as Description;
use tests::Story;
use utoipa::OpenApi as _;

#[test]
#[expect(clippy::disallowed_methods, reason = "`make openapi` asks for the file to be written")]
fn committed_openapi_agrees_with_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");
    let generated = Description::openapi().to_pretty_json().unwrap() + "\n";
    if std::env::var_os("CRONBOX_UPDATE_OPENAPI").is_some() {
        std::fs::write(path, &generated).unwrap();
    }
    let checked_in = std::fs::read_to_string(path).unwrap_or_default();
    assert!(generated == checked_in, "docs/openapi.json is stale: run `make openapi` and commit it");
}

/// So is the page that shows it.
#[tokio::test]
async fn openapi_is_served_without_a_key() {
    let s = Story::today().await;
    let api = tests::Api::without_key(s.url());
    let served = api.get("/openapi.json").await.expect(200).json;
    assert_eq!(served, serde_json::to_value(Description::openapi()).unwrap());
    assert!(served["openapi"].as_str().unwrap().starts_with("3.1"));
    let page = api.get("/docs/").await.expect(200);
    assert!(page.text.contains("swagger-ui"));
    assert!(!page.text.contains("https://"), "the page must need nothing from elsewhere");
    s.end().await;
}
