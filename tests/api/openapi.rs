//! The OpenAPI description is generated from the code, committed, and served.

use std::collections::BTreeSet;
use std::path::Path;

use app::api;
use serde_json::Value;
use tests::Story;

#[test]
fn committed_openapi_agrees_with_the_code() {
    agrees("openapi.json", api::describe());
    agrees("openapi-3.0.json", api::describe_as_3_0());
}

#[expect(clippy::disallowed_methods, reason = "`make openapi` asks for the file to be written")]
fn agrees(name: &str, described: &Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    let generated = serde_json::to_string_pretty(described).unwrap() + "\n";
    if std::env::var_os("CRONBOX_UPDATE_OPENAPI").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let checked_in = std::fs::read_to_string(path).unwrap_or_default();
    assert!(generated == checked_in, "docs/{name} is stale: run `make openapi` and commit it");
}

/// What generators need, and what no validator demands: each operation has a name of its own, a summary and a described body,
/// and no schema is written twice.
#[test]
fn operations_have_names_summaries_and_schemas() {
    let described = api::describe();
    let mut names = BTreeSet::new();
    for (path, item) in described["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            assert!(names.insert(name), "{name} is the name of two operations");
            let summary = operation["summary"].as_str().unwrap_or_default();
            assert!(summary.ends_with('.') && summary.len() < 160, "{method} {path}: {summary}");
            for content in operation["requestBody"]["content"].as_object().into_iter().flat_map(|kinds| kinds.values())
            {
                assert!(content["schema"]["$ref"].is_string(), "{method} {path} has a body without a name");
            }
            for (status, response) in operation["responses"].as_object().unwrap() {
                assert!(response["description"].is_string(), "{method} {path}: {status} has no description");
            }
        }
    }
    assert_eq!(names.len(), app::api::routes::ROUTES.len());
    let schemas = described["components"]["schemas"].as_object().unwrap();
    let pages: Vec<_> = schemas.iter().filter(|(name, _)| name.starts_with("Page_")).collect();
    assert!(pages.len() > 5);
    assert!(pages.iter().all(|(_, page)| page["properties"]["items"]["items"]["$ref"].is_string()));
}

/// So is the page that shows it.
#[tokio::test]
async fn openapi_is_served_without_a_key() {
    let s = Story::today().await;
    let client = tests::Api::without_key(s.url());
    let served = client.get("/openapi.json").await.expect(200).json;
    assert_eq!(served, *api::describe());
    assert!(served["openapi"].as_str().unwrap().starts_with("3.1"));
    assert!(client.get("/").await.expect(200).text.contains("Sign in"), "who opens the address finds the console");
    assert_eq!(client.get("/openapi-3.0.json").await.expect(200).json, *api::describe_as_3_0());
    let page = client.get("/docs/").await.expect(200);
    assert!(page.text.contains("swagger-ui"));
    assert!(!page.text.contains("https://"), "the page must need nothing from elsewhere");
    s.end().await;
}
