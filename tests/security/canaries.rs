//! Secrets with a text that is found again: in the log, the audit log, the answers, and the tables.

use serde_json::json;
use sqlx::AssertSqlSafe;
use tests::Story;
use uuid::Uuid;

use crate::ground::{create_key, ended_run, fire, idle_story, team_key};
use crate::process::App;
use crate::report::Tally;

/// A secret of each kind. Each text is unique.
struct Canaries {
    header: String,
    url_token: String,
    body: String,
    input: String,
    keys: Vec<String>,
    signing_secret: String,
    password: String,
}

/// A stack in which the canaries were saved, changed, sent, refused and deleted.
struct Field {
    s: Story,
    app: App,
    canaries: Canaries,
    workflow: schedule::WorkflowId,
}

impl Field {
    async fn new() -> Self {
        let s = idle_story().await;
        let settings = [("RUST_LOG", "trace"), ("CRONBOX_ACTION_ALLOW_CIDRS", "127.0.0.0/8")];
        let app = App::start(&s.dsn(), &settings).await;
        let text = |kind: &str| format!("canary-{kind}-{}", Uuid::new_v4().simple());
        let team = app.api(&s.keys.admin).post("/api/v1/teams", &json!({"name": "canaries"})).await.expect(201);
        let mut keys = vec![s.keys.admin.clone(), s.keys.editor.clone(), s.keys.scheduler.clone()];
        for body in [json!({"name": "k", "kind": "admin"}), json!({"name": "k", "kind": "scheduler"})] {
            let key = app.api(&s.keys.admin).post("/api/v1/keys", &body).await.expect(201);
            keys.push(key.json["key"].as_str().unwrap().to_owned());
        }
        let dsn = s.dsn();
        let password =
            dsn.split(['/', '@']).find_map(|part| part.split_once(':').filter(|(user, _)| user.contains("login")));
        let canaries = Canaries {
            header: text("header"),
            url_token: text("url"),
            body: text("body"),
            input: text("input"),
            keys,
            signing_secret: team.json["signing_secret"].as_str().unwrap().to_owned(),
            password: password.unwrap().1.to_owned(),
        };
        let workflow = use_canaries(&s, &app, &canaries).await;
        Field { s, app, canaries, workflow }
    }

    async fn end(self) -> Vec<u8> {
        let log = self.app.stop().await;
        self.s.end_early().await;
        log
    }
}

impl Canaries {
    fn all(&self) -> Vec<(&'static str, &str)> {
        let of_tenants = [
            ("header value", &*self.header),
            ("URL token", &self.url_token),
            ("body", &self.body),
            ("input", &self.input),
        ];
        let keys = self.keys.iter().map(|key| ("key", secret_part(key)));
        let signing = self.signing_secret.trim_start_matches("whsec_");
        of_tenants.into_iter().chain(keys).chain([("signing secret", signing), ("password", &self.password)]).collect()
    }
}

/// The part of a key that is never stored.
fn secret_part(key: &str) -> &str {
    // After `cba_` and 12 characters of the id.
    &key[16..]
}

/// Saves, changes, fires and deletes; each way must keep the canaries for itself.
async fn use_canaries(s: &Story, app: &App, canaries: &Canaries) -> schedule::WorkflowId {
    let editor = app.api(&s.keys.editor);
    let action = |path: &str| {
        let url = format!("http://127.0.0.1:8009/{path}?token={}", canaries.url_token);
        json!({"type": "http", "method": "POST", "url": url, "body": {"secret": canaries.body},
               "headers": {"Authorization": canaries.header}})
    };
    let fields =
        json!({"max_attempts": 1, "action": action("a"), "starting_inputs": {"password": {"secret": canaries.input}}});
    let mut body = json!({"name": Uuid::new_v4()});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let workflow = schedule::WorkflowId(editor.post("/api/v1/workflows", &body).await.expect(201).id());
    let path = format!("/api/v1/workflows/{workflow}");
    editor.patch(&path, &json!({"action": action("b")})).await.expect(200);
    // A field beside the secrets is wrong: the complaint must not repeat them.
    editor.patch(&path, &json!({"action": action("c"), "timeout_secs": -1})).await.expect(400);
    let mut wrong = action("d");
    wrong["method"] = json!("BREW");
    editor.patch(&path, &json!({"action": wrong})).await.expect(400);
    let _ended = ended_run(s, fire(s, workflow).await).await;
    let fired = editor
        .post(&format!("/api/v1/schedules/{workflow}:fire"), &json!({"inputs": {"x": {"secret": canaries.input}}}))
        .await;
    drop(fired);
    for key in &canaries.keys {
        app.api(&format!("{key}x")).get("/api/v1/workflows").await;
        app.api(key).get("/api/v1/workflows").await;
    }
    body["name"] = json!(Uuid::new_v4());
    let deleted = editor.post("/api/v1/workflows", &body).await.expect(201).id();
    app.api(&s.keys.admin).delete(&format!("/api/v1/workflows/{deleted}")).await;
    workflow
}

/// The log with all details: no canary.
pub(crate) async fn attack_log() -> Tally {
    let field = Field::new().await;
    let all: Vec<(&str, String)> =
        field.canaries.all().into_iter().map(|(kind, text)| (kind, text.to_owned())).collect();
    let log = field.end().await;
    let log = String::from_utf8_lossy(&log);
    let mut tally = Tally::default();
    if log.len() < 10_000 {
        tally.fail("the log is nearly empty, so nothing was searched");
    }
    for (kind, text) in all {
        let line = log.lines().find(|line| line.contains(&text));
        tally.record(line.is_none(), || format!("{kind}: {}", line.unwrap_or_default()));
    }
    tally
}

/// The audit log, which outlives its objects: no canary, as long as and after they exist.
pub(crate) async fn attack_audit() -> Tally {
    let field = Field::new().await;
    let mut tally = Tally::default();
    for (kind, text) in field.canaries.all() {
        for table in tables(&field.s).await.iter().filter(|table| table.contains("audit")) {
            let rows = rows_with(&field.s, table, text).await;
            tally.record(rows == 0, || format!("{kind}: {rows} rows of {table}"));
        }
    }
    field.end().await;
    tally
}

/// Every read as a viewer, an editor and an admin: no canary.
pub(crate) async fn attack_answers() -> Tally {
    let field = Field::new().await;
    let Field { s, app, canaries, workflow } = &field;
    let viewer = app.api(&team_key(s, s.keys.team_id, "viewer").await);
    let run = s.table("SELECT id::text FROM runs ORDER BY id LIMIT 1").await;
    let mut tally = Tally::default();
    let paths = [
        "/api/v1/workflows".to_owned(),
        "/api/v1/schedules".to_owned(),
        "/api/v1/runs".to_owned(),
        format!("/api/v1/workflows/{workflow}"),
        format!("/api/v1/schedules/{workflow}"),
        format!("/api/v1/runs/{run}"),
        "/api/v1/outbox".to_owned(),
        "/api/v1/keys".to_owned(),
        "/metrics".to_owned(),
        "/readyz".to_owned(),
    ];
    for (name, api) in [("viewer", &viewer), ("editor", &app.api(&s.keys.editor)), ("admin", &app.api(&s.keys.admin))] {
        for path in &paths {
            let answer = api.get(path).await;
            // An editor must be able to change a URL, and so sees it.
            let secrets = canaries.all().into_iter().filter(|(kind, _)| *kind != "URL token" || name == "viewer");
            for (kind, text) in secrets {
                tally.record(!answer.text.contains(text), || format!("{kind}: {path} as {name}"));
            }
        }
    }
    field.end().await;
    tally
}

/// The tables, as a stolen copy of the database shows them: no header value and no signing secret in clear.
pub(crate) async fn attack_tables() -> Tally {
    let field = Field::new().await;
    let mut tally = Tally::default();
    for table in tables(&field.s).await {
        for (kind, text) in field.canaries.all() {
            if matches!(kind, "header value" | "signing secret") {
                let rows = rows_with(&field.s, &table, text).await;
                tally.record(rows == 0, || format!("{kind}: {rows} rows of {table}"));
            }
        }
    }
    field.end().await;
    tally
}

/// The tables again: no key, and no password.
pub(crate) async fn attack_keys() -> Tally {
    let field = Field::new().await;
    let extra = create_key(&field.s, json!({"name": "x", "kind": "admin"})).await;
    let extra = extra["key"].as_str().unwrap().to_owned();
    let mut tally = Tally::default();
    for table in tables(&field.s).await {
        let keys = field.canaries.all().into_iter().filter(|(kind, _)| matches!(*kind, "key" | "password"));
        for (kind, text) in keys.chain([("key", secret_part(&extra))]) {
            let rows = rows_with(&field.s, &table, text).await;
            tally.record(rows == 0, || format!("{kind}: {rows} rows of {table}"));
        }
    }
    field.end().await;
    tally
}

/// All tables of the schema, partitions included.
async fn tables(s: &Story) -> Vec<String> {
    let list = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' ORDER BY 1";
    s.table(list).await.lines().map(str::to_owned).collect()
}

async fn rows_with(s: &Story, table: &str, text: &str) -> i64 {
    // The names come from Postgres' catalog.
    let count = AssertSqlSafe(format!("SELECT count(*) FROM \"{table}\" t WHERE position($1 IN t::text) > 0"));
    sqlx::query_scalar(count).bind(text).fetch_one(&s.pool).await.unwrap()
}
