//! The auth matrix: a table of every route and every kind of caller. A route without a row fails the test.

use std::collections::BTreeSet;

use app::api::openapi::Api as Description;
use reqwest::Method;
use serde_json::json;
use tests::{Api, PATIENCE, Story};
use utoipa::OpenApi as _;

/// Which callers a route accepts: `Open` for every caller, otherwise the role that a key needs.
#[derive(Clone, Copy, PartialEq)]
enum Door {
    Open,
    Viewer,
    Editor,
    Admin,
    Scheduler,
}

const ROUTES: [(&str, &str, Door); 46] = [
    ("post", "/api/v1/teams", Door::Admin),
    ("get", "/api/v1/keys", Door::Admin),
    ("post", "/api/v1/keys", Door::Admin),
    ("post", "/api/v1/keys/{id}:revoke", Door::Admin),
    ("get", "/api/v1/workflows", Door::Viewer),
    ("post", "/api/v1/workflows", Door::Editor),
    ("get", "/api/v1/workflows/{id}", Door::Viewer),
    ("patch", "/api/v1/workflows/{id}", Door::Editor),
    ("delete", "/api/v1/workflows/{id}", Door::Admin),
    ("post", "/api/v1/workflows/{id}:archive", Door::Editor),
    ("post", "/api/v1/workflows/{id}:pause", Door::Editor),
    ("post", "/api/v1/workflows/{id}:resume", Door::Editor),
    ("post", "/api/v1/cron:explain", Door::Viewer),
    ("get", "/api/v1/schedules", Door::Viewer),
    ("get", "/api/v1/schedules/{id}", Door::Viewer),
    ("put", "/api/v1/schedules/{id}", Door::Editor),
    ("patch", "/api/v1/schedules/{id}", Door::Editor),
    ("delete", "/api/v1/schedules/{id}", Door::Editor),
    ("get", "/api/v1/schedules/{id}/next", Door::Viewer),
    ("get", "/api/v1/schedules/{id}/runs", Door::Viewer),
    ("get", "/api/v1/schedules/{id}/occurrences", Door::Viewer),
    ("post", "/api/v1/schedules/{id}:fire", Door::Editor),
    ("post", "/api/v1/schedules/{id}:backfill", Door::Editor),
    ("get", "/api/v1/backfills", Door::Viewer),
    ("get", "/api/v1/backfills/{id}", Door::Viewer),
    ("post", "/api/v1/backfills/{id}:pause", Door::Editor),
    ("post", "/api/v1/backfills/{id}:resume", Door::Editor),
    ("post", "/api/v1/backfills/{id}:cancel", Door::Editor),
    ("post", "/api/v1/runs/{id}:cancel", Door::Editor),
    ("post", "/api/v1/runs/{id}:retry", Door::Editor),
    ("get", "/api/v1/runs", Door::Viewer),
    ("get", "/api/v1/runs/{id}", Door::Viewer),
    ("post", "/api/v1/cron/workflows/{id}:invoke", Door::Scheduler),
    ("get", "/api/v1/outbox", Door::Admin),
    ("post", "/api/v1/outbox/{id}:retry", Door::Admin),
    ("post", "/api/v1/outbox/{id}:discard", Door::Admin),
    ("get", "/api/v1/drift", Door::Admin),
    ("get", "/api/v1/jobs", Door::Viewer),
    ("post", "/api/v1/drift:check", Door::Admin),
    ("get", "/api/v1/stats", Door::Viewer),
    ("get", "/api/v1/verify", Door::Admin),
    ("get", "/healthz", Door::Open),
    ("get", "/readyz", Door::Open),
    ("get", "/metrics", Door::Open),
    ("get", "/openapi.json", Door::Open),
    ("get", "/docs/", Door::Open),
];

/// Routes that the app serves, and that are not part of its description.
const UNDESCRIBED: [&str; 2] = ["/openapi.json", "/docs/"];

fn described() -> BTreeSet<(String, String)> {
    let api = serde_json::to_value(Description::openapi()).unwrap();
    let paths = api["paths"].as_object().unwrap().clone();
    let methods = |(path, item): (String, serde_json::Value)| {
        item.as_object().unwrap().keys().map(|method| (method.clone(), path.clone())).collect::<Vec<_>>()
    };
    paths.into_iter().flat_map(methods).collect()
}

#[test]
fn every_described_route_has_its_row() {
    let rows: BTreeSet<_> = ROUTES.iter().map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned())).collect();
    let described: BTreeSet<_> =
        described().into_iter().chain(UNDESCRIBED.map(|path| ("get".to_owned(), path.to_owned()))).collect();
    assert_eq!(rows, described);
}

/// Every `.route(..)` of the router must be in the OpenAPI description, so that no route is added without one.
#[test]
fn every_route_of_the_router_is_described() {
    let source = include_str!("../../app/src/api/mod.rs");
    let described = described();
    let mut served = 0;
    for route in source.split(".route(").skip(1) {
        let pattern = route.split('"').nth(1).unwrap();
        let nested = source.split(".nest(").next().unwrap().contains(&format!("\"{pattern}\""));
        let pattern = if nested { format!("/api/v1{pattern}") } else { pattern.to_owned() };
        let handlers = route.split(".route(").next().unwrap();
        for method in ["get", "post", "patch", "delete", "put"] {
            if handlers.split(['\n', ';']).take(8).any(|line| line.contains(&format!("{method}("))) {
                served += 1;
                let stem = pattern.replace("{target}", "{id}");
                let is_described = described.iter().any(|(m, path)| {
                    m == method && (path == &stem || path.strip_prefix(&stem).is_some_and(|verb| verb.starts_with(':')))
                });
                assert!(is_described, "{method} {pattern} is served but not described");
            }
        }
    }
    assert!(served >= 17, "only {served} routes were found in the router's source");
}

/// Whether this caller is let in. Any status except 401 and 403 counts as let in.
fn opens(door: Door, caller: &str) -> bool {
    match caller {
        "admin" => matches!(door, Door::Open | Door::Viewer | Door::Editor | Door::Admin),
        "editor" | "other team" => matches!(door, Door::Open | Door::Viewer | Door::Editor),
        "viewer" => matches!(door, Door::Open | Door::Viewer),
        "scheduler" => matches!(door, Door::Open | Door::Scheduler),
        _ => door == Door::Open,
    }
}

#[tokio::test]
async fn each_caller_opens_just_the_doors_of_its_kind() {
    let s = Story::today().await;
    let id = s.create("0 9 * * *", "UTC").await;
    let callers = callers(&s).await;
    for (method, path, door) in ROUTES {
        // The target does not exist, so a caller that is let in finds nothing and changes nothing.
        let path = match path {
            "/api/v1/runs/{id}" | "/api/v1/keys/{id}:revoke" => path.replace("{id}", &uuid::Uuid::nil().to_string()),
            _ => path.replace("{id}", "999999"),
        };
        for (caller, api) in &callers {
            let request = api.request(Method::from_bytes(method.to_uppercase().as_bytes()).unwrap(), &path);
            let answer = tests::answer(request.header("content-type", "application/json").body("{}")).await;
            let expected = match (opens(door, caller), *caller) {
                (true, _) => {
                    assert!(!matches!(answer.status, 401 | 403 | 429 | 500..), "{caller} {method} {path}: {answer:?}");
                    continue;
                }
                (false, "none" | "garbage" | "wrong secret" | "revoked") => (401, "unauthorized"),
                (false, _) => (403, "forbidden"),
            };
            answer.refused(expected.0, expected.1, None);
        }
    }
    assert_eq!(s.editor().get(&format!("/api/v1/workflows/{id}")).await.json["version"], 1);
    s.end().await;
}

async fn callers(s: &Story) -> Vec<(&'static str, Api)> {
    let key = async |body| s.admin().post("/api/v1/keys", &body).await.expect(201).json;
    let team = s.keys.team_id;
    let other = s.admin().post("/api/v1/teams", &json!({"name": "others"})).await.expect(201).id();
    let viewer = key(json!({"name": "v", "kind": "team", "team_id": team, "role": "viewer"})).await;
    let foreign = key(json!({"name": "o", "kind": "team", "team_id": other, "role": "editor"})).await;
    let revoked = key(json!({"name": "r", "kind": "admin"})).await;
    let revoke = format!("/api/v1/keys/{}:revoke", revoked["id"].as_str().unwrap());
    s.admin().act(&revoke).await.expect(200);
    let api = |key: &serde_json::Value| Api::new(s.url(), key["key"].as_str().unwrap());
    let forged = format!("cb_{}_{}", viewer["prefix"].as_str().unwrap(), "A".repeat(43));
    vec![
        ("none", Api::without_key(s.url())),
        ("garbage", Api::new(s.url(), "let me in")),
        ("wrong secret", Api::new(s.url(), &forged)),
        ("revoked", api(&revoked)),
        ("viewer", api(&viewer)),
        ("editor", s.editor()),
        ("other team", api(&foreign)),
        ("scheduler", s.scheduler_key()),
        ("admin", s.admin()),
    ]
}

#[tokio::test]
async fn revoked_keys_open_nothing_on_any_instance() {
    let mut s = Story::today().await;
    let second = s.another_url().await;
    let made = s.admin().post("/api/v1/keys", &json!({"name": "k", "kind": "admin"})).await.expect(201).json;
    let key = made["key"].as_str().unwrap();
    let (here, there) = (Api::new(s.url(), key), Api::new(&second, key));
    here.get("/api/v1/keys").await.expect(200);
    there.get("/api/v1/keys").await.expect(200);
    s.admin().act(&format!("/api/v1/keys/{}:revoke", made["id"].as_str().unwrap())).await.expect(200);
    here.get("/api/v1/keys").await.refused(401, "unauthorized", None);
    let revoked = tokio::time::Instant::now();
    while there.get("/api/v1/keys").await.status == 200 {
        assert!(revoked.elapsed() < PATIENCE, "the other instance still believes the key");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    s.end().await;
}

#[tokio::test]
async fn a_key_is_shown_once_and_stored_as_a_digest() {
    let s = Story::today().await;
    let made = s.admin().post("/api/v1/keys", &json!({"name": "k", "kind": "admin"})).await.expect(201);
    let key = made.json["key"].as_str().unwrap().to_owned();
    assert_eq!(made.headers["cache-control"], "no-store");
    assert!(key.len() >= 43 + 16, "256 random bits and a prefix");
    let listed = s.admin().get("/api/v1/keys?limit=200").await.expect(200);
    assert!(listed.text.contains(made.json["prefix"].as_str().unwrap()) && !listed.text.contains(&key));
    let stored =
        s.table("SELECT api_keys::text FROM api_keys").await + &s.table("SELECT audit_log::text FROM audit_log").await;
    assert!(stored.contains(made.json["prefix"].as_str().unwrap()));
    assert!(!stored.contains(&key[17..]), "the key is in the database");
    s.end().await;
}
