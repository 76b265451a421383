//! A client that has what it reads gets 304, and what it has leads its next edit.

use app::api::request::limits::Load;
use app::api::routes::{ROUTES, Route};
use reqwest::Method;
use serde_json::{Value, json};
use tests::{Answer, Api, Story, send_request};

async fn read(api: &Api, path: &str, known: &str) -> Answer {
    send_request(api.request(reqwest::Method::GET, path).header("if-none-match", known)).await
}

fn etag(answer: &Answer) -> String {
    answer.headers["etag"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_a_client_has_is_not_sent_again() {
    let s = Story::today().await;
    let id = s.create_with(json!({"cron_schedule": "0 9 * * *", "timezone": "UTC"})).await;
    s.publish().await;
    let fired = s.editor().post(&format!("/api/v1/schedules/{id}:fire"), &json!({})).await.expect(202);
    s.runs_end().await;
    let run = fired.json["run_id"].as_str().unwrap();
    let workflow = format!("/api/v1/workflows/{id}");
    let paths = [
        &workflow,
        &format!("/api/v1/schedules/{id}"),
        &format!("/api/v1/runs/{run}"),
        "/api/v1/workflows",
        "/api/v1/runs",
        "/api/v1/me",
    ];
    for path in paths {
        let tag = etag(&s.editor().get(path).await.expect(200));
        let again = read(&s.editor(), path, &format!("\"other\", {tag}")).await.expect(304);
        assert_eq!((etag(&again), again.text.as_str()), (tag, ""), "{path}");
        assert_eq!(again.headers["cache-control"], "private, no-cache");
        assert!(!read(&s.editor(), path, "\"other\"").await.expect(200).text.is_empty());
    }
    // Without an edit, only what EventBridge has is other.
    let (tag, page) = (etag(&s.editor().get(&workflow).await), etag(&s.editor().get("/api/v1/workflows").await));
    s.execute(
        "UPDATE publications SET applied_on = applied_on - INTERVAL '1 hour', desired_revision = desired_revision + 1",
    )
    .await;
    let other = read(&s.editor(), &workflow, &tag).await.expect(200);
    assert_ne!(etag(&other), tag);
    read(&s.editor(), "/api/v1/workflows", &page).await.expect(200);
    s.end_early().await;
}

/// Two admins have read the same, and both write at once. One of them learns that another edit came first.
#[tokio::test]
async fn limits_and_hosts_are_not_overwritten_unseen() {
    let s = Story::today().await;
    let (admin, team) = (s.admin(), format!("/api/v1/teams/{}", s.keys.team_id));
    for (path, bodies) in [
        (format!("{team}/limits"), [json!({"workflows": 50}), json!({"workflows": 60})]),
        (format!("{team}/hosts"), [json!({"allowed_hosts": ["a.example"]}), json!({"allowed_hosts": ["b.example"]})]),
    ] {
        let put = async |seen: &str, body: &Value| {
            send_request(admin.request(reqwest::Method::PUT, &path).header("if-match", seen).json(body)).await
        };
        let seen = etag(&admin.get(&path).await.expect(200));
        // What the team uses is no edit of its limits.
        s.create("0 9 * * *", "UTC").await;
        let (one, other) = tokio::join!(put(&seen, &bodies[0]), put(&seen, &bodies[1]));
        let (made, refused) = if one.status == 200 { (one, other) } else { (other, one) };
        assert_eq!(made.status, 200, "{}", made.text);
        refused.refused(412, "version_mismatch", None);
        let shown = admin.get(&path).await.expect(200);
        for member in ["set", "allowed_hosts"] {
            assert_eq!(shown.json[member], made.json[member]);
        }
        // The answer to a write has the next version, and without If-Match the last write wins.
        put(&etag(&made), &bodies[0]).await.expect(200);
        send_request(admin.request(reqwest::Method::PUT, &path).json(&bodies[1])).await.expect(200);
    }
    s.end_early().await;
}

/// Whether the description of a route has `If-Match`.
fn describes_if_match(route: &Route) -> bool {
    let operation = &app::api::describe()["paths"][route.path][route.method];
    operation["parameters"].as_array().into_iter().flatten().any(|parameter| parameter["name"] == "If-Match")
}

/// A write that ignores a condition of its client could replace what the client has never read.
#[tokio::test]
async fn no_write_ignores_a_condition() {
    let s = Story::today().await;
    for route in ROUTES.iter().filter(|route| route.load == Load::Edit) {
        let path = route.path.replace("{id}", "1").replace("{name}", "token").replace("{revision}", "1");
        let method: Method = route.method.to_uppercase().parse().unwrap();
        let send = async |header: &str, value: &str| {
            send_request(s.admin().request(method.clone(), &path).header(header, value)).await
        };
        assert_eq!(route.conditions.has_version(), describes_if_match(route), "{path}");
        if !route.conditions.has_version() {
            send("if-match", "\"7\"").await.refused(400, "unknown_field", Some("If-Match"));
        }
        send("if-none-match", "\"7\"").await.refused(400, "unknown_field", Some("If-None-Match"));
        if !route.conditions.has_existence() {
            send("if-none-match", "*").await.refused(412, "version_mismatch", None);
        }
    }
    s.end_early().await;
}

/// With `If-None-Match: *` a write replaces nothing, with `If-Match: *` it creates nothing.
#[tokio::test]
async fn writes_that_create_evaluate_existence() {
    let s = Story::with_app(|config| {
        config.secrets.secrets_key = Some("k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".to_owned());
    })
    .await;
    let workflow = s.create_with(json!({})).await;
    let objects = [
        (
            format!("/api/v1/schedules/{workflow}"),
            [json!({"cron_schedule": "0 9 * * *"}), json!({"cron_schedule": "0 8 * * *"})],
        ),
        (
            format!("/api/v1/teams/{}/secrets/token", s.keys.team_id),
            [json!({"value": "first"}), json!({"value": "second"})],
        ),
    ];
    for (path, [first, second]) in &objects {
        let put = async |condition: &str, body: &Value| {
            send_request(s.admin().request(Method::PUT, path).header(condition, "*").json(body)).await
        };
        put("if-match", first).await.refused(412, "version_mismatch", None);
        put("if-none-match", first).await.expect(201);
        put("if-none-match", second).await.refused(412, "version_mismatch", None);
        put("if-match", second).await.expect(200);
    }
    // Each refusal has changed nothing.
    let workflow = s.workflow(workflow).await;
    assert_eq!((&workflow["cron_schedule"], &workflow["version"]), (&json!("0 8 * * *"), &json!(3)));
    assert_eq!(s.count("SELECT version::bigint FROM team_secrets").await, 2);
    s.end_early().await;
}
