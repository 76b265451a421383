//! The auth matrix: every route of the app's table, and every kind of caller.

use std::collections::BTreeSet;

use access::key_text::add_checksum;
use access::rights::Scope;
use app::api::describe;
use app::api::routes::{Access, ROUTES};
use reqwest::Method;
use serde_json::json;
use tests::{Api, PATIENCE, Story};

/// Routes that the app serves, and that are neither in its table nor in its description.
const UNDESCRIBED: [(&str, &str, Access); 2] =
    [("get", "/openapi.json", Access::Open), ("get", "/docs/", Access::Open)];

/// Method, path and name of each operation of the OpenAPI description.
fn described() -> BTreeSet<(String, String, String)> {
    let api = describe();
    let mut described = BTreeSet::new();
    for (path, item) in api["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap().to_owned();
            described.insert((method.clone(), path.clone(), name));
        }
    }
    described
}

/// A row of the table repeats method and path of the handler's description; they must agree.
#[test]
fn the_table_of_routes_agrees_with_openapi() {
    let rows = ROUTES.iter().map(|route| {
        let name = route.operation.rsplit("::").next().unwrap().trim();
        (route.method.to_owned(), route.path.to_owned(), name.to_owned())
    });
    assert_eq!(rows.collect::<BTreeSet<_>>(), described());
}

/// Generators of clients name their functions by the operations.
#[test]
fn operations_have_different_names() {
    let mut names = BTreeSet::new();
    for route in ROUTES {
        let name = route.operation.rsplit("::").next().unwrap().trim();
        assert!(names.insert(name), "two operations are called {name}");
    }
}

/// Whether this caller is let in. Any status except 401 and 403 counts as let in.
fn opens(access: Access, caller: &str) -> bool {
    match (access, caller) {
        (Access::Open, _) => true,
        (_, "none" | "garbage" | "wrong secret" | "wrong checksum" | "revoked") => false,
        (Access::Caller | Access::Owner, _) => true,
        (Access::KeyHolder, _) => caller != "scheduler",
        (_, "admin") => access != Access::Scheduler,
        (Access::Viewer | Access::Editor, "editor" | "other team" | "editor of all teams") => true,
        (Access::Viewer, "viewer" | "narrowed editor" | "auditor" | "operator") => true,
        (Access::Auditor, "auditor" | "operator") => true,
        (Access::Operator, "operator") => true,
        (Access::Scheduler, "scheduler") => true,
        _ => false,
    }
}

#[tokio::test]
async fn routes_admit_only_their_callers() {
    let s = Story::today().await;
    let id = s.create("0 9 * * *", "UTC").await;
    let callers = callers(&s).await;
    let routes = ROUTES.iter().map(|route| (route.method, route.path, route.access)).chain(UNDESCRIBED);
    for (method, path, access) in routes {
        // The target does not exist, so a caller that is let in finds nothing and changes nothing.
        let path = match path {
            "/api/v1/runs/{id}"
            | "/api/v1/keys/{id}:revoke"
            | "/api/v1/sessions/{id}:end"
            | "/api/v1/notification-messages/{id}" => path.replace("{id}", &uuid::Uuid::nil().to_string()),
            _ => path.replace("{id}", "999999"),
        };
        for (caller, api) in &callers {
            let request = api.request(Method::from_bytes(method.to_uppercase().as_bytes()).unwrap(), &path);
            let answer = tests::send_request(request.header("content-type", "application/json").body("{}")).await;
            // Without a team, an audit log is that of all teams, which needs the scope auditor.
            let is_let_in = opens(access, caller) && !(*caller == "editor of all teams" && path.contains("/audit"));
            let expected = match (is_let_in, *caller) {
                (true, _) => {
                    assert!(!matches!(answer.status, 401 | 403 | 429 | 500..), "{caller} {method} {path}: {answer:?}");
                    continue;
                }
                (false, "none" | "garbage" | "wrong secret" | "wrong checksum" | "revoked") => (401, "unauthorized"),
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
    s.admin().post_empty(&revoke).await.expect(200);
    let api = |key: &serde_json::Value| Api::new(s.url(), key["key"].as_str().unwrap());
    let forged = add_checksum(format!("{}{}", viewer["prefix"].as_str().unwrap(), "A".repeat(43)));
    let narrowed = json!({"name": "n", "kind": "team", "team_id": team, "role": "editor", "scopes": ["read"]});
    let narrowed = key(narrowed).await;
    let auditor = key(json!({"name": "a", "kind": "admin", "scopes": ["auditor"]})).await;
    let operator = key(json!({"name": "o", "kind": "admin", "scopes": ["operate", "read"]})).await;
    let of_all = key(json!({"name": "e", "kind": "admin", "scopes": ["edit"]})).await;
    vec![
        ("none", Api::without_key(s.url())),
        ("garbage", Api::new(s.url(), "let me in")),
        ("wrong secret", Api::new(s.url(), &forged)),
        ("wrong checksum", Api::new(s.url(), &(forged[..forged.len() - 6].to_owned() + "000000"))),
        ("narrowed editor", api(&narrowed)),
        ("auditor", api(&auditor)),
        ("operator", api(&operator)),
        ("editor of all teams", api(&of_all)),
        ("revoked", api(&revoked)),
        ("viewer", api(&viewer)),
        ("editor", s.editor()),
        ("other team", api(&foreign)),
        ("scheduler", s.scheduler_key()),
        ("admin", s.admin()),
    ]
}

/// The description names the scope of each operation, for clients and for the page of the documentation; and that a person
/// has a token, with which no fire begins and no key is replaced.
#[test]
fn operations_name_their_scopes() {
    let api = describe();
    for route in ROUTES {
        let security = &api["paths"][route.path][route.method]["security"];
        let expected = match (route.access, route.access.scope()) {
            (Access::Open, _) => json!([]),
            (Access::Scheduler, scope) => json!([{"key": scope.map(Scope::as_str).as_slice()}]),
            (_, Some(scope)) => json!([{"key": [scope.as_str()]}, {"bearer": [scope.as_str()]}]),
            (Access::Caller, _) => json!([{"key": []}, {"bearer": []}]),
            (_, None) => json!([{"key": []}]),
        };
        assert_eq!(*security, expected, "{} {}", route.method, route.path);
    }
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
    s.admin().post_empty(&format!("/api/v1/keys/{}:revoke", made["id"].as_str().unwrap())).await.expect(200);
    here.get("/api/v1/keys").await.refused(401, "unauthorized", None);
    let revoked = tokio::time::Instant::now();
    while there.get("/api/v1/keys").await.status == 200 {
        assert!(revoked.elapsed() < PATIENCE, "the other instance still believes the key");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    s.end().await;
}

/// Only the answer of its creation has the key.
#[tokio::test]
async fn created_keys_are_stored_as_digests() {
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
